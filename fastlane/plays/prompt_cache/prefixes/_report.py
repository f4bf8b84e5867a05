"""The report of what was and what should have been read from providers' prompt caches, family by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fastlane.records.prompt import DriftKind

_PATH_WIDTH = 60
_MODEL_WIDTH = 32
_COLUMNS = (
    "said: calls of which the provider said what it read; of these alone: expected, cached, hit ratio (cached / their",
    "prompt tokens). Of all calls: prompt tokens, lost (to drift, estimated).",
)


class Metric(NamedTuple):
    """One counter's value, to be handed to whatever takes metrics."""

    name: str
    unit: str
    value: int
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCount:
    """How often prompts of a family drifted in one way, and what the most costly of them was."""

    kind: DriftKind
    calls: int
    tokens_lost: int
    """Of all these calls."""
    path: str | None
    """Where the most costly of them departed: see `Drift.path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyReport:
    """The answered calls whose prompts are of one kind: the same origin, model and key, and alike at the beginning."""

    family: str
    origin: str
    model: str | None
    key: str | None
    """The cache key that was last sent."""
    calls: int
    said_calls: int
    """Of these, the calls of which the provider said how much it read from its cache."""
    prompt_tokens: int
    """Of all calls; as the provider counted, estimated where it did not say."""
    said_prompt_tokens: int
    """Of the calls of which the provider said how much it read from its cache."""
    cached_tokens: int | None
    """Of the same calls; None where there are none, which is not 0."""
    expected_tokens: int
    """What should have been read, of all calls where anything was to be expected."""
    said_expected_tokens: int | None
    """What should have been read of the calls of which the provider said what it read: what `cached_tokens` compares
    with. None where there are none."""
    drifts: tuple[DriftCount, ...] = ()
    """The most costly first."""

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompts' tokens read from the cache, of the calls that said; None where none did."""
        return _ratio(self.cached_tokens or 0, self.said_prompt_tokens)

    @property
    def said_share(self) -> float | None:
        """The share of the calls of which the provider said how much it read from its cache."""
        return _ratio(self.said_calls, self.calls)

    @property
    def tokens_lost(self) -> int:
        """Tokens lost to drift of any kind."""
        return sum(drift.tokens_lost for drift in self.drifts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheReport:
    """What was read from providers' prompt caches, and why not more. `str()` of it is a table."""

    families: tuple[FamilyReport, ...] = ()
    """The one with the most prompt tokens first. Families that were forgotten are one row for each model, named
    "others"."""

    @property
    def calls(self) -> int:
        """Answered calls."""
        return sum(family.calls for family in self.families)

    @property
    def said_calls(self) -> int:
        """Calls of which the provider said how much it read from its cache."""
        return sum(family.said_calls for family in self.families)

    @property
    def prompt_tokens(self) -> int:
        """Of all calls; as the provider counted, estimated where it did not say."""
        return sum(family.prompt_tokens for family in self.families)

    @property
    def cached_tokens(self) -> int | None:
        """Read from the cache by the providers' own words; None where they said nothing, which is not 0."""
        said = [family.cached_tokens for family in self.families if family.cached_tokens is not None]
        return sum(said) if said else None

    @property
    def expected_tokens(self) -> int:
        """What should have been read, of all calls where anything was to be expected."""
        return sum(family.expected_tokens for family in self.families)

    @property
    def said_expected_tokens(self) -> int | None:
        """What should have been read of the calls that `cached_tokens` is of; None where there are none."""
        said = [family.said_expected_tokens for family in self.families if family.said_expected_tokens is not None]
        return sum(said) if said else None

    @property
    def tokens_lost(self) -> int:
        """Tokens lost to drift of any kind."""
        return sum(family.tokens_lost for family in self.families)

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompts' tokens read from the cache, of the calls that said; None where none did."""
        return _ratio(self.cached_tokens or 0, sum(family.said_prompt_tokens for family in self.families))

    @property
    def drifts(self) -> tuple[DriftCount, ...]:
        """Drift of all families by kind, the most costly first."""
        return merged(drift for family in self.families for drift in family.drifts)

    def metrics(self) -> tuple[Metric, ...]:
        """Counters since the play began: tokens by model, and calls that drifted by model and kind.

        What was expected and what was read is counted of the same calls, those of which the provider said what it read:
        their quotient is no lower for streams that say nothing. Of a model of which it never said so, there is neither.
        No attribute is without bound: models beyond those of the families that are remembered count as "others".
        """
        expected: Counter[str] = Counter()
        read: Counter[str] = Counter()
        drifts: dict[tuple[str, str], list[int]] = {}
        for family in self.families:
            model = family.model or "unknown"
            if family.cached_tokens is not None:
                expected[model] += family.said_expected_tokens or 0
                read[model] += family.cached_tokens
            for drift in family.drifts:
                lost = drifts.setdefault((model, drift.kind), [0, 0])
                lost[0] += drift.calls
                lost[1] += drift.tokens_lost
        metrics = []
        for model, count in expected.items():
            attributes = {"gen_ai.request.model": model}
            metrics.append(Metric("fastlane.client.cache.expected_tokens", "{token}", count, attributes))
            metrics.append(Metric("fastlane.client.cache.read_tokens", "{token}", read[model], attributes))
        for (model, kind), (calls, lost_tokens) in drifts.items():
            attributes = {"gen_ai.request.model": model, "fastlane.cache.mismatch_reason": kind}
            metrics.append(Metric("fastlane.client.cache.drifts", "{call}", calls, attributes))
            metrics.append(Metric("fastlane.client.cache.lost_tokens", "{token}", lost_tokens, attributes))
        return tuple(metrics)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return {
            "calls": self.calls,
            "said_calls": self.said_calls,
            "prompt_tokens": self.prompt_tokens,
            "expected_tokens": self.expected_tokens,
            "said_expected_tokens": self.said_expected_tokens,
            "cached_tokens": self.cached_tokens,
            "hit_ratio": self.hit_ratio,
            "tokens_lost": self.tokens_lost,
            "drifts": [asdict(drift) for drift in self.drifts],
            "families": [
                {**asdict(family), "drifts": [asdict(drift) for drift in family.drifts], "hit_ratio": family.hit_ratio}
                for family in self.families
            ],
        }

    def __str__(self) -> str:
        if not self.families:
            return "No call has been answered yet."
        rows = [("family", "model", "calls", "said", "prompt tokens", "expected", "cached", "hit ratio", "lost")]
        rows += [
            (
                family.family,
                _clipped(family.model or "unknown", _MODEL_WIDTH),
                f"{family.calls:,}",
                _percent(family.said_share),
                f"{family.prompt_tokens:,}",
                _number(family.said_expected_tokens),
                _number(family.cached_tokens),
                _percent(family.hit_ratio),
                f"{family.tokens_lost:,}",
            )
            for family in self.families
        ]
        lines = [*_table(rows, left=2), *_COLUMNS]
        summary = (
            f"{self.calls:,} call{'' if self.calls == 1 else 's'}, {self.prompt_tokens:,} prompt tokens; "
            f"expected {_number(self.said_expected_tokens)} from the cache, read {_number(self.cached_tokens)} "
            f"(hit ratio {_percent(self.hit_ratio)})"
        )
        if self.said_calls < self.calls:
            summary += (
                f"\nOf {self.calls - self.said_calls:,} of these nobody said what was read: "
                'of a stream most providers do so only with stream_options={"include_usage": True}'
            )
        if self.drifts:
            found = [("drift", "calls", "tokens lost", "most costly at")]
            found += [
                (drift.kind, f"{drift.calls:,}", f"{drift.tokens_lost:,}", _clipped(drift.path or "-", _PATH_WIDTH))
                for drift in self.drifts
            ]
            lines += ["", *_table(found, left=1, last_left=True)]
        return "\n".join([*lines, "", summary])


def merged(drifts: Iterable[DriftCount]) -> tuple[DriftCount, ...]:
    """Return one count for each kind of drift, the most costly first."""
    counts: dict[DriftKind, DriftCount] = {}
    costliest: dict[DriftKind, int] = {}
    for drift in drifts:
        known = counts.get(drift.kind)
        if known is None:
            counts[drift.kind], costliest[drift.kind] = drift, drift.tokens_lost
            continue
        costlier = drift.tokens_lost > costliest[drift.kind]
        costliest[drift.kind] = max(costliest[drift.kind], drift.tokens_lost)
        counts[drift.kind] = DriftCount(
            kind=drift.kind,
            calls=known.calls + drift.calls,
            tokens_lost=known.tokens_lost + drift.tokens_lost,
            path=drift.path if costlier else known.path,
        )
    return tuple(sorted(counts.values(), key=lambda count: (-count.tokens_lost, count.kind)))


def _ratio(part: int, whole: int) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None


def _number(tokens: int | None) -> str:
    """Nothing said is not nothing read."""
    return "-" if tokens is None else f"{tokens:,}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _table(rows: Sequence[tuple[str, ...]], *, left: int, last_left: bool = False) -> list[str]:
    """Rows as lines: the first `left` columns (and the last one) stand to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index < left or (last_left and index == len(row) - 1) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
