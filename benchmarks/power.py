"""Known effects of 5 % and 10 %: how often they are found, after how many calls, and whether intervals hold the truth.

Simulated: 1,000 experiments for each effect against a provider that drifts, is noisy and has a tail (as
`benchmarks/_swaying.py` says), looked at every ten pairs until the confidence sequence excludes no change, or for 1,000
pairs at most. Really run: the engine with a plain arm and two of which every request is told to the embedded provider
with a prefill that is 5 % or 10 % longer, times swaying as in the simulation; the long series of pairs is cut into
experiments, one beginning where the one before it had its verdict. `found_share` is the share of experiments that had
the right verdict `wrong_way` how many had the opposite one, `calls_…` how many calls an experiment took that found it
(two for each pair). The report's interval (Hodges-Lehmann) is asked after each 100 pairs: `interval_covers_share`; the
confidence sequence where it was stopped: `sequence_covers_share`. Shares have their 95 % intervals by Wilson.

Inside: the time to the first token as the caller sees it. What that has beside the prefill is no part of the effect:
`run_…_truth_ratio` is what was injected over the whole time, by the provider's own log of the same run, and that is
what the intervals have to hold. Outside: each arm process's first request and its warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks._report import Figure, Report
from benchmarks._swaying import (
    OVERHEAD_MS,
    Looked,
    log_ratios_of,
    look,
    one_after_the_other,
    plain,
    run,
    share,
    simulated,
    slower_by_5,
    slower_by_10,
)
from fastlane.bench import Arm
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.statistics import hodges_lehmann, pairs_for_effect

_MOST_PAIRS = 1_000
_INTERVAL_PAIRS = 100
_EFFECTS = {"5": 1.05, "10": 1.1}
_CLIENTS = {"5": slower_by_5, "10": slower_by_10}


def _covered(series: Sequence[float], truth: float) -> list[bool]:
    """Whether the report's interval holds the truth, for each part of a series."""
    held = []
    for start in range(0, len(series) - _INTERVAL_PAIRS + 1, _INTERVAL_PAIRS):
        interval = hodges_lehmann(series[start : start + _INTERVAL_PAIRS])
        if interval is None or interval.low is None or interval.high is None:
            raise RuntimeError("as many pairs were to have an interval")
        held.append(interval.low <= truth <= interval.high)
    return held


def _figures(name: str, looked: Sequence[Looked], covered: Sequence[bool], truth: float) -> dict[str, Figure]:
    found = [each for each in looked if each.sequence is not None]
    right = [each for each in found if each.low is not None and each.low > 0]
    calls = [2 * each.sequence for each in right if each.sequence is not None]
    return {
        **share(f"{name}_found", (each in right for each in looked)),
        f"{name}_experiments": len(looked),
        f"{name}_wrong_way": len(found) - len(right),
        f"{name}_calls_mean": float(np.mean(calls)) if calls else None,
        f"{name}_calls_p90": float(np.quantile(calls, 0.9)) if calls else None,
        **share(f"{name}_interval_covers", covered),
        **share(f"{name}_sequence_covers", (each.covers(truth) for each in looked)),
    }


def _simulated(experiments: int) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, effect in _EFFECTS.items():
        truth = math.log(effect)
        series = [simulated(effect, _MOST_PAIRS, (round(100 * effect), seed)) for seed in range(experiments)]
        covered = [held for each in series for held in _covered(each[:_INTERVAL_PAIRS].tolist(), truth)]
        looked = [look(each.tolist()) for each in series]
        figures |= _figures(f"simulated_{name}", looked, covered, truth)
    return figures


def _truth(recorded: RecordedRun, effect: float) -> float:
    """Return the logarithm of what an arm's whole time is of the reference's, for a request of the usual size.

    The emulator was told to take `effect` times the prefill, and the usual overhead once more for what it is of the
    effect; what the rest of a request's time really was is known from the provider's own stamps.
    """
    log = {entry.tag: entry for entry in recorded.log or ()}
    prefills, others = [], []
    for sample in recorded.measured(arm="plain"):
        entry = log.get(sample.tag)
        if entry is None or entry.first_token_ns is None or entry.body_complete_ns is None or not sample.token_ns:
            continue
        at_provider_ms = (entry.first_token_ns - entry.body_complete_ns) / 1e6
        prefills.append(at_provider_ms)
        others.append((sample.token_ns[0] - sample.issued_ns) / 1e6 - at_provider_ms)
    prefill, other = median(prefills), median(others)
    return math.log((effect * prefill + (effect - 1) * OVERHEAD_MS + other) / (prefill + other))


def _really_run(pairs: int) -> dict[str, Figure]:
    arms = [Arm(name="plain", client=plain)]
    arms += [Arm(name=f"{name} percent slower", client=_CLIENTS[name]) for name in _EFFECTS]
    recorded = run(arms, pairs, again=False, seed=1)
    figures: dict[str, Figure] = {}
    for name, effect in _EFFECTS.items():
        series = log_ratios_of(recorded, f"{name} percent slower", "plain")
        truth = _truth(recorded, effect)
        looked = list(one_after_the_other(series, _MOST_PAIRS))
        interval = hodges_lehmann(series)
        if looked:
            figures |= _figures(f"run_{name}", looked, _covered(series, truth), truth)
        else:
            # The noise is so high that no experiment came to its end: say what one would take.
            figures |= {f"run_{name}_found_share": None, f"run_{name}_interval_covers_share": None}
            covered = _covered(series, truth)
            figures |= share(f"run_{name}_interval_covers", covered) if covered else {}
            needed = None if interval is None else pairs_for_effect(replace(interval, value=truth), len(series))
            figures[f"run_{name}_pairs_needed"] = needed
        figures[f"run_{name}_truth_ratio"] = math.exp(truth)
        figures[f"run_{name}_seen_ratio"] = None if interval is None else math.exp(interval.value)
    figures["run_failed_requests"] = sum(sample.error is not None for sample in recorded.measured())
    return figures


def measure(quick: bool) -> Report:
    """Simulate, and run."""
    experiments, pairs = (100, 600) if quick else (1_000, 8_000)
    return Report(
        figures={**_simulated(experiments), **_really_run(pairs)},
        reach={
            "simulated_10_found_share": ">= 0.9",
            "run_10_found_share": ">= 0.9",
            **{f"{kind}_{name}_interval_covers_share": ">= 0.93" for kind in ("simulated", "run") for name in _EFFECTS},
        },
        conditions={"simulated": experiments, "run_pairs_each": pairs},
    )
