"""What is said to a call that is not let in."""

from __future__ import annotations

import math

from fastlane.errors import QueueFullError, QueueTimeoutError


def full(ahead: int, most: int, expected_s: float | None) -> QueueFullError:
    """Too many wait already."""
    return QueueFullError(
        f"not sent: {ahead:,} calls wait for their place, and max_queued is {most:,}; {_expected(expected_s)}: send "
        "fewer at once, or let more wait",
        expected_wait_s=expected_s,
        queued=ahead,
    )


def too_late(what: str, expected_s: float | None, most_wait_s: float, ahead: int) -> QueueTimeoutError:
    """Its place would come, or came, too late."""
    return QueueTimeoutError(
        f"not sent: {what}; it may wait {most_wait_s:.3g} s, {ahead:,} calls were ahead of it when it came, and "
        f"{_expected(expected_s)}: send fewer at once, or give it more time",
        expected_wait_s=expected_s,
        queued=ahead,
    )


def _expected(expected_s: float | None) -> str:
    if expected_s is None or not math.isfinite(expected_s):
        return "when its place would come is not known, because too few calls are over so far"
    return f"its place would come after about {expected_s:.3g} s"
