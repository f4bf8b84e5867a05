"""The base class of sessions: the hooks by which a play takes part in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ..compat.responses import Reply, RequestAttempt
    from ..records.record import CallRecord, Outcome
    from ..records.section import RecordSection
    from ..records.usage import Usage
    from .call import Call
    from .call_state import AttemptState, CallState
    from .effects import Flow

SendCall = Callable[["Call"], "Flow"]
"""Sends a call, with its retries. Returns a `Reply`, whose `result` is what the caller gets; raises openai's errors."""

SendAttempt = Callable[["RequestAttempt"], "Flow"]
"""Sends one attempt. Returns a `Reply` of any status; raises openai's connection errors."""

MakeSection = Callable[["CallOutcome"], "RecordSection | None"]
"""Makes a play's record section when the record is read. Its error is logged."""


class Stop:
    """What `Session.on_event` returns to end the stream after an event."""

    def __init__(self, closing: Callable[[], list[dict[str, Any]]] = list) -> None:
        """`closing` returns the events, as JSON, that end the stream as its provider would; may raise openai errors."""
        self.closing = closing
        self.usage: Any = None
        """The estimated usage as a mapping, set by `closing`; None if the provider reports the usage."""


STOP: Final = Stop()


class Continuation(NamedTuple):
    """What replaces the rest of a broken stream: the result of the flow that `Session.on_broken` returns."""

    reply: Reply
    """A reply whose stream has not been read."""
    adapt: Callable[[Any], Any]
    """Changes each event of that stream for the caller; returns None to drop it."""


class Session:
    """One play's part in one call. Every hook is optional; the flow calls only those that a subclass defines.

    A call to several upstreams has one session for each upstream, which is closed when that part of the call ends. A
    play with `spans_upstreams` has one session for the whole call, and its hooks wrap those of the others.

    The wrapping hooks take a function that returns a flow, and return one. Write a generator: run the wrapped function
    with `yield from`, and yield effects (`fastlane.engine.effects`) for everything that waits. Hooks are synchronous
    and run in the thread or task of the call. The error of a hook is logged, and the hook is skipped; an error that the
    generator of a wrapping hook raises is the error of the call.
    """

    def around_call(self, send: SendCall) -> SendCall:
        """Wrap the call, its planning and retries included. The wrapper may send it again, changed."""
        return send

    def plan(self, call: Call) -> Call:
        """Return the call as it is to be sent to its upstream. Pure; called again when the call is sent again."""
        return call

    def around_attempt(self, send: SendAttempt) -> SendAttempt:
        """Wrap one attempt. The attempt has ended when the pause before a retry begins."""
        return send

    def on_request(self, request: Any) -> Any:
        """Return the request to send, for example with other bytes in its body."""
        return request

    def on_refused(self, error: Any) -> bool:
        """Take back what this play added, if the provider refused it. `error` is an `openai.APIStatusError`.

        Return True to plan and send the call again at once.
        """
        return False

    def on_event(self, event: Any) -> Stop | None:
        """Handle a decoded event of the stream. Return STOP, or a `Stop`, to end the stream after it."""

    def on_broken(self, error: Exception) -> Flow | None:
        """Handle the break of a stream that the caller reads: an error while reading it, or its end amid the answer.

        Return a flow, or None to leave the break to other sessions and the error to the caller. The flow returns a
        `Continuation`, or None to end the stream without an error, or raises an error for the caller. It may send the
        call again, by the function that `around_call` was given.
        """

    def close(self, outcome: CallOutcome) -> RecordSection | MakeSection | None:
        """Handle the end of the call and its stream. Return the play's record section, or None.

        Return a function to have it called with the outcome when the record is first read, which for most calls is
        never. It must not hold on to `outcome`.
        """


class CallOutcome:
    """How a call, or its part at one upstream, has ended."""

    __slots__ = ("_state",)

    def __init__(self, state: CallState) -> None:
        self._state = state

    @property
    def ending(self) -> Outcome:
        """Such as "completed" or "failed"."""
        return self._state.outcome or "failed"

    @property
    def ended_ns(self) -> int:
        """When it ended: monotonic nanoseconds."""
        return self._state.ended_ns

    @property
    def duration_s(self) -> float:
        """Seconds from issue to the last token, or to the end of an answer without tokens."""
        state = self._state
        token_ns = state.answer.token_ns
        return ((token_ns[-1] if token_ns else state.ended_ns) - state.started_ns) / 1e9

    @property
    def error(self) -> str | None:
        """The class name of the error raised to the caller."""
        return self._state.error

    @property
    def status_code(self) -> int | None:
        """The status of the last response; None if there was none."""
        attempts = self._state.attempts
        return attempts[-1].status_code if attempts else None

    @property
    def attempts(self) -> Sequence[AttemptState]:
        """The attempts at this upstream, in order."""
        return self._state.attempts

    @property
    def usage(self) -> Usage:
        """The tokens that the provider counted."""
        return self._state.usage

    @property
    def finish_reason(self) -> str | None:
        """The finish reason as the provider sent it."""
        return self._state.answer.finish_reason

    @property
    def service_tier(self) -> str | None:
        """The service tier that the provider reports."""
        return self._state.answer.service_tier

    @property
    def cache_reason(self) -> str | None:
        """Why the provider's cache was missed, as the provider reports it."""
        return self._state.answer.cache_reason

    @property
    def refused(self) -> tuple[str, ...]:
        """The fields of `Call.optional` that the provider refused and without which the call succeeded."""
        return self._state.refused

    @property
    def record(self) -> CallRecord:
        """The record of the call, without the sections of sessions. Made on each access."""
        return self._state.make_record()
