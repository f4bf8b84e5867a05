"""The report of what was and what should have been read from providers' prompt caches, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastlane.records.plays import DriftKind, PromptCacheRecord

_LEGEND = (
    "said: calls of which the provider said what it read; of these alone: expected, cached, hit ratio (cached / their",
    "prompt tokens). Of all calls: prompt tokens, lost (to drift, estimated).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCount:
    """How often prompts drifted in one way, and what the most costly of them was."""

    kind: DriftKind
    calls: int
    tokens_lost: int
    """Of all these calls."""
    path: str | None
    """Where the most costly of them departed: see `Drift.path`."""


@dataclass(slots=True, kw_only=True)
class CacheTotals:
    """What was counted of answered calls."""

    calls: int = 0
    said_calls: int = 0
    """Of these, the calls of which the provider said how much it read from its cache."""
    prompt_tokens: int = 0
    """Of all calls; as the provider counted, estimated where it did not say."""
    said_prompt_tokens: int = 0
    """Of the calls of which the provider said how much it read from its cache."""
    cached_tokens: int | None = None
    """What was read in the same calls; None where there are none, which is not 0."""
    expected_tokens: int = 0
    """What should have been read, of all calls where anything was to be expected."""
    said_expected_tokens: int | None = None
    """What should have been read of the calls that `cached_tokens` is of; None where there are none."""
    drifts: tuple[DriftCount, ...] = ()
    """The most costly first. Of the latest 1,000 calls in which tokens may have been lost."""

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompts' tokens read from the cache, of the calls that said; None where none did."""
        return min(1.0, (self.cached_tokens or 0) / self.said_prompt_tokens) if self.said_prompt_tokens else None

    @property
    def said_share(self) -> float | None:
        """The share of the calls of which the provider said how much it read from its cache."""
        return self.said_calls / self.calls if self.calls else None

    @property
    def tokens_lost(self) -> int:
        """Tokens lost to drift of any kind."""
        return sum(drift.tokens_lost for drift in self.drifts)

    def add(self, other: CacheTotals) -> None:
        """Add what was counted of other calls, but for their drifts."""
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.expected_tokens += other.expected_tokens
        if other.cached_tokens is not None:
            self.said_calls += other.said_calls
            self.said_prompt_tokens += other.said_prompt_tokens
            self.cached_tokens = (self.cached_tokens or 0) + other.cached_tokens
            self.said_expected_tokens = (self.said_expected_tokens or 0) + (other.said_expected_tokens or 0)


@dataclass(slots=True, kw_only=True)
class FamilyReport(CacheTotals):
    """The answered calls whose prompts are of one kind: the same origin, model and key, and alike at the beginning."""

    family: str
    origin: str
    model: str | None
    key: str | None = None
    """The cache key that was last sent."""

    def count(self, record: PromptCacheRecord) -> None:
        """Count an answered call."""
        self.calls += 1
        self.prompt_tokens += record.prompt_tokens
        self.expected_tokens += record.expected_tokens or 0
        self.key = record.key
        if record.cached_tokens is not None:
            self.said_calls += 1
            self.said_prompt_tokens += record.prompt_tokens
            self.cached_tokens = (self.cached_tokens or 0) + record.cached_tokens
            self.said_expected_tokens = (self.said_expected_tokens or 0) + (record.expected_tokens or 0)


@dataclass(slots=True, kw_only=True)
class PromptCacheReport(CacheTotals):
    """What was read from providers' prompt caches, and why not more. `str()` of it is a table."""

    families: tuple[FamilyReport, ...] = ()
    """The one with the most prompt tokens first. Families that were forgotten are one row, named "others"."""

    @classmethod
    def of(cls, families: Iterable[FamilyReport], records: Iterable[PromptCacheRecord] = ()) -> PromptCacheReport:
        """Report of what was counted of families, and of records that may have a drift."""
        report = cls()
        drifting = [record for record in records if record.drift is not None]
        rows = []
        for family in families:
            own = [record for record in drifting if record.family == family.family]
            rows.append(replace(family, drifts=_counted(own) or family.drifts))
            report.add(family)
        report.families = tuple(sorted(rows, key=lambda row: (-row.prompt_tokens, row.family)))
        report.drifts = _counted(drifting)
        return report

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        rows = [{**asdict(family), "hit_ratio": family.hit_ratio} for family in self.families]
        return {**asdict(self), "hit_ratio": self.hit_ratio, "tokens_lost": self.tokens_lost, "families": rows}

    def __str__(self) -> str:
        if not self.families:
            return "No call has been answered yet."
        rows = [("family", "model", "calls", "said", "prompt tokens", "expected", "cached", "hit ratio", "lost")]
        rows += [
            (
                family.family,
                f"{family.model or 'unknown':.32}",
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
        lines = [*_table(rows, left=(0, 1)), *_LEGEND]
        if self.drifts:
            found = [("drift", "calls", "tokens lost", "most costly at")]
            found += [
                (one.kind, f"{one.calls:,}", f"{one.tokens_lost:,}", f"{one.path or '-':.60}") for one in self.drifts
            ]
            lines += ["", *_table(found, left=(0, 3))]
        summary = (
            f"{self.calls:,} call{'' if self.calls == 1 else 's'}, {self.prompt_tokens:,} prompt tokens; "
            f"expected {_number(self.said_expected_tokens)} from the cache, read {_number(self.cached_tokens)} "
            f"(hit ratio {_percent(self.hit_ratio)})"
        )
        lines += ["", summary]
        if self.said_calls < self.calls:
            lines.append(
                f"For {self.calls - self.said_calls:,} of these the provider did not say what it read: "
                'most providers say so of a stream only with stream_options={"include_usage": True}'
            )
        return "\n".join(lines)


def _counted(records: Iterable[PromptCacheRecord]) -> tuple[DriftCount, ...]:
    """Return one count for each kind of drift, the most costly first."""
    by_kind: dict[DriftKind, list[Any]] = {}
    for record in records:
        if record.drift is not None:
            by_kind.setdefault(record.drift.kind, []).append(record.drift)
    counts = [
        DriftCount(
            kind=kind,
            calls=len(drifts),
            tokens_lost=sum(drift.tokens_lost for drift in drifts),
            path=max(drifts, key=lambda drift: drift.tokens_lost).path,
        )
        for kind, drifts in by_kind.items()
    ]
    return tuple(sorted(counts, key=lambda count: (-count.tokens_lost, count.kind)))


def _number(tokens: int | None) -> str:
    """Nothing said is not nothing read."""
    return "-" if tokens is None else f"{tokens:,}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _table(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> list[str]:
    """Return rows as lines; numbers stand to the right, and the columns in `left` to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
