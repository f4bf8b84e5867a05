"""What a pacer knows of limits, for reports and tests."""

from __future__ import annotations

from dataclasses import dataclass

from fastlane.providers.facts import Counts

from ._limit import Kind, Limit
from ._stated import Stated


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLimit:
    """One limit, as far as it is known."""

    name: str
    """What facts call it, or "stated"."""
    counts: Counts
    limit: float
    window_s: float
    left: float
    """An estimate of what is left."""
    kind: Kind | None
    is_spread: bool
    """Whether requests are spread evenly, because the provider does not take the limit's share at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLimits:
    """What a pacer knows."""

    limits: tuple[KnownLimit, ...]
    requests_per_s: float | None
    """A pace learned from refusals that no known limit explains; None where there were none."""
    rests_until_ns: int | None
    """Until when nothing is sent, because the provider asked for that; None, or in the past: it did not."""
    refused: int
    """Answers of status 429 so far."""


def known(limit: Limit) -> KnownLimit:
    """What is known of a limit that answers tell of."""
    return KnownLimit(
        name=limit.name,
        counts=limit.counts,
        limit=limit.limit,
        window_s=limit.window_s,
        left=limit.level,
        kind=limit.kind,
        is_spread=bool(limit.spread.share),
    )


def known_stated(stated: Stated) -> KnownLimit:
    """What is known of a limit that the application states."""
    return KnownLimit(
        name="stated",
        counts=stated.counts,
        limit=stated.limit,
        window_s=60.0,
        left=stated.level,
        kind="bucket",
        is_spread=True,
    )
