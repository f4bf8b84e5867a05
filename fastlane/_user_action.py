"""Application end-to-end: a user's action, from its start to its usable result, around one or many calls."""

from __future__ import annotations

import threading
from collections import deque
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from ._call import CallRecord
from ._clock import now_ns, wall_ns
from ._exceptions import ConfigurationError, FastlaneError

# An action may be a job of hours: the last calls are kept, all are counted.
REMEMBERED_CALLS = 1_000

# Re-entrant: a finaliser may end a call in the middle of this.
_counting = threading.RLock()

_current: ContextVar[user_action | None] = ContextVar("fastlane_user_action", default=None)


class user_action:  # noqa: N801 - used as a statement: `with fastlane.user_action("answer ticket"):`
    """Measure one user action: `with user_action("answer ticket") as action:`, or `async with`.

    Calls made inside belong to it, also those of tasks started inside. Actions nest: a call belongs to every action
    around it. A plain thread starts outside of any action unless it is run in a copy of the context.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"user_action takes a name such as 'answer ticket', got {name!r}")
        self.name = name
        self.parent: user_action | None = None
        self.started_wall_ns: int | None = None
        self.started_ns: int | None = None
        self.ended_ns: int | None = None
        self.error: str | None = None
        """Class name of the error that ended the action; None where it ended well or has not ended."""
        self.call_count = 0
        """Calls that were over so far, those of nested actions included."""
        self._calls: deque[CallRecord] = deque(maxlen=REMEMBERED_CALLS)
        self._token: Token[user_action | None] | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the actions around this one and its own, the outermost first."""
        return (*self.parent.path, self.name) if self.parent else (self.name,)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The last calls that were over so far, those of nested actions included."""
        return tuple(self._calls)

    @property
    def application_end_to_end_s(self) -> float | None:
        """Seconds from the start of the action to its end; None until it has ended."""
        if self.started_ns is None or self.ended_ns is None:
            return None
        return (self.ended_ns - self.started_ns) / 1e9

    def add(self, record: CallRecord) -> None:
        """Note a call that is over, here and in every action around this one."""
        action: user_action | None = self
        while action is not None:
            action._calls.append(record)
            with _counting:
                action.call_count += 1
            action = action.parent

    def __enter__(self) -> Self:
        if self.started_ns is not None:
            raise FastlaneError(f"user_action({self.name!r}) was entered before; make a new one for each action")
        self.parent = _current.get()
        self._token = _current.set(self)
        self.started_wall_ns = wall_ns()
        self.started_ns = now_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended_ns = now_ns()
        self.error = kind.__name__ if kind is not None else None
        if self._token is not None:
            try:
                _current.reset(self._token)
            except ValueError:
                # Left in another context than it was entered in (an async generator that was finalised elsewhere):
                # that context is not ours to restore.
                pass
            self._token = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def current_user_action() -> user_action | None:
    """The innermost user action around this point of the program, or None."""
    return _current.get()
