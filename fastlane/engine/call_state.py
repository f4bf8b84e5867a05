"""The state of a call while it runs: its request, each attempt, the answer so far, and how it ended."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import openai
from pydantic import BaseModel

from .._clock import now_ns, wall_ns
from .._fork import in_child
from ..compat.bodies import OBSERVER, watch_body
from ..compat.clients import RAW_RESPONSES, underlying_stream
from ..compat.context import in_finalizer
from ..compat.requests import Issued, body_of, issued
from ..compat.responses import stream_of
from ..errors import PlayError
from ..protocol.content import RESPONSE_ENDS, RESPONSE_KINDS, choices_kind, finish_reason_of
from ..protocol.endpoints import EMBEDDINGS, GENERATING, RESPONSES
from ..protocol.fields import ID, field, from_json, known_names, safe_name, string
from ..protocol.usage import cache_miss_reason, usage_of
from ..records.attempts import Attempt, AttemptKind, Form
from ..records.record import CallRecord, Outcome
from ..records.section import RecordSection
from ..records.timeline import Timeline, TokenKind, WireStamps
from ..records.usage import Usage
from ..transport.protocols.exchange import Opening, Phases
from .buffering import LagMonitor, note_stream, suspects, watch
from .drivers import async_run, run
from .effects import Flow
from .pipeline import NO_SESSIONS, Pipeline, Sessions, Watch
from .session import STOP, CallOutcome, Continuation, MakeSection, Stop
from .user_action import current_action, current_user_action

if TYPE_CHECKING:
    from ..records.listeners import AssignedArm, CallTrace

_REPORT_USAGE = frozenset({*GENERATING, EMBEDDINGS})
_RESPONSE = f"{RESPONSES}/"
_numbers = itertools.count(1)


class _Process:
    """A prefix for the ids of calls, unique to this process."""

    prefix = secrets.token_hex(4)


@in_child
def _renew_prefix() -> None:
    _Process.prefix = secrets.token_hex(4)


_CANCELLATIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class CallState:
    """One running call, or its part at one upstream. Does no I/O: the flow and the streams call its methods.

    One thread or task uses it at a time, except that a finalizer or an interrupt may end it at any point.
    """

    # The request

    client: Any = None
    """The client that sends it, at this upstream."""
    cast_to: Any = None
    stream_cls: Any = None
    model: str | None = None
    issued: Issued | None = None
    """What the resource that made the call knows of it; None without such a resource."""
    data: Mapping[type, Any] = MappingProxyType({})
    """Data that the application attached to it, by class."""
    experiment: AssignedArm | None = None
    """The arm of the client's experiment that the call goes to; None without an experiment."""

    # Changes by plays

    sessions: Sessions = NO_SESSIONS
    sections: tuple[RecordSection | MakeSection, ...] = ()
    """The record sections that plays have added, or what makes these."""
    changes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Fields of the body that plays added. If the provider refuses one, the call is sent again without it."""
    refused: tuple[str, ...] = ()
    """The optional fields that the provider refused and without which the call succeeded."""
    watchers: tuple[Watch, ...] = ()
    collector: Any = None
    """Makes what assembles a streamed answer for an application that does not stream; None: not needed."""
    collects = False
    """Whether the engine streams the answer although the application does not."""
    upstream: Any = None
    """Its `UpstreamAttempt`; None unless plays may send it to several upstreams, or more than once."""

    # The attempts

    other_attempts: tuple[AttemptState, ...] = ()
    """Attempts at other upstreams, which did not give the answer."""
    next_kind: AttemptKind | None = None
    """The kind of the next attempt; None: "first" or "retry"."""

    encoded: tuple[Any, Any, bytes | None] | None = None
    """The body and the `extra_json` of the latest request, and the bytes of both."""

    # The response

    streaming = False
    """The application reads the body: the call ends when that stream ends."""
    decoded = False
    """A decoding stream passes its events on, so that the bytes need not be parsed."""
    pulling = False
    """The decoding stream waits for its source. If the body is closed now, that stream reports the reason."""
    exhausted = False
    """The last byte of the body was read."""
    is_done = False
    """The stream has sent `data: [DONE]`."""
    received_bytes = 0
    unreturned: Any = None
    """A whole answer that has not been returned to the caller yet."""
    lag_monitor: LagMonitor | None = None
    """Measures the lag of this process while a stream is read that may be buffered on its way; None: not needed."""
    cached_path: tuple[str, ...] = ()
    """The path below `usage` to the cached tokens; empty if it is OpenAI's."""

    # The end

    is_over = False
    """Whether it has ended at this upstream. The call may go on at another one."""
    outcome: Outcome | None = None
    error: str | None = None
    ended_ns = 0
    is_final = False
    """Whether its record is complete."""
    trace: CallTrace | None = None
    """Telemetry's trace of the call; None if telemetry is off."""

    _action_path: tuple[str, ...] = ()
    _ends: tuple[Callable[[str], None], ...] = ()
    _stop: Stop | None = None
    """The `Stop` that ended the caller's stream."""
    _body_error: BaseException | None = None
    _headers: Any = None
    _record: CallRecord | None = None

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        method: str,
        endpoint: str,
        origin: str,
        stream: bool,
        transport: str,
        part_of: CallState | None = None,
    ) -> None:
        """Begin a call, or with `part_of` the part of that call at another upstream."""
        self.pipeline = pipeline
        self.method = method
        self.endpoint = endpoint
        self.origin = origin
        self.stream = stream
        self.transport = transport
        self.attempts: list[AttemptState] = []
        self.answer = AnswerState(is_response=endpoint == RESPONSES or endpoint.startswith(_RESPONSE))
        self._open = [True]
        """Empty when the call has ended. `pop()` is atomic, also for finalizers and Ctrl-C."""
        if part_of is None:
            entered_ns = self.started_ns = now_ns()
            self.started_wall_ns = wall_ns()
            call = issued.get()
            if call is not None:
                # A call of one of our resources was issued before it was built. A nested call was not.
                issued.set(None)
                self.issued, self.started_ns = call, call.ns
                self.started_wall_ns -= entered_ns - call.ns
            self._number = next(_numbers)
            action = current_action.get()
            self._action: Any = None if action is None else current_user_action()
        else:
            self.issued, self._number, self._action = part_of.issued, part_of._number, part_of._action
            self.started_ns, self.started_wall_ns = part_of.started_ns, part_of.started_wall_ns
            self.client, self.cast_to, self.stream_cls = part_of.client, part_of.cast_to, part_of.stream_cls
            self.sessions, self.experiment, self.trace = part_of.sessions, part_of.experiment, part_of.trace

    @property
    def call_id(self) -> str:
        """An id that is unique across processes."""
        return f"{_Process.prefix}-{self._number}"

    @property
    def finishes(self) -> bool:
        """Whether the answer ends with a finish reason. So does a stored response that is streamed again."""
        return self.endpoint in GENERATING or self.answer.is_response

    # The attempts

    def body(self, options: Any) -> bytes | None:
        """Return the JSON body, written once for all attempts; None if openai's code has to write it."""
        call = self.issued
        body, extra = options.json_data, options.extra_json
        # Plays see the values inside the body itself, not copies. If one changes them in place, those are to be sent.
        if call is not None and call.body is body and extra is None and self.pipeline.keeps_bodies:
            return call.written
        encoded = self.encoded
        if encoded is None or encoded[0] is not body or encoded[1] is not extra:
            encoded = self.encoded = (body, extra, body_of(options))
        return encoded[2]

    def begin_attempt(
        self, request_body_bytes: int | None, *, form: Form = "json", plain: bool = False
    ) -> AttemptState:
        """Add an attempt that is about to be sent. `plain`: the one before was refused for its encoding."""
        kind: AttemptKind = "plain" if plain else self.next_kind or ("retry" if self.attempts else "first")
        self.next_kind = None
        attempt = AttemptState(request_body_bytes, kind=kind, form=form, origin=self.origin, model=self.model)
        self.attempts.append(attempt)
        if self.stream and suspects:
            watch(self)
        return attempt

    def attempt_failed(self, error: BaseException) -> None:
        """Record that the attempt failed without a response."""
        if self.is_over:
            return
        attempt = self.attempts[-1]
        attempt.error = type(error).__name__
        if attempt.ended_ns is None:
            attempt.ended_ns = now_ns()

    def attempt_answered(self, response: Any) -> None:
        """Record the head of a response, and its body if that has been read."""
        if self.is_over:
            return  # the call has ended at another upstream, and its record is complete
        attempt = self.attempts[-1]
        attempt.answered(response)
        if response.is_closed:
            attempt.response_body_bytes = response.num_bytes_downloaded
        self._headers = response.headers
        if self.pipeline.needs_facts and response.status_code < 300:
            self.pipeline.providers.note_server(self.origin, response.headers)
        if self.trace is not None:
            self.trace.progressed(self)

    def begin_again(self, kind: AttemptKind | None) -> None:
        """Reset the state of the response, because the call is sent again. `kind`: the kind of the next attempt."""
        self.next_kind = kind or self.next_kind
        self.outcome = None
        self.is_done = False
        self.received_bytes = 0

    # The answer

    def apply_facts(self, facts: Any) -> None:
        """Use the response fields that a provider's facts name for cached tokens and tier."""
        known = _readings.get((id(facts), self.endpoint))
        if known is None or known[0] is not facts:
            known = _reading_of(facts, self.endpoint)
        _, self.cached_path, self.answer.tier_path = known

    def show(self, event: Any) -> bool:
        """Pass a decoded event to the watchers. Return True if the stream is to end after it."""
        if self.is_over:
            return False
        for play, see in self.watchers:
            try:
                found = see(event)
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.pipeline.report_error(play, "on_event", error)
            else:
                if found:
                    self._stop = found if isinstance(found, Stop) else STOP
        if self._stop is None:
            return False
        self.outcome = "stopped"
        return True

    def closing_events(self, typed: Callable[[Any], Any]) -> list[Any]:
        """Return the events that end a stream which a play has stopped. `typed` makes each of them from its JSON.

        Raises an openai error that ends the stream instead.
        """
        stop, answer = self._stop, self.answer
        if stop is None:
            return []
        try:
            events = [typed(event) for event in stop.closing()]
        except openai.OpenAIError:
            raise
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self.pipeline.report_error("Stop", "closing", error)
            return []
        finally:
            if answer.usage is None and stop.usage:
                answer.usage = SimpleNamespace(**stop.usage)
        # They carry the finish reason, but did not arrive: keep the timestamps and the count.
        stamped, counted = answer.token_ns[:], answer.events
        for event in events:
            answer.event(event)
        answer.token_ns, answer.events = stamped, counted
        return events

    def check_whole(self, request: Any) -> None:
        """Raise an openai error if the stream has ended amid the answer, and a play continues broken streams.

        `request`: the HTTP library's, for the error.
        """
        if "on_broken" not in self.sessions.by_hook or self.is_over or not self.finishes:
            return
        if not (self.answer.finished or self.is_done):
            raise openai.APIConnectionError(message="The stream ended amid the answer.", request=request)

    def broken(self, error: BaseException) -> Callable[[], Any] | None:
        """Return a function that continues the broken stream as a play wants it; None to raise the error.

        It returns the stream that goes on and what adapts its events, or None to end; an async client awaits that.
        """
        if self.is_over or self.outcome == "stopped" or not isinstance(error, Exception):
            return None
        for play, session in self.sessions.by_hook.get("on_broken", ()):
            try:
                flow = session.on_broken(error)
            except Exception as raised:  # noqa: BLE001 - a play must not break a call
                self.pipeline.report_error(play, "on_broken", raised)
                continue
            if flow is not None:
                self.attempt_failed(self._body_error or error)
                self.attempts[-1].response_body_bytes = self.received_bytes
                self._body_error, self.exhausted, self.outcome = None, False, "failed"
                self._run_ends()
                # The choice between upstreams is over.
                self.upstream = None
                return partial(async_run if self.client._asynchronous else run, self._continued(flow))
        return None

    def _continued(self, flow: Flow) -> Flow:
        try:
            continuation: Continuation | None = yield from flow
            if continuation is None:
                self.outcome = None
                self.finish()
                return None
            return stream_of(self.client, continuation.reply, self.stream_cls), continuation.adapt
        except BaseException as error:
            self.end_with_error(error)
            raise

    def note_answer(self, result: Any) -> None:
        """Record the usage and the finish reason of a whole answer."""
        self.unreturned = None
        if not isinstance(result, RAW_RESPONSES):
            if self.answer.is_response or self.endpoint in _REPORT_USAGE:
                self.answer.whole(result)
            if self.trace is not None:
                self.trace.progressed(self)
        elif result.http_response.is_closed:
            self.note_raw_answer(result.http_response.content)

    def note_raw_answer(self, body: bytes) -> None:
        """Record the usage and the finish reason of a whole answer that the application reads undecoded."""
        if not (self.answer.is_response or self.endpoint in _REPORT_USAGE):
            return
        try:
            answer = from_json(body)
            self.answer.whole(answer)
        except ValueError:
            return  # the application reads the invalid body itself
        if answer is not None and self.trace is not None:
            self.trace.progressed(self)

    @property
    def usage(self) -> Usage:
        """The token counts that the provider reported."""
        return usage_of(self.answer.usage, self.cached_path)

    # The end

    def on_end(self, function: Callable[[str], None]) -> None:
        """Call a function with the outcome when the response has been read or closed; now if it has been already."""
        self._ends = (*self._ends, function)
        if self.is_over:
            self._run_ends()

    def _run_ends(self) -> None:
        while self._ends:
            function = self._ends[-1]
            try:
                function(self.outcome or "completed")
            except Exception as error:  # noqa: BLE001 - a play must not break a call
                self.pipeline.report_error(function, "on_end", error, quietly=True)
            self._ends = self._ends[:-1]  # last: after an interrupt the function is called again

    def failed(self, error: BaseException) -> None:
        """Record the error that the application gets and that ends the call."""
        if self._body_error is not None:
            self.attempt_failed(self._body_error)
        if self.is_over:
            return
        if isinstance(error, GeneratorExit):
            # The application stopped reading: what has arrived by then decides the outcome. Without a stream it stopped
            # waiting.
            if not self.streaming:
                self.outcome = "cancelled"
            return
        cancelled = isinstance(error, _CANCELLATIONS) or type(error).__name__ == "Cancelled"  # trio's, not imported
        self.outcome = "cancelled" if cancelled else "failed"
        # The last error counts: a broken connection reaches the application as openai's error.
        self.error = type(error).__name__

    def body_failed(self, error: BaseException) -> None:
        """Record that reading the body failed or was cancelled."""
        if self.pulling:
            # openai reads on briefly after `[DONE]`, and suppresses errors there. If the error does reach the
            # application, the decoding stream reports it.
            self._body_error = error
            return
        self.failed(error)
        self.attempt_failed(error)

    def done(self) -> None:
        """Record `data: [DONE]`."""
        self.is_done = True
        if self._ends:
            self._run_ends()

    def body_closed(self) -> None:
        """End the call, because the reader has closed the body."""
        if not (self.is_over or self.pulling):
            self.finish(later=in_finalizer())

    def abandoned(self) -> None:
        """End the call, because the unread body was garbage-collected."""
        if not self.is_over:
            self.outcome = self.outcome or "abandoned"
            self.finish(later=True)

    def returned(self, result: Any) -> None:
        """Record the result for the caller. End the call, unless the application still has to read its body."""
        remember_answer(result, self)
        if self.stream and not self.streaming and isinstance(result, openai.Stream | openai.AsyncStream):
            # A subclass of the application sent the request without our code.
            response = result.response
            if not response.is_closed:
                response.request.extensions[OBSERVER] = self
                watch_body(response, self, asynchronous=isinstance(result, openai.AsyncStream))
        if not self.streaming:
            self.note_answer(result)
            self.finish()

    def end_with_error(self, error: BaseException) -> None:
        """End the call with an error, which may come at any point, even while it ends (Ctrl-C)."""
        if self.unreturned is not None:
            self.note_answer(self.unreturned)
        self.failed(error)
        self.finish()

    def end_part(self) -> None:
        """End the part at this upstream: the call goes on at another one, whose part makes the record.

        If an attempt was still being prepared in another thread, call it again: it drops what has been added since.
        """
        if self._end():
            self._action = None
            self._close()
        self.encoded = self.collector = None
        self.watchers = ()
        sessions, self.sessions = self.sessions, NO_SESSIONS
        if sessions is not NO_SESSIONS:
            sessions.close(CallOutcome(self), quietly=True, all_of_call=False)

    def finish(self, *, later: bool = False) -> None:
        """End the call and report it, unless that has been done.

        `later`: the caller is a finalizer, which may run at any point. Another thread or a later iteration of the loop
        makes the report.
        """
        try:
            if not self._end():
                return
            if later or isinstance(sys.exception(), GeneratorExit):
                if self._action is not None:
                    self._action.expect(self.pipeline)
                self.pipeline.report_later(partial(self._report, quietly=True))
            else:
                self._report()
        except BaseException:
            # After an interrupt here, nothing else would end the call.
            if not self._open and not self.is_final:
                self._open.append(True)
                self.pipeline.report_later(partial(self.finish, later=True))
            raise

    def _end(self) -> bool:
        """Record when and how the call ended. Return False if it had ended before."""
        try:
            self._open.pop()
        except IndexError:
            return False
        self.is_over = True
        self.ended_ns = now_ns()
        if self.outcome is None:
            self.outcome = _outcome_of_stream(self) if self.streaming else "completed"
        return True

    def _close(self) -> None:
        """Complete the last attempt and the answer, and drop references that the record does not need."""
        if self._ends:
            self._run_ends()
        if self.attempts:
            last = self.attempts[-1]
            if self.streaming:
                last.response_body_bytes = self.received_bytes
            if last.ended_ns is None:
                read_whole = self.is_done or self.exhausted
                last.ended_ns = (self.answer.arrived_ns if read_whole else 0) or self.ended_ns
            if self.answer.token_ns or self.lag_monitor is not None:
                note_stream(self)
        if self._headers is not None and self.answer.request_id is None:
            self.answer.request_id = self._headers.get("x-request-id")
        self._headers = self._body_error = self.encoded = self.issued = None
        self.watchers = ()
        self.upstream = self.collector = self.unreturned = None
        self.answer.freeze(self.model)

    def _report(self, *, quietly: bool = False) -> None:
        """Close the sessions, and report the call to listeners and telemetry.

        `quietly`: a finalizer has ended the call, so that errors of plays are logged even with `raise_play_errors`.
        """
        self._close()
        self.client = None  # the log of calls keeps this object
        try:
            if self.sessions is not NO_SESSIONS:
                sections = self.sessions.close(CallOutcome(self), quietly=quietly)
                self.sessions = NO_SESSIONS
                self.sections += sections
                for section in self.sections:
                    if isinstance(section, RecordSection) and section.checked_ns is not None:
                        self.ended_ns = max(self.ended_ns, section.checked_ns[1])
        except PlayError:
            self._report_record(quietly=quietly)
            raise
        self._report_record(quietly=quietly)

    def _report_record(self, *, quietly: bool) -> None:
        action, self._action = self._action, None
        if action is not None:
            self._action_path = action.path
            action.add(self.record())
        if self.experiment is not None:
            self.experiment.over(self)
        self.is_final = True
        try:
            self.pipeline.report(self, quietly=quietly)
        finally:
            if self.trace is not None:
                self._end_trace(quietly=quietly)

    def _end_trace(self, *, quietly: bool) -> None:
        trace, self.trace = self.trace, None
        assert trace is not None
        try:
            trace.ended(self)
        except Exception as error:  # noqa: BLE001 - telemetry must not break a call
            self.pipeline.report_error("telemetry", "ended", error, quietly=quietly)

    # Its record

    def record(self) -> CallRecord:
        """Return the record of the call, which has ended. Made once."""
        if self._record is None:
            self._record = self.make_record()
        return self._record

    def make_record(self) -> CallRecord:
        """Return a record of the call as it is now."""
        return _record_of(self)

    def provisional_record(self) -> CallRecord:
        """Return the record as if the call ended now with a whole answer."""
        self.ended_ns = now_ns()
        return _record_of(self, "completed")


