"""Whether a finalizer runs, and context variables that are restored wherever that is possible."""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")


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
