"""What the code inside one call knows of it: when it was issued, and who observes it."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ._observation import Observation

_T = TypeVar("_T")

issued_ns: ContextVar[int] = ContextVar("fastlane_issued_ns", default=0)
"""Monotonic nanoseconds; 0 where the call came to `request()` without a resource of ours."""

current_observation: ContextVar[Observation | None] = ContextVar("fastlane_observation", default=None)
"""The call that the running `request()` is about, for the attempts inside."""


def take_issued_ns() -> int:
    """The stamp, for the one call that it belongs to: another call inside that call finds 0."""
    issued = issued_ns.get()
    if issued:
        issued_ns.set(0)
    return issued


def restore(variable: ContextVar[_T], token: Token[_T]) -> None:
    """Give the variable back what it held, unless the code ends in another context than it began in.

    That is so where a coroutine is closed by somebody else than the task that ran it: its context is gone with it.
    """
    try:
        variable.reset(token)
    except ValueError:
        pass
