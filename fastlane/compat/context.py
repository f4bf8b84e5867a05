"""What the code inside one call knows of it: when and how it was issued."""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token
from types import FrameType
from typing import Any, TypeVar

_T = TypeVar("_T")


class Issued:
    """A call on its way from a resource of ours to `request()`."""

    __slots__ = ("body", "is_direct", "is_replaced", "ns", "placements", "telemetry_context", "written")

    def __init__(self, ns: int, *, is_direct: bool) -> None:
        self.ns = ns
        """Monotonic nanoseconds at which the application issued it."""
        self.is_direct = is_direct
        """Nobody between the resource and our client's own `post()` could change the body."""
        self.is_replaced = False
        """Another tool, such as an instrumentation, may have replaced the method of openai's that issues it."""
        self.body: dict[str, Any] | None = None
        self.written: bytes | None = None
        """The bytes of `body`, where they were written to find out whether it is plain JSON."""
        self.placements: tuple[Any, ...] | None = None
        """What the caller declared of each message, or of each part of its content; None where nothing was declared."""
        self.telemetry_context: Any = None
        """OpenTelemetry's context of the application, where another one was put into its place for this call."""


issued: ContextVar[Issued | None] = ContextVar("fastlane_issued", default=None)
"""None where a call came to `request()` without a resource of ours."""


def take_issued() -> Issued | None:
    """What is known of the call, for the one call that it belongs to: another call inside that call finds None."""
    call = issued.get()
    if call is not None:
        issued.set(None)
    return call


def in_finalizer() -> bool:
    """Whether Python is closing a generator or a coroutine here, or calling a `__del__`.

    It does so at any point of any thread, even where that thread holds a lock: nothing may wait for a lock here, and
    no code of a play or of the application may be called.
    """
    if isinstance(sys.exception(), GeneratorExit):
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def restore(variable: ContextVar[_T], token: Token[_T]) -> bool:
    """Give the variable back what it held, unless the code ends in another context than it began in: then, False.

    That is so where a coroutine is closed by somebody else than the task that ran it: its context is gone with it.
    """
    try:
        variable.reset(token)
    except ValueError:
        return False
    return True