def _outcome_of_stream(call: CallState) -> Outcome:
    """Return the outcome of a stream that has ended."""
    if call.finishes and (call.decoded or call.answer.events):
        if call.answer.finished:
            return "completed"
        return "truncated" if call.is_done or call.exhausted else "closed"
    return "completed" if call.is_done or call.exhausted else "closed"


def _record_of(call: CallState, outcome: Outcome | None = None) -> CallRecord:
    """Make the record of a call that has ended, or would end with `outcome`."""
    last = call.attempts[-1] if call.attempts else None
    answer = call.answer
    made = [one if isinstance(one, RecordSection) else one(CallOutcome(call)) for one in call.sections]
    sections = tuple([one for one in made if one is not None])
    call.sections = sections
    outcome = outcome or call.outcome or "failed"
    answer_ended_ns = None
    whole = outcome in ("completed", "truncated") and (not call.streaming or call.exhausted)
    if last is not None and (whole or call.is_done):
        answer_ended_ns = last.answer_ended_ns(call.ended_ns)
    if answer_ended_ns is None:
        if call.is_done or outcome == "stopped":
            answer_ended_ns = answer.arrived_ns or None
        elif whole and last is not None:
            answer_ended_ns = last.ended_ns
    checked_ns = next((section.checked_ns for section in sections if section.checked_ns is not None), (None, None))
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
            first_event_ns=answer.first_event_ns,
            first_token_ns=answer.first_token_ns,
            first_token_kind=answer.first_token_kind,
            first_content_token_ns=answer.first_content_ns,
            token_ns=answer.token_ns,
            validate_started_ns=checked_ns[0],
            validate_ended_ns=checked_ns[1],
        ),
        attempts=_attempts_of(call),
        usage=call.usage,
        response_model=answer.model,
        finish_reason=answer.finish_reason,
        error=call.error,
        status_code=last.status_code if last is not None else None,
        request_id=answer.request_id,
        response_id=answer.response_id,
        service_tier=answer.service_tier,
        events=answer.events,
        plays=call.pipeline.fingerprint,
        changes=call.changes,
        sections=sections,
        user_actions=call._action_path,
        experiment=call.experiment.record if call.experiment is not None else None,
        # fastlane's transport passes requests that it cannot carry to the library's transport.
        transport=("stock" if call.transport == "fastlane" and last is not None and last.fell_back else call.transport),
    )


