"""Detect finalizers and the running event loop, and reset context variables where that is possible."""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar, Token
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")


def in_finalizer() -> bool:
    """Return whether this code runs in a `__del__`, or while Python closes a generator or a coroutine.

    Finalizers run at any point of any thread, even while that thread holds a lock. They must not wait for a lock, nor
    call code of plays or of the application.
    """
    if isinstance(sys.exception(), GeneratorExit):
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def is_asyncio() -> bool:
    """Return whether asyncio runs this code. Under trio it does not, and fastlane's transport is not available."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def restore(variable: ContextVar[_T], token: Token[_T]) -> bool:
    """Reset a variable by its token. Returns False if the code ends in another context than it began in.

    That happens if a coroutine is closed by other code than the task that ran it.
    """
    try:
        variable.reset(token)
    except ValueError:
        return False
    return True
