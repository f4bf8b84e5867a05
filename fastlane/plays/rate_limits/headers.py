"""Read a provider's rate limits from the headers of its responses. What makes no sense counts as absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fastlane.protocol.header_times import Wall, number, retry_after_s, until, wall_of
from fastlane.providers import facts_named
from fastlane.providers.facts import RateLimit, RateLimitFacts, ResetFormat

MAX_LIMIT = 1e12
"""A larger limit is none: some servers write 2**63 - 1 for "unlimited"."""
_MAX_RESET_S = 32 * 86_400.0
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
_PARTS_S = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
# A plain number of unknown format: the timestamps of this century are larger than any wait.
_UNIX_FROM, _UNIX_MS_FROM = 1e9, 1e12


class Announcement(NamedTuple):
    """What one response says of one limit."""

    limit: float | None
    """Of a whole window."""
    remaining: float
    reset_s: float | None
    """Seconds until the limit is whole again."""
    reset_step_s: float
    """What `reset_s` is rounded to."""


class HeaderReader:
    """Reads the headers that a provider's facts name, or those that most servers have."""

    def __init__(self, facts: RateLimitFacts | None) -> None:
        self.limits: dict[str, RateLimit] = limits_of(facts)
        self.retry_headers = retry_headers_of(facts)
        names = {"date", *self.retry_headers}
        for limit in self.limits.values():
            names.update(filter(None, (limit.limit_header, limit.remaining_header, limit.reset_header)))
        self._wanted = {name.encode(): name for name in names}

    def read(self, headers: Mapping[str, str]) -> tuple[dict[str, Announcement], Callable[[], float | None]]:
        """Return the announced limits by name, and a function that returns the seconds of `Retry-After`, or None."""
        raw = getattr(headers, "raw", None)
        found = headers
        if raw is not None:  # to look each name up in httpx2's headers costs several times as much
            wanted = self._wanted
            found = {wanted[lower]: value.decode("latin-1") for name, value in raw if (lower := name.lower()) in wanted}
        wall = wall_of(found)
        announced = {}
        for name, limit in self.limits.items():
            announcement = announcement_of(limit, found, wall)
            if announcement is not None:
                announced[name] = announcement
        return announced, lambda: retry_after_s(self.retry_headers, found, wall)


def limits_of(facts: RateLimitFacts | None) -> dict[str, RateLimit]:
    """Return the limits that responses may announce, by name: the provider's, else those of an unknown provider."""
    for one in (facts, facts_named("unknown").rate_limits):
        if one is not None:
            found = {name: fact.value for name, fact in one.limits.items() if fact.value is not None}
            if found:
                return found
    return {}


def retry_headers_of(facts: RateLimitFacts | None) -> tuple[str, ...]:
    """Return the headers in which a refusal says how long to wait, the most precise first."""
    for one in (facts, facts_named("unknown").rate_limits):
        if one is not None and one.retry_headers is not None and one.retry_headers.value:
            return one.retry_headers.value
    return ()


def announcement_of(limit: RateLimit, headers: Mapping[str, str], wall: Wall) -> Announcement | None:
    """Return what a response says of a limit; None if it says nothing, or what cannot be."""
    if limit.remaining_header is None:
        return None
    remaining = number(headers.get(limit.remaining_header))
    stated = headers.get(limit.limit_header) if limit.limit_header is not None else None
    whole = number(stated)
    if stated is not None:
        if whole is None or not 1 <= whole <= MAX_LIMIT:  # a limit below one would let nothing pass
            return None
        if limit.limit_per_s is not None and limit.window_s is not None:
            whole *= limit.window_s / limit.limit_per_s
    if remaining is None or not 0 <= remaining <= MAX_LIMIT or (whole is not None and remaining > whole):
        return None
    written = headers.get(limit.reset_header) if limit.reset_header is not None else None
    reset = reset_s(written, limit.reset_format, wall) if written is not None else None
    # Servers that do not know the reset write zero.
    if reset is not None and reset <= 0 and whole is not None and remaining < whole - 1:
        reset = None
    is_fine = written is not None and ("." in written or "ms" in written)
    return Announcement(whole, remaining, reset, 0.001 if is_fine else 1.0)


def reset_s(written: str, form: ResetFormat | None, wall: Wall) -> float | None:
    """Return the seconds until a limit is whole again; None if the text does not say so."""
    written = written.strip()
    value = None if written.endswith("s") else number(written)
    seconds: float | None
    if value is None:
        # A server that is known to write numbers may have begun to write durations.
        seconds = _duration(written)
        if seconds is None:
            seconds = until(written, wall)
    elif form == "milliseconds":
        seconds = value / 1e3
    elif form == "unix_milliseconds" or (form is None and value >= _UNIX_MS_FROM):
        seconds = value / 1e3 - wall()
    elif form == "unix" or (form is None and value >= _UNIX_FROM):
        seconds = value - wall()
    else:
        seconds = value
    return seconds if seconds is not None and -1 <= seconds <= _MAX_RESET_S else None


def _duration(written: str) -> float | None:
    found = _DURATION.match(written)
    if found is None or not written:
        return None
    return sum(float(part) * unit for part, unit in zip(found.groups(), _PARTS_S, strict=True) if part is not None)