def _attempts_of(call: CallState) -> tuple[Attempt, ...]:
    """Make the records of the attempts: first those at other upstreams, then those at the upstream that answered."""
    # Attempts at other upstreams may overlap; those at one upstream follow each other.
    over_ns = [attempt.ended_ns or call.ended_ns for attempt in call.other_attempts]
    over_ns += [following.started_ns for following in call.attempts[1:]]
    over_ns.append(call.ended_ns)
    attempts = (*call.other_attempts, *call.attempts)
    # The first attempt has number 1, even if it waited longer in a queue than another.
    begun = sorted(attempts, key=lambda one: (one.kind != "first", one.started_ns))
    return tuple([one.record(ns, number=begun.index(one) + 1) for one, ns in zip(attempts, over_ns, strict=False)])


_USUAL_CACHED_PATHS = ("usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens")


def _path_below_usage(path: str) -> tuple[str, ...]:
    """Return the path below `usage`; () for OpenAI's own, which is known without facts."""
    first, *names = path.split(".")
    return tuple(names) if first == "usage" and path not in _USUAL_CACHED_PATHS else ()


def _reading_of(facts: Any, endpoint: str) -> tuple[Any, ...]:
    """Return the facts, and the paths to cached tokens and tier that they name for an endpoint."""
    fact = facts.usage.get(endpoint)
    path = None if fact is None or fact.value is None else fact.value.get("cached")
    cached_path = () if path is None else _path_below_usage(path)
    fact = None if facts.tiers is None else facts.tiers.answer_path
    path = None if fact is None else fact.value
    tier_path = () if path is None or path == "service_tier" else tuple(path.split("."))
    found = (facts, cached_path, tier_path)
    if len(_readings) >= _MOST_READINGS:
        _readings.clear()
    _readings[id(facts), endpoint] = found
    return found


