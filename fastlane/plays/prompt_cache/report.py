"""The report of what was and what should have been read from providers' prompt caches, family by family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastlane.records.plays import DriftKind, PromptCacheRecord

_LEGEND = (
    "expected, cached and hit ratio: of the calls whose cached tokens the provider reported; the rest: of all calls"
)

_STREAMS = 'most providers report those of a stream only with stream_options={"include_usage": True}'


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCount:
    """How often prompts drifted in one way, and where the most costly of them departed."""

    kind: DriftKind
    calls: int
    tokens_lost: int
    """Of all these calls."""
    path: str | None
    """Of the most costly one: see `Drift.path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheReport:
    """What the latest 1,000 answered calls read from prompt caches, and why not more. `str()` of it is a table.

    Each of `families` is such a report too: of prompts of one kind, which have the same origin, model and key, and are
    alike at the beginning.
    """

    family: str
    """"all" for the calls of all families."""
    model: str | None
    key: str | None
    """The cache key that was last sent."""
    calls: int
    reported_calls: int
    """Of these, the calls whose cached tokens the provider reported."""
    prompt_tokens: int
    """Of all calls; as the provider counted, estimated if it did not."""
    cached_tokens: int | None
    """Of the calls for which they were reported; None if there are none, which is not 0."""
    expected_tokens: int | None
    """What should have been read in the same calls; None if there are none."""
    hit_ratio: float | None
    """The share of the prompt tokens of the same calls that was read; None if there are none."""
    tokens_lost: int
    """Tokens lost to drift of any kind."""
    drifts: tuple[DriftCount, ...]
    """The most costly first."""
    families: tuple[PromptCacheReport, ...] = ()
    """The one with the most prompt tokens first."""

    @classmethod
    def of(cls, calls: Sequence[tuple[str | None, PromptCacheRecord]], family: str = "all") -> PromptCacheReport:
        """Sum up the records of calls, each with the model that was called."""
        records = [record for _, record in calls]
        reported = [record for record in records if record.cached_tokens is not None]
        cached, prompts = (
            sum(getattr(record, name) for record in reported) for name in ("cached_tokens", "prompt_tokens")
        )
        drifts = _counted(records)
        names = dict.fromkeys(record.family for record in records) if family == "all" else ()
        rows = [cls.of([call for call in calls if call[1].family == name], name) for name in names]
        return cls(
            family=family,
            model=calls[-1][0] if calls and family != "all" else None,
            key=records[-1].key if records and family != "all" else None,
            calls=len(records),
            reported_calls=len(reported),
            prompt_tokens=sum(record.prompt_tokens for record in records),
            cached_tokens=cached if reported else None,
            expected_tokens=sum(record.expected_tokens or 0 for record in reported) if reported else None,
            hit_ratio=min(1.0, cached / prompts) if prompts else None,
            tokens_lost=sum(drift.tokens_lost for drift in drifts),
            drifts=drifts,
            families=tuple(sorted(rows, key=lambda row: (-row.prompt_tokens, row.family))),
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        if not self.calls:
            return "No call has been answered yet."
        rows = [("family", "model", "calls", "reported", "prompt tokens", "expected", "cached", "hit ratio", "lost")]
        rows += [
            (
                row.family,
                f"{row.model or '-':.32}",
                f"{row.calls:,}",
                f"{row.reported_calls / row.calls:.0%}",
                f"{row.prompt_tokens:,}",
                "-" if row.expected_tokens is None else f"{row.expected_tokens:,}",
                "-" if row.cached_tokens is None else f"{row.cached_tokens:,}",
                "-" if row.hit_ratio is None else f"{row.hit_ratio:.0%}",
                f"{row.tokens_lost:,}",
            )
            for row in (*self.families, self)
        ]
        lines = [*_table(rows, left=(0, 1)), _LEGEND]
        if self.drifts:
            drifts = [("drift", "calls", "tokens lost", "most costly at")]
            drifts += [
                (one.kind, f"{one.calls:,}", f"{one.tokens_lost:,}", f"{one.path or '-':.60}") for one in self.drifts
            ]
            lines += ["", *_table(drifts, left=(0, 3))]
        missing = self.calls - self.reported_calls
        if missing:
            lines += ["", f"Cached tokens of {missing:,} calls were not reported: {_STREAMS}"]
        return "\n".join(lines)


def _counted(records: Iterable[PromptCacheRecord]) -> tuple[DriftCount, ...]:
    """Return one count for each kind of drift, the most costly first."""
    by_kind: dict[DriftKind, list[Any]] = {}
    for drift in filter(None, (record.drift for record in records)):
        by_kind.setdefault(drift.kind, []).append(drift)
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


def _table(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> list[str]:
    """Return rows as lines; numbers are aligned to the right, and the columns in `left` to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
