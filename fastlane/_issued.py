"""When the application issued the call that is being built: known before `request()`, where a call is observed."""

from __future__ import annotations

from contextvars import ContextVar

issued_ns: ContextVar[int] = ContextVar("fastlane_issued_ns", default=0)
"""Monotonic nanoseconds; 0 where the call came to `request()` without a resource of ours."""


def take_issued_ns() -> int:
    """The stamp, for the one call that it belongs to: another call inside that call finds 0."""
    issued = issued_ns.get()
    if issued:
        issued_ns.set(0)
    return issued