# Keyed by id(); each value keeps its facts alive, so that the id is not reused.
_readings: dict[tuple[int, str], tuple[Any, ...]] = {}
_MOST_READINGS = 256


# The attempts

# Trace events of httpcore and httpcore2, both protocols: which stamp each one sets. A redirected attempt sets its
# stamps again, so that they describe the exchange that gave the response.
_STAMPS = {
    "connection.connect_tcp.started": "connect_started_ns",
    "connection.connect_tcp.complete": "connect_ended_ns",
    "connection.connect_unix_socket.started": "connect_started_ns",
    "connection.connect_unix_socket.complete": "connect_ended_ns",
    "connection.start_tls.started": "tls_started_ns",
    "connection.start_tls.complete": "tls_ended_ns",
}
for _protocol in ("http11", "http2"):
    _STAMPS |= {
        f"{_protocol}.send_request_headers.started": "send_started_ns",
        f"{_protocol}.send_request_body.complete": "send_ended_ns",
        f"{_protocol}.receive_response_headers.complete": "headers_received_ns",
        f"{_protocol}.receive_response_body.complete": "ended_ns",
        f"{_protocol}.response_closed.started": "closed_ns",
    }


class AttemptState:
    """One running attempt. fastlane's transport records its times, or the trace events of another transport do."""

    given_up: Literal["late", "lost"] | None = None
    status_code: int | None = None
    error: str | None = None
    ended_ns: int | None = None
    """When the attempt failed or was given up, or its response ended, as seen by the call: monotonic nanoseconds."""
    response_body_bytes: int | None = None
    url: Any = None
    """The URL of the request. The record gets only its path: the rest may hold credentials."""
    _http_version: str | None = None
    _connection_id: str | None = None

    def __init__(
        self,
        request_body_bytes: int | None,
        *,
        kind: AttemptKind = "first",
        form: Form = "json",
        origin: str | None = None,
        model: str | None = None,
    ) -> None:
        self.kind: AttemptKind = kind
        self.origin = origin
        self.model = model
        self.form: Form = form
        self.request_body_bytes = request_body_bytes
        self.phases = Phases()
        """Filled in by fastlane's transport, if it carries the attempt."""
        self._traced: dict[str, int] = {}
        self.started_ns = now_ns()

    @property
    def opened(self) -> Opening | None:
        """How the connection was opened, if this attempt waited for all of that; None otherwise."""
        opening, started_ns = self.phases.opening, self.phases.started_ns
        if opening is None or self.phases.reused is not False or started_ns is None:
            return None
        began_ns = opening.connect_started_ns if opening.dns_started_ns is None else opening.dns_started_ns
        return opening if began_ns >= started_ns else None

    @property
    def fell_back(self) -> bool:
        """Whether another transport than fastlane's gave the response."""
        carried = self.phases.started_ns is not None
        return not carried and (self.status_code is not None or bool(self._traced))

    def trace(self, event: str, _info: dict[str, Any]) -> None:
        """The trace extension of a synchronous request."""
        stamp = _STAMPS.get(event)
        if stamp is not None:
            self._traced[stamp] = now_ns()

    async def atrace(self, event: str, _info: dict[str, Any]) -> None:
        """The trace extension of an asynchronous request, which has to be a coroutine function."""
        self.trace(event, _info)

    def trace_beside(self, given: Any, *, asynchronous: bool) -> Any:
        """Return a trace extension that calls this one and the one that the caller gave."""

        def both(event: str, info: dict[str, Any]) -> Any:
            self.trace(event, info)
            return given(event, info)

        async def aboth(event: str, info: dict[str, Any]) -> Any:
            self.trace(event, info)
            return await given(event, info)

        return aboth if asynchronous else both

    def answered(self, response: Any) -> None:
        """Record the head of a response of httpx or httpx2."""
        self.status_code = response.status_code
        if self.phases.opening is not None:
            return  # fastlane's transport has recorded more than the response has
        extensions = response.extensions
        version = extensions.get("http_version")
        self._http_version = version.decode("ascii", "replace") if isinstance(version, bytes) else None
        stream = extensions.get("network_stream")
        if stream is not None:
            self._connection_id = _local_address(stream)

    def record(self, over_ns: int, *, number: int = 1) -> Attempt:
        """Make the record of the attempt, which ended at `over_ns` (monotonic nanoseconds).

        A cancelled stream may still receive bytes. Whatever came after the end is left out, so that the record is the
        same whenever it is made.
        """
        phases = self.phases
        known: dict[str, Any]
        if phases.started_ns is None:
            traced: Any = {name: stamp for name, stamp in dict(self._traced).items() if stamp <= over_ns}
            closed_ns, ended_ns = traced.pop("closed_ns", None), traced.pop("ended_ns", None)
            if ended_ns is None:
                ended_ns = self.ended_ns if self.ended_ns is not None else closed_ns
            wire = WireStamps(started_ns=self.started_ns, ended_ns=ended_ns, **traced)
            known = {"connection_reused": "connect_started_ns" not in traced if traced else None}
        else:
            opening, opened, rtt_ns = phases.opening, self.opened, phases.round_trip_time_ns
            wire = self._wire(opened, over_ns)
            known = {
                "connection_reused": opened is None if opening is not None else phases.reused,
                "round_trip_time_s": rtt_ns / 1e9 if rtt_ns is not None else None,
                "resent": phases.resent,
            }
            if opening is not None:
                known["connection_id"] = opening.local_address
                known |= {name: getattr(opening, name) for name in ("alpn", "tls_version", "peer_address", "proxy")}
        return Attempt(
            number=number,
            kind=self.kind,
            wire=wire,
            form=self.form,
            status_code=self.status_code,
            error=self.error,
            origin=self.origin,
            path=_path_of(self.url),
            model=self.model,
            given_up=self.given_up,
            request_body_bytes=self.request_body_bytes,
            response_body_bytes=self.response_body_bytes,
            http_version=phases.http_version or self._http_version,
            **{"connection_id": self._connection_id, **known},
        )

    def answer_ended_ns(self, over_ns: int) -> int | None:
        """Return when the end of the response arrived, if a transport saw that before `over_ns`."""
        ended_ns = self._traced.get("ended_ns") if self.phases.started_ns is None else self.phases.answer_ended_ns
        return _until(over_ns, ended_ns)

    def _wire(self, opened: Opening | None, over_ns: int) -> WireStamps:
        phases = self.phases
        first_byte_ns = _until(over_ns, phases.first_byte_ns)
        data_ns = phases.data_ns[: bisect_right(phases.data_ns, over_ns)]
        ended_ns = _until(over_ns, phases.answer_ended_ns)
        if ended_ns is None:
            ended_ns = self.ended_ns
        if ended_ns is None:  # left unread for another attempt: the last bytes that arrived
            ended_ns = data_ns[-1] if len(data_ns) else first_byte_ns
        return WireStamps(
            started_ns=self.started_ns,
            connection_wait_started_ns=phases.connection_wait_started_ns,
            **_opening_stamps(opened),
            send_started_ns=_until(over_ns, phases.send_started_ns),
            send_ended_ns=_until(over_ns, phases.send_ended_ns),
            headers_received_ns=first_byte_ns,
            data_ns=data_ns,
            ended_ns=ended_ns,
        )


