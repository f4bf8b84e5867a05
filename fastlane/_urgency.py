"""How urgent the calls of a block of the program are: `with fastlane.urgency("background"):`."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import TracebackType
from typing import Any, Self, TypeVar

from ._context import restore
from ._exceptions import ConfigurationError
from ._urgency_records import LEVELS, Level
from ._urgency_threads import follow_threads

_F = TypeVar("_F")

_current: ContextVar[Level | None] = ContextVar("fastlane_urgency", default=None)


def checked_level(level: Any, what: str) -> Level:
    """A level of urgency as it was given. Raises ConfigurationError for anything else; `what` takes it."""
    if level not in LEVELS:
        raise ConfigurationError(f'{what} takes "interactive", "background" or "offline", got {level!r:.80}')
    return level  # type: ignore[no-any-return]


class urgency(ContextDecorator):  # noqa: N801 - used as a statement: `with fastlane.urgency("background"):`
    """Say how urgent calls are: `with urgency("background"):`, `async with`, or `@urgency("background")`.

    Levels: "interactive" (somebody waits for the answer), "background" (it is wanted soon), "offline" (at some time).
    They say something to clients that have the `Urgency` play. Blocks nest, and the innermost counts. The tasks and
    threads that are started inside go on with the level: asyncio's tasks, `threading.Thread` and `Timer`, and what is
    submitted to a `ThreadPoolExecutor`. Raises ConfigurationError for another level.
    """

    def __init__(self, level: Level) -> None:
        self.level: Level = checked_level(level, "urgency()")
        self._tokens: list[Token[Level | None]] = []

    def __enter__(self) -> Self:
        follow_threads(_current)
        self._tokens.append(_current.set(self.level))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Left in another context than it was entered in (an async generator that was finalised elsewhere), there is
        # nothing to restore: that context has gone.
        if self._tokens:
            restore(_current, self._tokens.pop())

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _recreate_cm(self) -> urgency:
        return urgency(self.level)  # each call of a decorated function has a block of its own

    def __call__(self, function: _F) -> _F:  # type: ignore[override]
        """Decorate a function or a coroutine function: what it calls has this level."""
        level = self.level
        inner: Any = function
        if isgeneratorfunction(inner) or isasyncgenfunction(inner):
            raise ConfigurationError(
                f"@urgency decorates functions and coroutine functions, and {inner.__qualname__} is a generator: its "
                "body runs in the context of whoever asks it for the next value; use `with urgency(...)` around that"
            )
        if not iscoroutinefunction(inner):
            return super().__call__(inner)  # type: ignore[return-value]

        @wraps(inner)
        async def within(*args: Any, **kwargs: Any) -> Any:
            with urgency(level):
                return await inner(*args, **kwargs)

        return within  # type: ignore[return-value]


def current_urgency() -> Level | None:
    """The level of the innermost `urgency()` block around this point of the program; None outside of any."""
    return _current.get()
