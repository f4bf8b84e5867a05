"""Read times and numbers in the headers of responses. What makes no sense counts as absent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeAlias

from .._clock import wall_ns

MAX_RETRY_S = 86_400.0
"""A `Retry-After` of more than a day is ignored."""

_JITTER, _MAX_JITTER_S = 0.25, 5.0

Wall: TypeAlias = Callable[[], float]
"""Seconds since 1970."""


def wall_of(headers: Mapping[str, str]) -> Wall:
    """Return the provider's clock, by the `Date` of its response: ours may differ."""

    def wall() -> float:
        written = headers.get("date")
        if written is not None:
            try:
                return parsedate_to_datetime(written).timestamp()
            except (ValueError, TypeError, IndexError, OverflowError):
                pass
        return wall_ns() / 1e9

    return wall


def retry_after_s(names: tuple[str, ...], headers: Mapping[str, str], wall: Wall) -> float | None:
    """Return the seconds that a refusal asks to wait; None if it says none that can be meant."""
    for name in names:
        written = headers.get(name)
        if written is None:
            continue
        seconds = number(written)
        if seconds is not None and name.endswith("-ms"):
            seconds /= 1e3
        if seconds is None:
            seconds = until(written, wall)
        if seconds is not None and 0 <= seconds <= MAX_RETRY_S:
            return seconds
    return None


def jitter_s(wait_s: float, random: Callable[[], float]) -> float:
    """Return the seconds to add to a pause that a provider has announced: up to a quarter of it, at most 5 s.

    `random` returns a number from [0, 1). All that were refused together got the same pause, and would be back at once.
    See "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. The announced pause stays the minimum.
    """
    return random() * min(_MAX_JITTER_S, _JITTER * wait_s)


def number(written: str | None) -> float | None:
    """Return a header's number; None if it is none, or not finite."""
    if written is None or len(written) > 40:
        return None
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def until(written: str, wall: Wall) -> float | None:
    """Return the seconds until a time, as RFC 3339 or HTTP writes it."""
    if len(written) > 40:
        return None
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        try:
            moment = parsedate_to_datetime(written)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0.0, moment.timestamp() - wall())
    except (OverflowError, ValueError, OSError):
        return None
