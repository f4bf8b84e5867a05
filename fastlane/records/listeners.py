"""Hooks for telemetry, which registers itself here when it is imported."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class CallTrace(Protocol):
    """The trace of one running call. `observation` is the engine's `CallState`."""

    @property
    def is_deferred(self) -> bool:
        """Whether the span of the call belongs to another tool, which may end it before the call ends."""

    def planned(self, observation: Any, body: Any) -> None:
        """Record the planned call. `body` is the body of its request."""

    def attempting(self, observation: Any, request: Any) -> None:
        """Record that an attempt is about to be sent. May add headers to its request."""

    def around_attempt(self, observation: Any, http_client: Any, request: Any) -> AbstractContextManager[None]:
        """Return the context that an attempt is sent in."""

    def progressed(self, observation: Any) -> None:
        """Record the head of a response, or a whole answer."""

    def ended(self, observation: Any) -> None:
        """Record the end of the call."""


class AssignedArm(Protocol):
    """The arm of an experiment that one call goes to."""

    @property
    def record(self) -> Any:
        """The `ExperimentRecord` of the call."""

    def over(self, call: Any) -> None:
        """Record the end of the call. Must not block or raise, because a finalizer may call it."""


class ActionTrace(Protocol):
    """The trace of one running user action."""

    def ended(self, action: Any, error: type[BaseException] | None, *, is_here: bool) -> None:
        """Record the end of the action. `is_here`: it ended in the context that it began in."""


class CallListener:
    """Makes the traces of calls and user actions. By default every method does nothing."""

    def is_active(self) -> bool:
        """Return whether calls are traced now. Must be cheap, because every call checks it."""
        return False

    def prepare(self) -> None:
        """Import what calls need. Called when a client is made, because a call may run on an event loop."""

    def trace_call(self, observation: Any) -> CallTrace | None:
        """Return the trace of a call that has begun; None for no trace."""
        return None

    def trace_action(self, action: Any, before: Any) -> ActionTrace | None:
        """Return the trace of a user action that has begun; None for no trace.

        `before`: the trace of an action that ended in another context, and whose span is still current in this one.
        """
        return None


listener = CallListener()
"""The active listener. Read this variable for each call, because it is replaced as a whole."""
