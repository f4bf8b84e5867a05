"""Collect what happens to one call until it is over, and turn it into its record exactly once."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import count, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import openai

from .._clock import now_ns, wall_ns
from ..compat.bodies import OBSERVER
from ..compat.clients import RAW_RESPONSES, underlying_stream
from ..compat.context import Issued, in_finalizer, take_issued
from ..compat.requests import body_of, longer_bytes
from ..protocol.endpoints import EMBEDDINGS, GENERATING, is_response
from ..protocol.usage import usage_counts
from ..records.attempts import AttemptKind, Form
from ..records.call_ids import call_id, next_number
from ..records.provider_times import ProviderTimes
from ..records.record import CallRecord, Outcome
from ..records.section import RecordSection
from ..records.timeline import Timeline
from ..records.urgency import Level
from ..records.usage import Usage
from .answer_seen import AnswerSeen
from .attempt_stamps import AttemptStamps
from .pipeline import Pipeline, Watch
from .refused_fields import Upstream, refusals
from .session import NO_SESSIONS, STOP, Sessions, Stop
from .user_action import current_user_action

if TYPE_CHECKING:
    from ..protocol.provider_times import TimesSaid
    from ..records.listeners import AssignedArm, CallTrace

_AT_ONCE = (False,)
_SAY_USAGE = frozenset({*GENERATING, EMBEDDINGS})
_CANCELLATIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class Observation:
    """One call while it lasts, or its part at one upstream. Sans-IO: the clients and streams tell it what happens."""

    __slots__ = (
        "_action", "_body_error", "_doubted", "_encoded", "_ends", "_headers", "_is_first_way", "_issued", "_lock",
        "_made", "_number", "_numbers", "_over", "_stop", "_usage", "action_path", "answer", "attempts", "before",
        "believed",
        "cached_path", "changes", "collector", "collects", "decoded", "ended_ns", "endpoint", "error", "exhausted",
        "experiment", "is_done", "is_final", "method", "model", "next_kind", "optional", "origin",
        "outcome", "pipeline", "provider_times", "pulling", "received_bytes",
        "refused", "sections", "sessions", "started_ns", "started_wall_ns", "stream", "streaming",
        "times_said", "trace", "transport", "unreturned", "upstream", "urgency", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        method: str,
        endpoint: str,
        origin: str,
        stream: bool,
        transport: str,
        beside: Observation | None = None,
        experiment: AssignedArm | None = None,
    ) -> None:
        """Observe a call, or with `beside` the call of that observation on another of its ways."""
        if beside is None:
            # A call that came by one of our resources was issued before it was built.
            entered_ns = now_ns()
            self._issued = take_issued()
            self.started_ns = self._issued.ns if self._issued is not None else entered_ns
            self.started_wall_ns = wall_ns() - (entered_ns - self.started_ns)
            self._number = next_number()
        else:
            self._issued = beside._issued
            self.started_ns, self.started_wall_ns = beside.started_ns, beside.started_wall_ns
            self._number = beside._number
        self.pipeline = pipeline
        self.method = method
        self.endpoint = endpoint
        self.origin = origin
        self.stream = stream
        self.transport = transport
        self.model: str | None = None
        self.changes: tuple[str, ...] = ()
        self.watchers: tuple[Watch, ...] = ()
        self._stop: Stop | None = None
        """What has ended the caller's stream."""
        self.trace: CallTrace | None = None if beside is None else beside.trace
        """What OpenTelemetry is told of the call; None where nobody listens."""
        self.experiment: AssignedArm | None = experiment if beside is None else beside.experiment
        """Which arm of the client's experiment the call goes to; None without one."""
        self.unreturned: Any = None
        """A whole answer that the caller has not got yet."""
        self.sessions: Sessions = NO_SESSIONS if beside is None else beside.sessions
        """Those of the plays in this call."""
        self.sections: tuple[RecordSection, ...] = ()
        """What plays say of it in its record."""
        self._ends: tuple[Callable[[str], None], ...] = ()
        self.urgency: Level | None = None if beside is None else beside.urgency
        """How urgent the application says that it is; None where it has not said."""
        self.optional: tuple[str, ...] = ()
        """Fields of the body that a play added, and that the call goes without where the provider refuses them."""
        self.refused: tuple[str, ...] = ()
        """Those that it was sent without."""
        self.believed: tuple[str, ...] = ()
        """Those without which it has succeeded."""
        self._doubted: tuple[tuple[Upstream, tuple[str, ...]], ...] = ()
        self.next_kind: AttemptKind | None = None
        """Why the next attempt is made, if not because the one before it failed."""
        self.times_said: TimesSaid | None = None
        """Where the provider says its own times; None where nothing is known of that."""
        self.provider_times: ProviderTimes | None = None
        self.cached_path: tuple[str, ...] = ()
        """Where the provider's usage counts cached tokens, if elsewhere than OpenAI's."""
        self.attempts: list[AttemptStamps] = []
        self._is_first_way = beside is None
        self._numbers: Iterator[int] | None = None if beside is None else beside._numbers
        """Of the attempts of all of the call's ways; None where it has but one."""
        self.before: list[AttemptStamps] = []
        """Those of the call that went other ways, and did not bring its answer."""
        self.upstream: Any = None
        """Its `UpstreamAttempt`; None unless plays may send it to several upstreams, or more than once."""
        self.collector: Any = None
        """Puts a streamed answer together for an application that does not stream; None where nobody asks for that."""
        self.collects = False
        """Whether the answer is streamed to us, though the application does not stream."""
        self.is_final = False
        """Whether its record will not change any more."""
        self.streaming = False
        """The answer's body is handed to the application unread: the call is over when that stream is."""
        self.decoded = False
        """A decoding stream shows its events, so that the bytes need not be looked into."""
        self.pulling = False
        """The decoding stream waits for its source: if the body is closed now, the decoding stream will say why."""
        self.exhausted = False
        """The last byte of the answer's body was read."""
        self.received_bytes: int = 0
        self.answer: AnswerSeen = AnswerSeen(is_response=is_response(endpoint))
        self._action: Any = current_user_action() if beside is None else beside._action
        self.action_path: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._over = False
        self.is_done: bool = False
        self.outcome: Outcome | None = None
        self.error: str | None = None
        self._body_error: BaseException | None = None
        self._headers: Any = None
        self._encoded: tuple[Any, Any, bytes | None] | None = None
        self.ended_ns = 0
        self._made: CallRecord | None = None
        self._usage: Usage | None = None

    @property
    def call_id(self) -> str:
        """Tells the call from every other, also of other processes."""
        return call_id(self._number)

    @property
    def issued(self) -> Issued | None:
        """What is known of the call from the resource that it was made with; None without one."""
        return self._issued

    @property
    def is_over(self) -> bool:
        """Whether the call is over, or goes on another way."""
        return self._over

    def on_end(self, function: Callable[[str], None]) -> None:
        """Call a function with the outcome when the response has been read or closed; at once if it has been."""
        self._ends = (*self._ends, function)
        if self._over:
            self._run_ends()

    def _run_ends(self) -> None:
        ends, self._ends = self._ends, ()
        for function in reversed(ends):
            try:
                function(self.outcome or "completed")
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.pipeline.went_wrong(function, "on_end", error, quietly=True)

    # The attempts

    def body(self, options: Any) -> bytes | None:
        """The JSON body of an attempt, written once for all of them; None where only openai's own code can write it."""
        issued = self._issued
        body, extra = options.json_data, options.extra_json
        # What lies deep inside a body was shown to the plays as it is: what they make of it is what is to be sent.
        still_holds = issued is not None and extra is None and self.pipeline.keeps_bodies
        if issued is not None and still_holds and issued.body is body:
            return issued.written
        encoded = self._encoded
        if encoded is None or encoded[0] is not body or encoded[1] is not extra:
            written = None
            if issued is not None and still_holds and issued.body and issued.written and type(body) is dict:
                written = longer_bytes(issued.written, issued.body, body)
            encoded = self._encoded = (body, extra, body_of(options) if written is None else written)
        return encoded[2]

    def begin_attempt(
        self, request_body_bytes: int | None, *, form: Form = "json", plain: bool = False
    ) -> AttemptStamps:
        """An attempt is handed to the HTTP client; `plain`: because the one before it was refused for its form."""
        # (Two ways may begin one at once; the call's own first one is the first, however late it comes to begin.)
        begins = self._is_first_way and not self.attempts
        number = 1 if begins else len(self.attempts) + 1 if self._numbers is None else next(self._numbers)
        kind: Any = "plain" if plain else self.next_kind or ("first" if begins else "retry")
        self.next_kind = None
        attempt = AttemptStamps(number, request_body_bytes, kind=kind, form=form, origin=self.origin, model=self.model)
        self.attempts.append(attempt)
        return attempt

    def count_all_attempts(self) -> None:
        """The call may be sent to several upstreams, or more than once: number the attempts of all."""
        self._numbers = count(2)

    def take_back(self, fields: tuple[str, ...], optional: tuple[str, ...], upstream: Upstream) -> None:
        """The next attempt is the call without these fields, which the error names; `optional`: as plays named them."""
        self.next_kind, self.refused = "plain", (*self.refused, *fields)
        self.changes = (*self.changes, f"sent again without {', '.join(fields)}, which the provider's error names")
        self.doubt(optional, upstream)
        if self.upstream is not None and "stream" in fields:
            self.upstream.comes_at_once()

    def doubt(self, fields: tuple[str, ...], upstream: Upstream) -> None:
        """An error names these fields: they were refused if the call succeeds without them."""
        self._doubted = (*self._doubted, (upstream, fields))

    def _believe(self) -> None:
        """The call has succeeded without the fields that an error named: later calls leave them out."""
        for upstream, fields in self._doubted:
            refusals.add(upstream, fields)
            self.believed += fields
        self._doubted = ()

    def begin_again(self, kind: AttemptKind | None) -> None:
        """The call is sent again, for another answer; `kind`: of its next attempt."""
        self.next_kind = kind or self.next_kind
        self.outcome = None
        self.is_done = False
        self.received_bytes = 0

    def attempt_failed(self, error: BaseException) -> None:
        """The attempt ended without an answer."""
        if self._over:
            return
        attempt = self.attempts[-1]
        attempt.error = type(error).__name__
        if attempt.ended_ns is None:
            attempt.ended_ns = now_ns()

    def attempt_answered(self, response: Any) -> None:
        """The head of an answer has come, and its body too unless the caller streams."""
        if self._over:
            return  # the request goes on for others, and the record stays as it is
        attempt = self.attempts[-1]
        attempt.answered(response)
        if response.is_closed:
            attempt.response_body_bytes = response.num_bytes_downloaded
        self._headers = response.headers
        if self._doubted and response.status_code < 300:
            self._believe()
        if self.pipeline.needs_facts and response.status_code < 300:
            from ..providers import note_server

            note_server(self.origin, response.headers)

    # The answer

    def read_by(self, facts: Any) -> None:
        """Read what the answer says in the places that a provider's facts name."""
        answer = self.answer
        self.cached_path = _cached_path(facts, self.endpoint)
        answer.tier_path = _tier_path(facts.tiers)
        if facts.timing.phases is not None:
            from ..protocol.provider_times import times_said

            said = self.times_said = times_said(facts.timing)
            answer.times_in = said.in_answer if said is not None else None

    def shown(self, event: Any) -> bool:
        """Show one decoded event to the watchers; True if the stream should stop after this one."""
        if self._over:
            return False
        for play, see in self.watchers:
            try:
                found = see(event)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.pipeline.went_wrong(play, "on_event", error)
            else:
                if found:
                    self._stop = found if isinstance(found, Stop) else STOP
        if self._stop is None:
            return False
        self.outcome = "stopped"
        return True

    def closing_events(self, typed: Callable[[Any], Any]) -> list[Any]:
        """Return the events that end a stream which a play has stopped, each made by `typed` of its JSON.

        Raises the error of openai's that ends it instead.
        """
        stop, answer = self._stop, self.answer
        if stop is None:
            return []
        try:
            events = [typed(event) for event in stop.closing()]
        except openai.OpenAIError:
            raise
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self.pipeline.went_wrong("Stop", "closing", error)
            return []
        finally:
            if answer.usage is None and stop.usage:
                answer.usage = SimpleNamespace(**stop.usage)
        # They say how the answer ended, but none of them arrived.
        stamped, counted = answer.token_ns[:], answer.events
        for event in events:
            answer.event(event)
        answer.token_ns, answer.events = stamped, counted
        return events

    @property
    def finishes(self) -> bool:
        """Whether the answer is one that ends with a finish reason: a stored response that is streamed again too."""
        return self.endpoint in GENERATING or self.answer.is_response

    def whole_answer(self, answer: Any) -> None:
        """Look at a whole answer, decoded."""
        if self.answer.is_response or self.endpoint in _SAY_USAGE:
            self.answer.answer(answer)
        if self.trace is not None:
            self.trace.answered(self, answer)

    def look_at(self, result: Any) -> None:
        """Look at what the caller gets for a whole answer."""
        self.unreturned = None
        if isinstance(result, RAW_RESPONSES):
            if result.http_response.is_closed:
                self.raw_answer(result.http_response.content)
        else:
            self.whole_answer(result)

    def raw_answer(self, body: bytes) -> None:
        """Look at a whole answer that the application takes undecoded."""
        if self.answer.is_response or self.endpoint in _SAY_USAGE:
            answer = self.answer.raw_answer(body)
            if answer is not None and self.trace is not None:
                self.trace.answered(self, answer)

    # The end

    def failed(self, error: BaseException) -> None:
        """An error is on its way to the application, which ends the call."""
        if self._body_error is not None:
            self.attempt_failed(self._body_error)
        if self._over:
            return
        if isinstance(error, GeneratorExit):
            # The application stopped reading: what has come by then says how the call ended. Without a stream it
            # stopped waiting.
            if not self.streaming:
                self.outcome = "cancelled"
            return
        cancelled = isinstance(error, _CANCELLATIONS) or type(error).__name__ == "Cancelled"  # trio's, not imported
        self.outcome = "cancelled" if cancelled else "failed"
        # The last word counts: a broken connection reaches the application as openai's own error.
        self.error = type(error).__name__

    def body_failed(self, error: BaseException) -> None:
        """Reading the answer's body failed or was cancelled."""
        if self.pulling:
            # openai reads on after `[DONE]`, for a moment, and keeps what fails there from the application. If the
            # error does reach it, the decoding stream will say so.
            self._body_error = error
            return
        self.failed(error)
        self.attempt_failed(error)

    def done(self) -> None:
        """The stream said that it is done (`data: [DONE]`)."""
        self.is_done = True
        if self._ends:
            self._run_ends()

    def body_closed(self) -> None:
        """The answer's body was closed, by whoever reads it."""
        if not (self.pulling or self._over):
            self._finish(later=in_finalizer())

    def abandoned(self) -> None:
        """The unread answer was garbage-collected."""
        if not self._over:
            self.outcome = self.outcome or "abandoned"
            self._finish(later=True)

    def broken_off(self, error: BaseException) -> None:
        """The call ends with an error, wherever it came: even amid its end, as Ctrl-C may."""
        if self.unreturned is not None:
            self.look_at(self.unreturned)
        self.failed(error)
        self.finish()

    def set_aside(self) -> None:
        """The call goes on another way, whose observation makes the record."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._action = None
        self._stamp_end()
        self._close_account()
        self.sessions.close_upstream(self)
        self.sessions = NO_SESSIONS

    def finish(self) -> None:
        """The call is over: make its record and report it, unless that has been done."""
        if not self._over:
            self._finish(later=isinstance(sys.exception(), GeneratorExit))

    def _finish(self, *, later: bool) -> None:
        """End the call; `later`: called by a finalizer, which leaves the report to another thread or turn of the loop.

        A finalizer does nothing else: it may run in the middle of anything.
        """
        # A stream may be closed by one thread while another reads it. A finalizer may interrupt the very thread that
        # holds the lock, so it does not wait: whoever holds it is finishing already. (It is taken in one step each
        # time: Ctrl-C cannot come between that and knowing of it.)
        if later:
            taken: list[bool] = []
            try:
                taken += map(self._lock.acquire, _AT_ONCE)
                if not taken[0] or self._over:
                    return
                self._over = True
            finally:
                if taken and taken[0]:
                    self._lock.release()
            self._stamp_end()
            if self._action is not None:
                self._action.expect(self.pipeline)
            self.pipeline.report_later(partial(self.report, quietly=True))
            return
        with self._lock:
            if self._over:
                return
            self._over = True
        self.report()

    def report(self, *, quietly: bool = False) -> None:
        """Make the record of the call that is over, and tell plays, hooks and telemetry.

        `quietly`: a finalizer has ended it, and errors of plays and hooks are logged even if the client is strict.
        """
        if not quietly:
            self._stamp_end()
        self._close_account()
        sessions, self.sessions = self.sessions, NO_SESSIONS
        try:
            self.sections += sessions.close(self, quietly=quietly)
            for section in self.sections:
                if section.checked_ns is not None:
                    self.ended_ns = max(self.ended_ns, section.checked_ns[1])
        finally:
            self._report(quietly=quietly)

    def _report(self, *, quietly: bool) -> None:
        """Tell hooks, experiments and telemetry of the call, whose sessions are closed."""
        action, self._action = self._action, None
        if action is not None:
            self.action_path = action.path
            action.add(self.record())
        if self.experiment is not None:
            self.experiment.over(self)
        self.is_final = True
        try:
            self.pipeline.report(self, quietly=quietly)
        finally:
            if self.trace is not None:
                self._tell_telemetry(quietly=quietly)

    def _tell_telemetry(self, *, quietly: bool) -> None:
        """Tell OpenTelemetry of the call that is over, if anybody listens."""
        trace, self.trace = self.trace, None
        assert trace is not None
        try:
            trace.ended(self)
        except Exception as error:  # noqa: BLE001 - telemetry must not break a call
            self.pipeline.went_wrong("telemetry", "ended", error, quietly=quietly)

    @property
    def usage(self) -> Usage:
        """What the provider said that the call took."""
        if not self.answer.frozen:
            return Usage(**usage_counts(self.answer.usage, self.cached_path))
        if self._usage is None:
            self._usage = Usage(**usage_counts(self.answer.usage, self.cached_path))
        return self._usage

    @property
    def placements(self) -> Any:
        """What the caller declared of each message of the prompt."""
        return self._issued.placements if self._issued is not None else None

    def _stamp_end(self) -> None:
        """Note when and how the call has ended."""
        self.ended_ns = now_ns()
        self.outcome = _outcome_of(self)

    def record_without_sections(self) -> CallRecord:
        """The record of the call before its sessions have added to it."""
        return _record_of(self)

    def _close_account(self) -> None:
        """Take down what is known only now, and let go of what need not be kept."""
        if self._ends:
            self._run_ends()
        if self.attempts:
            last = self.attempts[-1]
            if self.streaming:
                last.response_body_bytes = self.received_bytes
            if last.ended_ns is None:
                read_whole = self.is_done or self.exhausted
                last.ended_ns = (self.answer.arrived_ns if read_whole else 0) or self.ended_ns
        if self.answer.request_id is None and self._headers is not None:
            self.answer.request_id = self._headers.get("x-request-id")
        if self.times_said is not None:
            self._read_times()
        self._headers = self._body_error = self._encoded = self._issued = None
        self.watchers = ()
        self.upstream = self.collector = self.unreturned = None
        self.answer.freeze(self.model)

    def _read_times(self) -> None:
        """Take down what the provider says of its own time, of an answer and not of an error."""
        said, headers = self.times_said, self._headers
        if said is not None and headers is not None and (self.attempts[-1].status_code or 500) < 300:
            # A play may have asked for a stream where the application has not.
            is_stream = self.stream or self.answer.first_event_ns is not None
            self.provider_times = said.of(headers, self.answer.times, is_stream=is_stream)

    @property
    def is_unrecorded(self) -> bool:
        """Whether nobody has asked for its record so far."""
        return self._made is None

    def provisional_record(self) -> CallRecord:
        """What its record would be if the call ended now, with a whole answer."""
        self.ended_ns = now_ns()
        self._read_times()
        return _record_of(self, "completed")

    def record(self) -> CallRecord:
        """The record of the call, once it is over."""
        if self._made is None:
            self._made = _record_of(self)
        return self._made


def _outcome_of(call: Observation) -> Outcome:
    """How a call that is over has ended."""
    if call.outcome is not None:
        return call.outcome
    if not call.streaming:
        return "completed"
    if call.finishes and (call.decoded or call.answer.events):
        if call.answer.finished:
            return "completed"
        return "truncated" if call.is_done or call.exhausted else "closed"
    return "completed" if call.is_done or call.exhausted else "closed"


def _record_of(call: Observation, outcome: Outcome | None = None) -> CallRecord:
    """The record of a call that is over, or that would end with `outcome`."""
    last = call.attempts[-1] if call.attempts else None
    outcome = outcome or call.outcome or "failed"
    answer_ended_ns = None
    whole = outcome in ("completed", "truncated") and (not call.streaming or call.exhausted)
    if last is not None and (whole or call.is_done):
        answer_ended_ns = last.answer_ended_ns(call.ended_ns)
    if answer_ended_ns is None:
        if call.is_done or outcome == "stopped":
            answer_ended_ns = call.answer.arrived_ns or None
        elif whole and last is not None:
            answer_ended_ns = last.ended_ns
    # Those of other ways went on beside these.
    attempts = [attempt.record(attempt.ended_ns or call.ended_ns) for attempt in call.before]
    attempts += [attempt.record(following.started_ns) for attempt, following in pairwise(call.attempts)]
    if last is not None:
        attempts.append(last.record(call.ended_ns))
    sections = call.sections
    checked_ns = next((section.checked_ns for section in sections if section.checked_ns is not None), None)
    return CallRecord(
        call_id=call.call_id,
        method=call.method,
        endpoint=call.endpoint,
        origin=call.origin,
        model=call.model,
        stream=call.stream,
        outcome=outcome,
        timeline=Timeline(
            started_wall_ns=call.started_wall_ns,
            started_ns=call.started_ns,
            ended_ns=call.ended_ns,
            answer_ended_ns=answer_ended_ns,
            first_event_ns=call.answer.first_event_ns,
            first_token_ns=call.answer.first_token_ns,
            first_token_kind=call.answer.first_token_kind,
            first_content_token_ns=call.answer.first_content_ns,
            token_ns=call.answer.token_ns,
            validate_started_ns=None if checked_ns is None else checked_ns[0],
            validate_ended_ns=None if checked_ns is None else checked_ns[1],
        ),
        attempts=tuple(attempts),
        usage=call.usage,
        response_model=call.answer.model,
        finish_reason=call.answer.finish_reason,
        error=call.error,
        status_code=last.status_code if last is not None else None,
        request_id=call.answer.request_id,
        response_id=call.answer.response_id,
        service_tier=call.answer.service_tier,
        events=call.answer.events,
        plays=call.pipeline.fingerprint,
        changes=call.changes,
        sections=sections,
        provider_times=call.provider_times,
        user_actions=call.action_path,
        experiment=call.experiment.record if call.experiment is not None else None,
        transport=_carrier(call, last),
    )


def _carrier(call: Observation, last: AttemptStamps | None) -> str:
    # The transport of the shared connections hands on to the library's own what it cannot carry.
    return "stock" if call.transport == "fastlane" and last is not None and last.fell_back else call.transport


_USUAL_CACHED_PATHS = ("usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens")


@lru_cache(maxsize=64)
def _path_below_usage(path: str) -> tuple[str, ...]:
    """The names below `usage`; () for OpenAI's own place, which is known without facts."""
    first, *names = path.split(".")
    return tuple(names) if first == "usage" and path not in _USUAL_CACHED_PATHS else ()


