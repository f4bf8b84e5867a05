"""What the headers of an answer say of limits, read as facts say it: whatever makes no sense was not said."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from fastlane._clock import wall_ns
from fastlane.providers import facts_named
from fastlane.providers.facts import RateLimit, RateLimits, ResetFormat

# Larger ones are not limits of anything: 2**63 - 1 is what some servers write for "none".
MOST_LIMIT = 1e12
_MOST_RESET_S = 32 * 86_400.0
MOST_RETRY_S = 86_400.0
"""A refusal for longer than a day is none that waiting helps with."""
MOST_WAIT_S = 60.0
"""The longest rest, whatever the provider or another replica asks for, and the longest time without any call while
calls wait: then one call finds out. openai's own retries keep to a `Retry-After` of one minute at most, or of two in
newer versions."""
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
_PARTS_S = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
# What a plain number means where nobody says: moments of this century are larger than any wait.
_UNIX_FROM, _UNIX_MS_FROM = 1e9, 1e12


Wall: TypeAlias = Callable[[], float]
"""Seconds since 1970."""


class Said(NamedTuple):
    """What one answer says of one limit."""

    limit: float | None
    """Of a whole window."""
    remaining: float
    reset_s: float | None
    """Seconds until it is whole again."""
    step_s: float
    """To what `reset_s` is rounded."""


def wanted_of(limits: Iterable[RateLimit], retry_headers: tuple[str, ...]) -> dict[bytes, str]:
    """Return the names of all headers that are read."""
    names = {"date", *retry_headers}
    for limit in limits:
        names.update(
            name for name in (limit.limit_header, limit.remaining_header, limit.reset_header) if name is not None
        )
    return {name.encode(): name for name in names}


def found_in(headers: Mapping[str, str], wanted: Mapping[bytes, str]) -> Mapping[str, str]:
    """Return the headers that are read, by names in lower case: to look each up costs several times as much."""
    raw = getattr(headers, "raw", None)
    if raw is None:
        return headers
    return {wanted[lower]: value.decode("latin-1") for name, value in raw if (lower := name.lower()) in wanted}


def wall_of(headers: Mapping[str, str]) -> Wall:
    """Return the provider's own clock, by the date of its answer: ours may be another time."""

    def wall() -> float:
        written = headers.get("date")
        if written is not None:
            try:
                return parsedate_to_datetime(written).timestamp()
            except (ValueError, TypeError, IndexError, OverflowError):
                pass
        return wall_ns() / 1e9

    return wall


def limits_in(facts: RateLimits | None) -> dict[str, RateLimit]:
    """Return the limits that answers may tell of, by name: those of the facts, else those of an unknown provider."""
    for one in (facts, facts_named("unknown").rate_limits):
        if one is not None:
            found = {name: fact.value for name, fact in one.limits.items() if fact.value is not None}
            if found:
                return found
    return {}


def retry_headers_in(facts: RateLimits | None) -> tuple[str, ...]:
    """Return the headers in which a refusal says how long to wait, the most precise first."""
    for one in (facts, facts_named("unknown").rate_limits):
        if one is not None and one.retry_headers is not None and one.retry_headers.value:
            return one.retry_headers.value
    return ()


def said(limit: RateLimit, headers: Mapping[str, str], wall: Wall) -> Said | None:
    """Return what an answer says of a limit; None where it says nothing that can be so."""
    if limit.remaining_header is None:
        return None
    remaining = number(headers.get(limit.remaining_header))
    stated = headers.get(limit.limit_header) if limit.limit_header is not None else None
    whole = _same(stated)
    if stated is not None:
        if whole is None or not 1 <= whole <= MOST_LIMIT:  # less than one of anything would let nothing pass
            return None
        if limit.limit_per_s is not None and limit.window_s is not None:
            whole *= limit.window_s / limit.limit_per_s
    if remaining is None or not 0 <= remaining <= MOST_LIMIT or (whole is not None and remaining > whole):
        return None
    written = headers.get(limit.reset_header) if limit.reset_header is not None else None
    reset = reset_s(written, limit.reset_format, wall) if written is not None else None
    # Zero is when a limit is whole, and what is written where nothing is known.
    if reset is not None and reset <= 0 and whole is not None and remaining < whole - 1:
        reset = None
    fine = written is not None and ("." in written or "ms" in written)
    return Said(whole, remaining, reset, 0.001 if fine else 1.0)


def retry_after_s(names: tuple[str, ...], headers: Mapping[str, str], wall: Wall) -> float | None:
    """Return the seconds that a refusal asks to wait; None where it says none that can be meant."""
    for name in names:
        written = headers.get(name)
        if written is None:
            continue
        seconds = number(written)
        if seconds is not None and name.endswith("-ms"):
            seconds /= 1e3
        if seconds is None:
            seconds = _until(written, wall)
        if seconds is not None and 0 <= seconds <= MOST_RETRY_S:
            return seconds
    return None


def reset_s(written: str, form: ResetFormat | None, wall: Wall) -> float | None:
    """Return the seconds until a limit is whole again; None where the text does not say so."""
    written = written.strip()
    value = None if written.endswith("s") else number(written)
    seconds: float | None
    if value is None:
        # A server that is said to write numbers may write durations since.
        seconds = _duration(written)
        if seconds is None:
            seconds = _until(written, wall)
    elif form == "milliseconds":
        seconds = value / 1e3
    elif form == "unix_milliseconds" or (form is None and value >= _UNIX_MS_FROM):
        seconds = value / 1e3 - wall()
    elif form == "unix" or (form is None and value >= _UNIX_FROM):
        seconds = value - wall()
    else:
        seconds = value
    return seconds if seconds is not None and -1 <= seconds <= _MOST_RESET_S else None


@lru_cache(maxsize=256)
def _same(written: str | None) -> float | None:
    """A header's number, where it is nearly always the same."""
    return number(written)


def number(written: str | None) -> float | None:
    """Return a header's number; None where it is none, or not finite."""
    if written is None or len(written) > 40:
        return None
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _duration(written: str) -> float | None:
    # Most have one part.
    for unit, unit_s in (("ms", 0.001), ("s", 1.0)):
        if written.endswith(unit) and (amount := written[: -len(unit)]).isascii() and amount.isdecimal():
            return float(amount) * unit_s
    found = _DURATION.match(written)
    if found is None or not written:
        return None
    return sum(float(part) * unit for part, unit in zip(found.groups(), _PARTS_S, strict=True) if part is not None)


def _until(written: str, wall: Wall) -> float | None:
    """Seconds until a moment, as RFC 3339 or as HTTP writes it; the two clocks need not agree."""
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
