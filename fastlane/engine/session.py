"""One play's part in one call: the hooks that the flow of the call runs through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ..compat.responses import Attempt
    from ..records.record import CallRecord, Outcome
    from ..records.section import RecordSection
    from ..records.usage import Usage
    from .call import Call
    from .call_state import AttemptState
    from .effects import Flow

SendCall = Callable[["Call"], "Flow"]
"""Sends a call, with its retries. Returns a `Reply` whose `result` the caller gets; raises openai's errors."""

SendAttempt = Callable[["Attempt"], "Flow"]
"""Sends one attempt. Returns a `Reply` of any status; raises openai's errors of connections."""


class Stop:
    """What `Session.on_event` returns to end the stream after an event."""

    def __init__(self, closing: Callable[[], list[dict[str, Any]]] = list) -> None:
        """`closing` returns the events, as JSON, that end the stream in good order; it may raise openai's errors."""
        self.closing = closing
        self.usage: Any = None
        """What the answer has taken, estimated, where the provider has not said it: known once `closing` was called."""


STOP: Final = Stop()


class Session:
    """One play's part in one call. Every hook is optional; the flow calls only those that a subclass defines.

    A call that goes to several upstreams has a session of the play for each, closed when that upstream's part is over;
    only a play that says so itself (`Play.spans_upstreams`) has one for all of them, which stands outside the others.

    The wrapping hooks get a function that returns a flow, and return one: write a generator, run what it wraps with
    `yield from`, and yield effects (`fastlane.engine.effects`) for everything that waits. A wrapper of a lower stage
    stands outside. What a hook raises besides is logged, and the play is left out of that step.
    """

    def around_call(self, send: SendCall) -> SendCall:
        """Wrap the call, with its planning and its retries. It may be sent again, changed."""
        return send

    def plan(self, call: Call) -> Call:
        """Rewrite the request, for the upstream that it goes to. Pure; called again when the call is sent again."""
        return call

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Wrap one attempt. It is over while a retry waits."""
        return send

    def on_request(self, request: Any) -> Any:
        """Return the request to send, for example with other bytes in its body."""
        return request

    def on_refused(self, error: Any) -> bool:
        """Take back what this play added, if the provider refused that (`openai.APIStatusError`).

        True: the call is planned and sent again at once.
        """
        return False

    def on_event(self, event: Any) -> Stop | None:
        """Look at a decoded event of the stream. STOP ends the stream after it."""

    def close(self, outcome: CallOutcome) -> RecordSection | None:
        """The call and its stream have ended. Returns the play's section of the record, or None."""


class CallOutcome(NamedTuple):
    """How a call has ended, or its part at one upstream."""

    ending: Outcome
    """Such as "completed" or "failed"."""
    ended_ns: int
    """When it ended: monotonic nanoseconds."""
    duration_s: float
    """Seconds until the last token, or the end of an answer without tokens."""
    error: str | None
    """The class name of the error that the caller got."""
    status_code: int | None
    """The status of the last response; None where none came."""
    attempts: Sequence[AttemptState]
    """The attempts at this upstream, the last one at the end."""
    usage: Usage
    """The tokens that the provider counted."""
    finish_reason: str | None
    """The provider's word for why the answer ended."""
    service_tier: str | None
    """The tier that served the call, by the provider's own word."""
    cache_reason: str | None
    """The provider's own word for why it has not read the prompt from its cache."""
    refused: tuple[str, ...]
    """The fields of `Call.optional` that the provider refused, and without which the call has succeeded."""
    make_record: Callable[[], CallRecord]

    @property
    def record(self) -> CallRecord:
        """The record of the call, without the sections of sessions. It is made when it is asked for."""
        return self.make_record()