def _cached_path(facts: Any, endpoint: str) -> tuple[str, ...]:
    fact = facts.usage.get(endpoint)
    path = None if fact is None or fact.value is None else fact.value.get("cached")
    return () if path is None else _path_below_usage(path)


def _tier_path(tiers: Any) -> tuple[str, ...]:
    fact = None if tiers is None else tiers.answer_path
    path = None if fact is None else fact.value
    return () if path is None or path == "service_tier" else tuple(path.split("."))


class _Answered(weakref.ref[Any]):
    """An answer that is in use, and the observation of its call."""

    __slots__ = ("key", "observation")

    key: int
    observation: Observation


_answered: dict[int, _Answered] = {}
"""By the answer's `id()`: answers have no hash, and an attribute of theirs would be copied and pickled with them."""


def _forget(answered: _Answered) -> None:
    _answered.pop(answered.key, None)


def remember_answer(answer: Any, observation: Observation) -> None:
    """Have `record_of` find the call of an answer, for as long as the answer is in use."""
    try:
        answered = _Answered(answer, _forget)
    except TypeError:
        return  # text or bytes
    answered.key, answered.observation = id(answer), observation
    _answered[answered.key] = answered


def record_of(answer: object) -> CallRecord | None:
    """Return the record of the call that an answer came from.

    `answer`: what a method of the client returned (a response, a parsed object, a stream, a raw response), or the
    stream of a `.stream()` helper. None while a stream is not over, for a copy of an answer, and for an answer that has
    no record: from openai's own client, or with FASTLANE_DISABLED.
    """
    stream = underlying_stream(answer)
    observation: Observation | None
    answered = _answered.get(id(stream))
    if answered is not None and answered() is stream:
        observation = answered.observation
    else:
        # A stream that a raw response was parsed to: its request knows.
        request = getattr(getattr(stream, "response", None), "request", None)
        observation = getattr(request, "extensions", {}).get(OBSERVER)
    return observation.record() if observation is not None and observation.is_final else None
