"""What follows calls and user actions while they run: telemetry registers itself here when it is imported."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class CallTrace(Protocol):
    """What is written down of one call while it runs. `observation` is what the engine knows of the call."""

    @property
    def is_deferred(self) -> bool:
        """Whether the call's span is another tool's, which may end before the call does."""

    def planned(self, observation: Any, body: Any) -> None:
        """The plays have planned the call; `body` is the request's."""

    def attempting(self, observation: Any, request: Any) -> None:
        """An attempt is about to be sent; headers may be added to its request."""

    def around_attempt(self, observation: Any, http_client: Any, request: Any) -> AbstractContextManager[None]:
        """Return the context that an attempt is sent in."""

    def around_stock(self) -> AbstractContextManager[None]:
        """Return the context that openai's own code runs in, so that no other tool makes a second span of the call."""

    def progressed(self, observation: Any) -> None:
        """The head of a response has arrived."""

    def answered(self, observation: Any, answer: Any) -> None:
        """An answer has been read."""

    def ended(self, observation: Any) -> None:
        """The call is over."""


class AssignedArm(Protocol):
    """The arm of an experiment that one call goes to."""

    @property
    def record(self) -> Any:
        """What the call's record says of the experiment."""

    def over(self, call: Any) -> None:
        """The call is over. Neither waits nor raises: a finaliser may call this in the middle of anything."""


class ActionTrace(Protocol):
    """What is written down of one user action while it lasts."""

    def ended(self, action: Any, error: type[BaseException] | None, *, is_here: bool) -> None:
        """The action is over. `is_here`: in the context that it began in."""


class CallListener:
    """Follows calls and user actions; every method does nothing by default."""

    def is_active(self) -> bool:
        """Return whether calls are to be followed now. Every call asks, so this must be cheap."""
        return False

    def prepare(self) -> None:
        """Load what calls need. Called when a client is made, because a call may run on an event loop."""

    def trace_call(self, observation: Any) -> CallTrace | None:
        """Return what follows a call that has begun."""
        return None

    def trace_action(self, action: Any, before: Any) -> ActionTrace | None:
        """Return what follows a user action that has begun.

        `before`: the trace of one that has ended elsewhere, and is still the current one in this context.
        """
        return None

    def around_replaced(self, client: Any, issued: Any) -> tuple[AbstractContextManager[None], bool]:
        """Return the context for a method of openai's that another tool has replaced, and whether the span is ours."""
        return nullcontext(), False

    def beneath_official(self, method: Any) -> Any | None:
        """Return the method that the official instrumentation has replaced; None where another tool did as well."""
        return None


listener = CallListener()
"""The one in force. Look it up here for each call: it is replaced as a whole."""
