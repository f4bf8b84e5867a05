"""Collect what happens to one call until it is over, and turn it into its record exactly once."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from .._clock import now_ns
from ..compat.bodies import OBSERVER
from ..compat.clients import underlying_stream
from ..compat.context import in_finalizer
from ..protocol.endpoints import EMBEDDINGS, GENERATING
from ..protocol.usage import usage_counts
from ..records.record import CallRecord
from ..records.usage import Usage
from .observed_attempts import ObservedAttempts
from .recording import outcome_of, record_of as make_record, settled
from .session import NO_SESSIONS

_AT_ONCE = (False,)
_CANCELLATIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class Observation(ObservedAttempts):
    """One call while it lasts. Sans-IO: the clients and streams tell it what happens."""

    __slots__ = ()

    # The answer

    def has_times(self, timing: Any) -> None:
        """The provider says its own times, where that part of its facts says."""
        from ..protocol.provider_times import times_said

        said = self.times_said = times_said(timing)
        self.answer.times_in = said.in_answer if said is not None else None

    def shown(self, event: Any) -> bool:
        """Show one decoded event to the watchers; True if the stream should stop after this one."""
        if self._over:
            return False
        stop = False
        for watcher in self.watchers:
            stop = self.pipeline.see(watcher, event) or stop
        if stop:
            self.outcome = "stopped"
        return stop

    def closing_events(self, typed: Callable[[Any], Any]) -> list[Any]:
        """Return the events that end a stream which a play has stopped, each made by `typed` of its JSON.

        Raises InvalidOutputError for a stream that was stopped because it could not become valid.
        """
        guard, answer = self.guard, self.answer
        stopper = next((one for one in self.watchers if hasattr(one, "closing")), None)
        if guard is None or stopper is None:
            return []
        try:
            events = [typed(event) for event in stopper.closing()]
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            self.pipeline.went_wrong(stopper, "closing", error)
            return []
        invalid = guard.error_of_stream()
        if invalid is None:
            # They say how the answer ended, but none of them arrived.
            stamped, counted = answer.token_ns[:], answer.events
            for event in events:
                answer.event(event)
            answer.token_ns, answer.events = stamped, counted
        if answer.usage is None and guard.usage:
            answer.usage = SimpleNamespace(**guard.usage)
        if invalid is not None:
            raise invalid  # a finish reason would say that the model had ended it so
        return events

    @property
    def finishes(self) -> bool:
        """Whether the answer is one that ends with a finish reason: a stored response that is streamed again too."""
        return self.endpoint in GENERATING or self.answer.is_response

    def whole_answer(self, answer: Any) -> None:
        """Look at a whole answer, decoded."""
        if self._says_usage():
            self.answer.answer(answer)
        if self.trace is not None:
            self.trace.answered(self, answer)

    def raw_answer(self, body: bytes) -> None:
        """Look at a whole answer that the application takes undecoded."""
        if self._says_usage():
            answer = self.answer.raw_answer(body)
            if answer is not None and self.trace is not None:
                self.trace.answered(self, answer)

    def _says_usage(self) -> bool:
        return self.finishes or self.endpoint == EMBEDDINGS

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
        if self.urgent is not None:
            self.urgent.end()

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
        self.failed(error)
        self.finish()
        if self.urgent is not None:
            self.urgent.end()

    def set_aside(self) -> None:
        """The call goes on another way, whose observation makes the record."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._action = None
        self._stamp_end()
        self._close_account()
        if self.prompt is not None:
            settled(self, self.prompt)
            self.prompt = None

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
        if self.guard is not None:
            checking_ns = now_ns()
            self.guard.settle(is_stream=self.stream, finish_reason=self.answer.finish_reason)
            if self.stream and not quietly:
                self.validate_started_ns, self.validate_ended_ns = checking_ns, now_ns()
        if not quietly:
            self._stamp_end()
        self._close_account()
        if self.sessions is not NO_SESSIONS:
            self.sections += self.sessions.close(self, quietly=quietly)
            self.sessions = NO_SESSIONS
        if self.sending is not None and self.answer.usage is not None and not self.usage.estimated:
            self.sending.ended(self.usage.input_tokens)
        if self.prompt is not None:
            self.prompt_cache = settled(self, self.prompt)
        # A record is remembered for long, and hashes of the whole prompt weigh more than the record.
        self.prompt = None
        action, self._action = self._action, None
        if action is not None:
            self.action_path = action.path
            action.add(self.record())
        if self.experiment is not None:
            self.experiment.over(self)
        self.is_final = True
        try:
            self._tell_downgrade(quietly=quietly)
            self.pipeline.report(self, quietly=quietly)
        finally:
            self._tell_telemetry(quietly=quietly)

    def _tell_downgrade(self, *, quietly: bool) -> None:
        """Tell the application that a slower tier has served than the one it asked for, where it wants to know."""
        if self.urgent is not None:
            self.urgent.tell_downgrade(quietly=quietly)

    def _tell_telemetry(self, *, quietly: bool) -> None:
        """Tell OpenTelemetry of the call that is over, if anybody listens."""
        trace, self.trace = self.trace, None
        if trace is not None:
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
        self.outcome = outcome_of(self)

    def record_without_sections(self) -> CallRecord:
        """The record of the call before its sessions have added to it."""
        return make_record(self)

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
        self._read_times()
        self._headers = self._body_error = self._encoded = self._issued = None
        self.watchers = ()
        self.upstream = self.collector = None
        if self.guard is not None:
            # A record is remembered for long, and the guard holds the prompt and the answer.
            self.output = self.guard.record()
            self.guard = None
        self.answer.freeze(self.model)
        if self.urgent is not None:
            self.urgent.end()

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
        return make_record(self, "completed")

    def record(self) -> CallRecord:
        """The record of the call, once it is over."""
        if self._made is None:
            self._made = make_record(self)
        return self._made


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