_OPENING_STAMPS = (
    "dns_started_ns", "dns_ended_ns", "connect_started_ns", "connect_ended_ns", "tls_started_ns", "tls_ended_ns",
)  # fmt: skip


def _opening_stamps(opened: Opening | None) -> dict[str, Any]:
    if opened is None:
        return {}
    stamps = {name: getattr(opened, name) for name in _OPENING_STAMPS}
    if opened.proxy is not None:
        stamps |= {"connect_started_ns": None, "connect_ended_ns": None}
        stamps |= {"proxy_started_ns": opened.connect_started_ns, "proxy_ended_ns": opened.proxy_ended_ns}
    return stamps


def _until(over_ns: int, stamp: int | None) -> int | None:
    return stamp if stamp is not None and stamp <= over_ns else None


def _path_of(url: Any) -> str | None:
    """Return the path of the HTTP library's URL, without its query."""
    raw = getattr(url, "raw_path", None)
    return raw.partition(b"?")[0].decode("ascii", "replace") if isinstance(raw, bytes) else None


def _local_address(stream: Any) -> str | None:
    try:
        address = stream.get_extra_info("client_addr")
    except Exception:  # noqa: BLE001 - the socket may be closed already: the id is then not known
        return None
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return None


# The answer


class AnswerState:
    """What is known of one answer, read event by event or as a whole: tokens and their times, usage, model, tier."""

    first_event_ns: int | None = None
    first_token_ns: int | None = None
    first_token_kind: TokenKind | None = None
    first_content_ns: int | None = None
    usage: Any = None
    """The provider's `usage` object; it is parsed when the record is made."""
    finish_reason: str | None = None
    model: str | None = None
    service_tier: str | None = None
    request_id: str | None = None
    response_id: str | None = None
    cache_reason: str | None = None
    """Why the provider's cache was missed, as the provider reports it."""
    tier_path: tuple[str, ...] = ()
    """The path to the service tier; empty if it is OpenAI's."""
    frozen = False
    """Whether the call has ended: what is read later is not recorded."""
    # Bit sets of the choices' indexes.
    _seen_choices = 0
    _finished_choices = 0

    def __init__(self, *, is_response: bool) -> None:
        self.is_response = is_response
        self.arrived_ns = 0
        """When the bytes that are being decoded arrived: monotonic nanoseconds; 0 if unknown."""
        self.events = 0
        self.token_ns: array[int] = array("q")
        self._steady = False

    @property
    def finished(self) -> bool:
        """Whether every choice that has begun has a finish reason."""
        return self._seen_choices != 0 and self._finished_choices == self._seen_choices

    def freeze(self, asked: str | None = None) -> None:
        """Stop recording, and drop values that cannot be names or ids. The requested model may have any name."""
        self.frozen = True
        self._steady = False
        if self.model not in known_names and self.model != asked:
            self.model = safe_name(self.model)
        if self.finish_reason not in known_names:
            self.finish_reason = safe_name(self.finish_reason)
        if self.service_tier not in known_names:
            self.service_tier = safe_name(self.service_tier)
        if self.request_id is not None and ID.fullmatch(self.request_id) is None:
            self.request_id = None
        if self.response_id is not None and ID.fullmatch(self.response_id) is None:
            self.response_id = None

    def event(self, event: Any) -> None:
        """Record one decoded event of a stream, whose bytes arrived at `arrived_ns`."""
        if self._steady:
            # The fast path for nearly every event of a chat stream: more content of the only choice.
            try:
                (choice,) = event.choices
                plain = choice.index == 0 and choice.finish_reason is None and event.usage is None
                if plain and choice.delta.content:
                    self.events += 1
                    self.token_ns.append(self.arrived_ns)
                    return
            except (AttributeError, TypeError, ValueError):
                pass
        if self.frozen:
            return
        self.events += 1
        arrived_ns = self.arrived_ns = self.arrived_ns or now_ns()
        if self.first_event_ns is None:
            self.first_event_ns = arrived_ns
        if self.is_response:
            self._response_event(event, arrived_ns)
        else:
            self._chat_event(event, arrived_ns)

    def begin_again(self) -> None:
        """Reset the answer, because another one replaces it."""
        self.events = self.arrived_ns = 0
        self.first_event_ns = self.first_token_ns = self.first_token_kind = self.first_content_ns = None
        self.token_ns = array("q")

    def piece(self, kinds: Iterable[TokenKind]) -> None:
        """Record one event of a stream that is assembled for an application that does not stream."""
        self.events += 1
        if self.first_event_ns is None:
            self.first_event_ns = self.arrived_ns
        for kind in kinds:
            self._token(kind, self.arrived_ns)
            break  # an event is not a token, and counts once

    def _chat_event(self, event: Any, arrived_ns: int) -> None:
        choices = getattr(event, "choices", None)
        if choices and isinstance(choices, list):
            kind = choices_kind(choices)
            if kind is not None:
                self._token(kind, arrived_ns)
            for choice in choices:
                self._choice(choice)
            self._steady = kind == "content" and self._seen_choices == 1
        if self.model is None:
            self.model = string(field(event, "model"))
            self.response_id = string(field(event, "id"))
        # Engines report usage on a last event without choices, on the finishing event, or on every event.
        usage = getattr(event, "usage", None)
        if usage is not None:
            self.usage = usage
        tier = string(field(event, "service_tier"))
        if self.tier_path:
            tier = self._tier_in(event) or tier
        if tier is not None:
            self.service_tier = tier

    def _token(self, kind: TokenKind, arrived_ns: int) -> None:
        if self.first_token_ns is None:
            self.first_token_ns = arrived_ns
            self.first_token_kind = kind
        if kind == "content" and self.first_content_ns is None:
            self.first_content_ns = arrived_ns
        self.token_ns.append(arrived_ns)

    def _choice(self, choice: Any) -> None:
        index = getattr(choice, "index", 0)
        bit = 1 << index if isinstance(index, int) and 0 <= index < 1_024 else 1
        self._seen_choices |= bit
        reason = getattr(choice, "finish_reason", None)
        if reason:
            self._finished_choices |= bit
            if self.finish_reason is None:
                self.finish_reason = reason if isinstance(reason, str) else None

    def _response_event(self, event: Any, arrived_ns: int) -> None:
        event_type = getattr(event, "type", None)
        if not isinstance(event_type, str):
            return
        kind = RESPONSE_KINDS.get(event_type)
        if kind is not None:
            self._token(kind, arrived_ns)
        elif event_type in RESPONSE_ENDS:
            self.whole(getattr(event, "response", None))
            self._seen_choices = self._finished_choices = 1

    def whole(self, answer: Any) -> None:
        """Record a whole answer: one that was not streamed, or the one at the end of a Responses stream."""
        # Read `__dict__`: pydantic takes microseconds for a missing or an extra attribute.
        fields: dict[str, Any] = getattr(answer, "__dict__", {})
        is_typed = isinstance(answer, BaseModel)
        extra = answer.__pydantic_extra__ if is_typed else None
        if extra:
            fields = {**extra, **fields}
        usage = fields.get("usage")
        if usage is not None:
            self.usage = usage
        choices = fields.get("choices")
        if type(choices) is list and choices and isinstance(choices[0], BaseModel):
            reason = choices[0].__dict__.get("finish_reason")
            self.finish_reason = reason if isinstance(reason, str) and reason else None
        else:
            self.finish_reason = finish_reason_of(answer)
        model, response_id, tier = fields.get("model"), fields.get("id"), fields.get("service_tier")
        self.model = model if isinstance(model, str) and model else None
        self.response_id = response_id if isinstance(response_id, str) and response_id else None
        self.service_tier = tier if isinstance(tier, str) and tier else None
        if self.tier_path:
            self.service_tier = self._tier_in(answer) or self.service_tier
        if self.is_response or extra or not is_typed:
            self.cache_reason = cache_miss_reason(answer)
        # openai has read it from the headers already.
        request_id = fields.get("_request_id")
        self.request_id = request_id if isinstance(request_id, str) and request_id else None

    def _tier_in(self, answer: Any) -> str | None:
        for name in self.tier_path:
            answer = None if answer is None else field(answer, name)
        return answer if isinstance(answer, str) else None


