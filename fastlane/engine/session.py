"""One play's part in one call: the hooks that the flow of the call runs through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..errors import PlayError

if TYPE_CHECKING:
    from ..compat.retry import Attempt
    from ..records.record import CallRecord, Outcome
    from ..records.section import RecordSection
    from ..records.usage import Usage
    from .call import Call
    from .call_state import AttemptState
    from .effects import Flow
    from .pipeline import Pipeline
    from .play import Play

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
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


@lru_cache(maxsize=256)  # an application's classes come and go
def _hooks_of(session: Any) -> frozenset[str]:
    names = [name for name in vars(Session) if not name.startswith("_")]
    return frozenset(name for name in names if getattr(session, name) is not getattr(Session, name))


class Sessions:
    """The sessions of one call at one upstream, outermost first."""

    __slots__ = ("_of_call", "_of_upstream", "_pipeline", "having")

    def __init__(
        self,
        pipeline: Pipeline | None = None,
        of_call: tuple[tuple[Play, Session], ...] = (),
        of_upstream: tuple[tuple[Play, Session], ...] = (),
    ) -> None:
        """`of_call`: those of the whole call, which the parts at other upstreams have as well."""
        self._pipeline = pipeline
        self._of_call = of_call
        self._of_upstream = of_upstream
        self.having: dict[str, list[tuple[Play, Session]]] = {}
        """The sessions that define a hook, with their plays, by the hook's name and in the order of their stages."""
        for pair in sorted((*of_call, *of_upstream), key=_stage) if of_call else of_upstream:
            for hook in _hooks_of(type(pair[1])):  # type: ignore[arg-type]
                self.having.setdefault(hook, []).append(pair)

    def __bool__(self) -> bool:
        return bool(self.having)

    def at_upstream(self, opened: tuple[tuple[Play, Session], ...]) -> Sessions:
        """Return the sessions at an upstream: those of the whole call, and these."""
        return Sessions(self._pipeline, self._of_call, opened)

    def wrap_call(self, send: Any) -> Any:
        """Wrap a function that sends the call to the upstream that it names."""
        return self._wrap("around_call", send, self._of_call)

    def wrap_upstream(self, send: Any) -> Any:
        """Wrap a function that sends the call to this upstream."""
        return self._wrap("around_call", send, self._of_upstream)

    def wrap_attempt(self, send: Any) -> Any:
        """Wrap a function that sends an attempt."""
        return self._wrap("around_attempt", send)

    def _wrap(self, hook: str, send: Any, among: tuple[tuple[Play, Session], ...] | None = None) -> Any:
        for play, session in reversed(self.having.get(hook, [])):
            if among is not None and (play, session) not in among:
                continue
            try:
                send = getattr(session, hook)(send)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._went_wrong(play, hook, error)
        return send

    def on_request(self, play: Play, session: Session, request: Any) -> Any:
        """Return the request that a session wants to be sent."""
        try:
            return session.on_request(request)
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self._went_wrong(play, "on_request", error)
            return request

    def on_refused(self, error: Any) -> bool:
        """Whether a session has taken back what the provider refused."""
        taken_back = False
        for play, session in self.having.get("on_refused", ()):
            try:
                taken_back = session.on_refused(error) or taken_back
            except Exception as raised:  # noqa: BLE001 - a play must not break a call
                self._went_wrong(play, "on_refused", raised)
        return taken_back

    def close(self, outcome: CallOutcome, *, quietly: bool) -> tuple[RecordSection, ...]:
        """Close all sessions. Returns their sections of the record."""
        return self._close(self.having.get("close", ()), outcome, quietly=quietly)

    def close_upstream(self, outcome: CallOutcome) -> None:
        """Close the sessions of this upstream: another one has brought the answer."""
        closing = [pair for pair in self.having.get("close", ()) if pair in self._of_upstream]
        self._close(closing, outcome, quietly=True)

    def _close(
        self, opened: Sequence[tuple[Play, Session]], outcome: CallOutcome, *, quietly: bool
    ) -> tuple[RecordSection, ...]:
        sections, to_raise = [], None
        for play, session in opened:
            try:
                section = session.close(outcome)
                if section is not None:
                    sections.append(section)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                try:
                    self._went_wrong(play, "close", error, quietly=quietly)
                except PlayError as raised:  # once the others are closed as well
                    to_raise = raised
        if to_raise is not None:
            raise to_raise
        return tuple(sections)

    def _went_wrong(self, play: Play, hook: str, error: Exception, *, quietly: bool = False) -> None:
        assert self._pipeline is not None
        self._pipeline.went_wrong(play, hook, error, quietly=quietly)


def _stage(opened: tuple[Play, Session]) -> int:
    return opened[0].stage


NO_SESSIONS: Final = Sessions()
