"""How urgent the calls of a block of the program are: `with fastlane.urgency("background"):`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Self, TypeVar, cast

from fastlane.engine.call import attached
from fastlane.errors import ConfigurationError
from fastlane.records.plays import LEVELS, CallUrgency, Level

_F = TypeVar("_F")


@dataclass(frozen=True, slots=True)
class _Block(CallUrgency):
    """A block that was entered."""

    around: Mapping[type, Any]
    """What was attached to calls before."""
    by: object
    """What is to leave it."""


class urgency:  # noqa: N801 - used as a statement: `with fastlane.urgency("background"):`
    """Say how urgent calls are: `with urgency("background"):`, `async with`, or `@urgency("background")`.

    Levels: "interactive" (a user waits for the answer), "background" (it is wanted soon), "offline" (at some time).
    They count for clients that have the `Urgency` play. Blocks nest, and the innermost counts. asyncio's tasks
    and `asyncio.to_thread` go on with the level. Threads do not: start them with `contextvars.copy_context().run`. One
    object may be entered any number of times, by several
    threads and tasks at once. Raises ConfigurationError for another level.
    """

    def __init__(self, level: Level) -> None:
        if level not in LEVELS:
            raise ConfigurationError(f'urgency() takes "interactive", "background" or "offline", got {level!r:.80}')
        self.level: Level = level

    def __enter__(self) -> Self:
        around = attached.get()
        attached.set({**around, CallUrgency: _Block(self.level, around, self)})
        return self

    def __exit__(self, *_: object) -> None:
        # Left in another context than it was entered in (an async generator that was finalised elsewhere), there is
        # nothing to restore: that context has gone.
        block = attached.get().get(CallUrgency)
        if isinstance(block, _Block) and block.by is self:
            attached.set(block.around)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def __call__(self, function: _F) -> _F:
        """Decorate a function or a coroutine function: what it calls has this level."""
        inner: Any = function
        if isgeneratorfunction(inner) or isasyncgenfunction(inner):
            raise ConfigurationError(
                f"@urgency decorates functions and coroutine functions, and {inner.__qualname__} is a generator: its "
                "body runs in the context of its consumer; use `with urgency(...)` around that"
            )
        within: Any
        if iscoroutinefunction(inner):

            @wraps(inner)
            async def within(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await inner(*args, **kwargs)
        else:

            @wraps(inner)
            def within(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return inner(*args, **kwargs)

        return cast(_F, within)