# The records of answers


class _Answered(weakref.ref[Any]):
    """A weak reference to an answer, with its call."""

    __slots__ = ("call", "key")

    key: int
    call: CallState


_answered: dict[int, _Answered] = {}
"""By the `id()` of the answer: answers are not hashable, and an attribute would be copied and pickled with them."""


def _forget(answered: _Answered) -> None:
    _answered.pop(answered.key, None)


def remember_answer(answer: Any, call: CallState) -> None:
    """Let `record_of` find the call of an answer, as long as the answer is alive."""
    try:
        answered = _Answered(answer, _forget)
    except TypeError:
        return  # text or bytes
    answered.key, answered.call = id(answer), call
    _answered[answered.key] = answered


def record_of(answer: object) -> CallRecord | None:
    """Return the record of the call that returned an answer.

    `answer`: what a method of the client returned (a response, a parsed object, a stream, a raw response), or the
    stream of a `.stream()` helper. Returns None until a stream has ended, for a copy of an answer, and for an answer
    without a record: from openai's own client, or with FASTLANE_DISABLED. Safe to call from any thread.
    """
    stream = underlying_stream(answer)
    call: CallState | None
    answered = _answered.get(id(stream))
    if answered is not None and answered() is stream:
        call = answered.call
    else:
        # A stream parsed from a raw response: its request refers to the call.
        request = getattr(getattr(stream, "response", None), "request", None)
        call = getattr(request, "extensions", {}).get(OBSERVER)
    return call.record() if call is not None and call.is_final else None
