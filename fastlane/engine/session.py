"""One play's part in one call: the hooks that the flow of the call runs through."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..compat.retry import Attempt
    from ..records.record import CallRecord
    from ..records.section import RecordSection
    from ..records.usage import Usage
    from .call import Call
    from .effects import Flow
    from .pipeline import Pipeline
    from .play import Play

SendCall = Callable[["Call"], "Flow"]
"""Sends a call, with its retries. Returns a `Reply` whose `result` the caller gets; raises openai's errors."""

SendAttempt = Callable[["Attempt"], "Flow"]
"""Sends one attempt. Returns a `Reply` of any status; raises openai's errors of connections."""


class Stop:
    """What `Session.on_event` returns to end the stream after an event."""


STOP: Final = Stop()


class Session:
    """One play's part in one call. Every hook is optional; the flow calls only those that a subclass defines.

    The wrapping hooks get a function that returns a flow, and return one: write a generator, run what it wraps with
    `yield from`, and yield effects (`fastlane.engine.effects`) for everything that waits. A wrapper of a lower stage
    stands outside. What a hook raises besides is logged, and the play is left out of that step.
    """

    def around_call(self, send: SendCall) -> SendCall:
        """Wrap the whole call, with its retries."""
        return send

    def plan(self, call: Call) -> Call:
        """Rewrite the request, for the upstream that it goes to. Pure; called again for each upstream."""
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


class CallOutcome:
    """How a call has ended."""

    def __init__(self, observation: Any) -> None:
        self._observation = observation

    @property
    def ending(self) -> str:
        """The word of `fastlane.Outcome`, such as "completed" or "failed"."""
        ending: str = self._observation.outcome or "failed"
        return ending

    @property
    def duration_s(self) -> float:
        """Seconds until the last token, or the end of an answer without tokens."""
        call = self._observation
        ended_ns = call.answer.token_ns[-1] if len(call.answer.token_ns) else call.ended_ns
        seconds: float = (ended_ns - call.started_ns) / 1e9
        return seconds

    @property
    def error(self) -> str | None:
        """The class name of the error that the caller got."""
        error: str | None = self._observation.error
        return error

    @property
    def usage(self) -> Usage:
        """The tokens that the provider counted."""
        usage: Usage = self._observation.usage
        return usage

    @property
    def record(self) -> CallRecord:
        """The record of the call, without the sections of sessions. It is made when it is asked for."""
        record: CallRecord = self._observation.record_without_sections()
        return record


@lru_cache(maxsize=256)  # an application's classes come and go
def _hooks_of(session: Any) -> frozenset[str]:
    names = [name for name in vars(Session) if not name.startswith("_")]
    return frozenset(name for name in names if getattr(session, name) is not getattr(Session, name))


class _Watcher:
    """Shows a stream's events to a session."""

    def __init__(self, session: Session) -> None:
        self._on_event = session.on_event

    def see(self, event: Any) -> bool:
        """Look at one event; True stops the stream after it."""
        return self._on_event(event) is STOP


class Sessions:
    """The sessions of one call, outermost first."""

    __slots__ = ("_opened", "_pipeline")

    def __init__(self, pipeline: Pipeline | None = None, opened: tuple[tuple[Play, Session], ...] = ()) -> None:
        self._pipeline = pipeline
        self._opened = opened

    def having(self, hook: str) -> list[tuple[Play, Session]]:
        """Return the sessions that define a hook, with their plays."""
        if not self._opened:
            return []
        return [pair for pair in self._opened if hook in _hooks_of(type(pair[1]))]  # type: ignore[arg-type]

    @property
    def need_upstream(self) -> bool:
        """Whether a play may send the call to several upstreams, or more than once."""
        return any(play.routes or play.may_duplicate for play, _ in self._opened)

    def wrap(self, hook: str, send: Any) -> Any:
        """Wrap a function with a hook of all sessions; the first one stands outside."""
        for play, session in reversed(self.having(hook)):
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
        for play, session in self.having("on_refused"):
            try:
                taken_back = session.on_refused(error) or taken_back
            except Exception as raised:  # noqa: BLE001 - a play must not break a call
                self._went_wrong(play, "on_refused", raised)
        return taken_back

    def watchers(self) -> tuple[_Watcher, ...]:
        """Return what looks at the events of the stream."""
        return tuple([_Watcher(session) for _, session in self.having("on_event")]) if self._opened else ()

    def close(self, observation: Any, *, quietly: bool) -> tuple[RecordSection, ...]:
        """Close the sessions. Returns their sections of the record."""
        sections = []
        for play, session in self.having("close"):
            try:
                section = session.close(CallOutcome(observation))
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self._went_wrong(play, "close", error, quietly=quietly)
            else:
                if section is not None:
                    sections.append(section)
        return tuple(sections)

    def _went_wrong(self, play: Play, hook: str, error: Exception, *, quietly: bool = False) -> None:
        assert self._pipeline is not None
        self._pipeline.went_wrong(play, hook, error, quietly=quietly)


NO_SESSIONS: Final = Sessions()
