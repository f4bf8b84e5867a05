"""User actions: the application's end-to-end time around one or many calls."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import cache
from typing import TYPE_CHECKING, Self

from .._clock import now_ns, wall_ns
from .._fork import new_rlock
from ..compat.context import in_finalizer, restore
from ..errors import ConfigurationError, FastlaneError
from ..records import listeners
from ..records.record import CallRecord

if TYPE_CHECKING:
    from ..records.listeners import ActionTrace
    from .pipeline import Pipeline

# An action may last hours: all calls are counted, and the last ones are kept.
REMEMBERED_CALLS = 1_000

# Re-entrant: a finalizer may end a call while this thread holds it.
_counting = new_rlock()

current_action: ContextVar[user_action | None] = ContextVar("fastlane_user_action", default=None)


class user_action:  # noqa: N801 - used as a statement: `with fastlane.user_action("answer ticket"):`
    """Measure one user action: `with user_action("answer ticket") as action:`, or `async with`.

    Calls made inside belong to it, also those of tasks started inside. Actions nest: a call belongs to every action
    around it. A plain thread starts outside of any action unless it is run in a copy of the context.
    Raises ConfigurationError for a name that is not a string or is empty, and FastlaneError if it is entered twice.
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
        """Class name of the error that ended the action; None if it succeeded or has not ended."""
        self._call_count = 0
        self._unreported: deque[Pipeline] = deque()
        self._calls: deque[CallRecord] = deque(maxlen=REMEMBERED_CALLS)
        self._token: Token[user_action | None] | None = None
        self._span: ActionTrace | None = None
        self._stale_trace: ActionTrace | None = None
        """Its trace, if its span is still the current one in the context that it began in."""
        self._is_elsewhere = False
        """Whether it ended in another context than it began in."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the enclosing actions and its own, outermost first."""
        return (*self.parent.path, self.name) if self.parent else (self.name,)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The records of the last 1,000 calls that have ended, those of nested actions included."""
        self._catch_up()
        return tuple(self._calls)

    @property
    def call_count(self) -> int:
        """The number of calls that have ended, those of nested actions included."""
        self._catch_up()
        return self._call_count

    def expect(self, pipeline: Pipeline) -> None:
        """Note that the pipeline has a pending report of a call in this action, which a finalizer has ended."""
        action: user_action | None = self
        while action is not None:
            action._unreported.append(pipeline)
            action = action.parent

    def _catch_up(self) -> None:
        """Report the pending calls that finalizers have ended."""
        while self._unreported and not in_finalizer():
            with suppress(IndexError):  # another thread was faster
                self._unreported.popleft().report_abandoned(wait=True)

    @property
    def application_end_to_end_s(self) -> float | None:
        """Seconds from the start of the action to its end; None until it has ended."""
        if self.started_ns is None or self.ended_ns is None:
            return None
        return (self.ended_ns - self.started_ns) / 1e9

    def add(self, record: CallRecord) -> None:
        """Add a call that has ended to this action and every enclosing one."""
        action: user_action | None = self
        while action is not None:
            action._calls.append(record)
            with _counting:
                action._call_count += 1
            action = action.parent

    def __enter__(self) -> Self:
        if self.started_ns is not None:
            raise FastlaneError(f"user_action({self.name!r}) was entered before; make a new one for each action")
        before = current_action.get()
        self.parent = _without_stale(before)
        self._token = current_action.set(self)
        self.started_wall_ns = wall_ns()
        self.started_ns = now_ns()
        if listeners.listener.is_active():
            self._span = _start_trace(self, None if before is None else before._stale_trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.ended_ns = now_ns()
        self.error = kind.__name__ if kind is not None else None
        # If it is exited in another context than it was entered in (an async generator finalized elsewhere), the action
        # ends all the same, but that context cannot be restored.
        is_here = self._token is not None and restore(current_action, self._token)
        self._token = None
        self._is_elsewhere = not is_here
        span, self._span = self._span, None
        if span is not None:
            self._stale_trace = None if is_here else span
            try:
                span.ended(self, kind, is_here=is_here)
            except Exception as failed:  # noqa: BLE001 - telemetry must not break an action
                _log_once(type(failed).__name__)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.__exit__(kind)


def current_user_action() -> user_action | None:
    """Return the innermost user action of the current context, or None."""
    return _without_stale(current_action.get())


def _without_stale(action: user_action | None) -> user_action | None:
    # An action that was exited in another context stays current in the context where it was entered: skip it. (A task
    # of the block that outlives it still belongs to it.)
    while action is not None and action._is_elsewhere:
        action = action.parent
    return action


def _start_trace(action: user_action, left: ActionTrace | None) -> ActionTrace | None:
    try:
        return listeners.listener.trace_action(action, left)
    except Exception as error:  # noqa: BLE001 - telemetry must not break an action
        _log_once(type(error).__name__)
        return None


@cache
def _log_once(error: str) -> None:
    logging.getLogger("fastlane").warning("a user action's span could not be made: %s (logged once)", error)
