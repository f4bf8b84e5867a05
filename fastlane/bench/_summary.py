"""A run in figures: every arm by itself, and against the arm that it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._arms import compared_with
from ._check import connections_by_client, request_body_bytes
from ._recorder import Sample
from ._run import Run
from ._statistics import Percentile, Ratio, percentile, percentile_ratio, typical_ratio

METRICS = {"time_to_first_token": "Time to first token", "api_end_to_end": "API end-to-end"}
"""The compared durations, and how a report calls them."""
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Percentiles of one metric of one arm, in milliseconds, over the requests that succeeded."""

    requests: int
    percentiles: Mapping[str, Percentile]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One arm's figures over all blocks; its first request of all is in none of them but those named so."""

    arm: str
    description: str
    requests: int
    failed: int
    errors: Mapping[str, int]
    """How often each error came."""
    first_request_ms: float | None
    """Time to first token of the arm's very first request, in milliseconds: imports, connection and caches are cold."""
    durations: Mapping[str, Durations]
    connections_opened: int | None
    """The first request's included; None where nobody counted them."""
    bytes_sent: int | None
    """Bytes of all requests' bodies as sent; None where nobody counted them."""
    input_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One arm's metric over the compared arm's, by the blocks in which both succeeded; below 1 is faster."""

    arm: str
    compared_with: str
    metric: str
    pairs: int
    typical: Ratio | None
    """By what factor a request typically changes."""
    percentiles: Mapping[str, Ratio]
    """The ratio of the two arms' percentiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All figures of a run."""

    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]
    """Why the figures must not be used; empty for a sound run."""


def summarise(run: Run) -> Summary:
    """Compute every figure of a run."""
    names = [arm.name for arm in run.settings.arms]
    by_arm = {name: [sample for sample in run.samples if sample.arm == name] for name in names}
    reference = compared_with(names)
    arms = tuple(_arm(run, arm.name, arm.description, by_arm[arm.name]) for arm in run.settings.arms)
    problems = [*(run.check.problems if run.check else ())]
    if not run.blocks_run:
        advice = "it was interrupted first" if run.interrupted else "give the run more time with --budget-s"
        problems.append(f"no block was run: {advice}")
    problems += [
        f"every request of arm {arm.arm!r} failed" for arm in arms if arm.requests and arm.failed == arm.requests
    ]
    return Summary(
        arms=arms,
        comparisons=tuple(
            _comparison(name, reference, metric, by_arm[name], by_arm[reference], seed=run.settings.seed)
            for metric in METRICS
            for name in names
            if name != reference
        ),
        problems=tuple(problems),
    )


def _arm(run: Run, name: str, description: str, samples: Sequence[Sample]) -> ArmSummary:
    measured = [sample for sample in samples if not sample.cold]
    errors = Counter(sample.error for sample in measured if sample.error is not None)
    first = next((sample.time_to_first_token_s for sample in samples if sample.cold), None)
    return ArmSummary(
        arm=name,
        description=description,
        requests=len(measured),
        failed=errors.total(),
        errors=dict(errors),
        first_request_ms=None if first is None else first * 1e3,
        durations={metric: _durations(list(_by_block(measured, metric).values())) for metric in METRICS},
        connections_opened=(run.check.connections[name].by_server if run.check else connections_by_client(samples)),
        bytes_sent=_bytes_sent(run, measured),
        input_tokens=_total([sample.input_tokens for sample in measured if sample.error is None]),
        cached_tokens=_total([sample.cached_tokens for sample in measured if sample.error is None]),
    )


def _durations(values_ms: Sequence[float]) -> Durations:
    found = {name: percentile(values_ms, share) for name, share in SHARES.items()}
    return Durations(
        requests=len(values_ms), percentiles={name: value for name, value in found.items() if value is not None}
    )


def _by_block(samples: Sequence[Sample], metric: str) -> dict[tuple[int, int], float]:
    return {
        sample.key: value * 1e3
        for sample in samples
        if not sample.cold and sample.error is None and (value := getattr(sample, f"{metric}_s")) is not None
    }


def _bytes_sent(run: Run, measured: Sequence[Sample]) -> int | None:
    if run.log is None:
        return _total([request_body_bytes(sample) for sample in measured])
    tags = {sample.tag for sample in measured}
    return sum(entry.bytes_in for entry in run.log if entry.tag in tags)


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    # A sum of some of the counts would pass for the sum of all.
    return sum(known) if known and len(known) == len(counts) else None


def _comparison(
    arm: str, reference: str, metric: str, samples: Sequence[Sample], others: Sequence[Sample], *, seed: int
) -> Comparison:
    ours, theirs = _by_block(samples, metric), _by_block(others, metric)
    both = sorted(ours.keys() & theirs.keys())
    values, baseline = [ours[key] for key in both], [theirs[key] for key in both]
    ratios = {name: percentile_ratio(values, baseline, share, seed=seed) for name, share in SHARES.items()}
    return Comparison(
        arm=arm,
        compared_with=reference,
        metric=metric,
        pairs=len(both),
        typical=typical_ratio(values, baseline),
        percentiles={name: ratio for name, ratio in ratios.items() if ratio is not None},
    )
