"""Collect what happens to one call until it is over, and turn it into its record exactly once."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import threading
from array import array
from typing import Any

from . import _tokens_seen
from ._attempt_stamps import AttemptStamps
from ._call import CallRecord, Outcome, Usage
from ._clock import now_ns, wall_ns
from ._pipeline import Pipeline
from ._timeline import Timeline, TokenKind
from ._user_action import current_user_action
from .plays._base import Watcher

EXTENSION = "fastlane.observation"
"""Where a request carries its observation: a stream may be read in another thread or task than it was opened in."""

# Endpoints whose streams end with a finish reason: without one they were cut off.
FINISHING_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})

_CANCELLATIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)

_call_numbers = itertools.count(1)


class _Process:
    """Tells the calls of this process from those of others."""

    prefix = secrets.token_hex(4)


def _renew_prefix() -> None:
    _Process.prefix = secrets.token_hex(4)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_prefix)


class Observation:
    """One call while it lasts. Sans-IO: the clients and streams tell it what happens."""

    __slots__ = (
        "_action",
        "_answer_ended_ns",
        "_body_error",
        "_done",
        "_ended_ns",
        "_error",
        "_events",
        "_finish_reason",
        "_finished_choices",
        "_first_content_ns",
        "_first_event_ns",
        "_first_token_kind",
        "_first_token_ns",
        "_headers",
        "_is_response",
        "_lock",
        "_made",
        "_outcome",
        "_over",
        "_request_id",
        "_response_model",
        "_seen_choices",
        "_service_tier",
        "_started_ns",
        "_started_wall_ns",
        "_steady",
        "_token_ns",
        "_usage",
        "arrived_ns",
        "attempts",
        "call_id",
        "changes",
        "decoded",
        "endpoint",
        "exhausted",
        "method",
        "model",
        "origin",
        "pipeline",
        "pulling",
        "received_bytes",
        "stream",
        "streaming",
        "transport",
        "watchers",
    )

    def __init__(
        self, pipeline: Pipeline, *, method: str, endpoint: str, origin: str, stream: bool, transport: str
    ) -> None:
        self._started_wall_ns = wall_ns()
        self._started_ns = now_ns()
        self.pipeline = pipeline
        self.call_id = f"{_Process.prefix}-{next(_call_numbers)}"
        self.method = method
        self.endpoint = endpoint
        self.origin = origin
        self.stream = stream
        self.transport = transport
        self.model: str | None = None
        self.changes: tuple[str, ...] = ()
        self.watchers: tuple[Watcher, ...] = ()
        self.attempts: list[AttemptStamps] = []
        self.streaming = False
        """The answer's body is handed to the application unread: the call is over when that stream is."""
        self.decoded = False
        """A decoding stream shows its events, so that the bytes need not be looked into."""
        self.pulling = False
        """The decoding stream waits for its source: if the body is closed now, the decoding stream will say why."""
        self.exhausted = False
        """The last byte of the answer's body was read."""
        self.arrived_ns = 0
        """When the bytes that are being decoded were read."""
        self.received_bytes = 0
        self._action = current_user_action()
        self._lock = threading.Lock()
        self._over = False
        self._is_response = endpoint == "/responses"
        self._steady = False
        self._done = False
        self._outcome: Outcome | None = None
        self._error: str | None = None
        self._body_error: BaseException | None = None
        self._events = 0
        self._first_event_ns: int | None = None
        self._first_token_ns: int | None = None
        self._first_token_kind: TokenKind | None = None
        self._first_content_ns: int | None = None
        self._answer_ended_ns: int | None = None
        self._token_ns: array[int] = array("q")
        self._usage: Any = None
        self._finish_reason: str | None = None
        self._seen_choices = 0
        self._finished_choices = 0
        self._response_model: str | None = None
        self._service_tier: str | None = None
        self._request_id: str | None = None
        self._headers: Any = None
        self._ended_ns = 0
        self._made: CallRecord | None = None

    # The attempts

    def begin_attempt(self, request_body_bytes: int | None) -> AttemptStamps:
        """An attempt is handed to the HTTP client."""
        attempt = AttemptStamps(len(self.attempts) + 1, request_body_bytes)
        self.attempts.append(attempt)
        return attempt

    def attempt_failed(self, error: BaseException) -> None:
        """The attempt ended without an answer."""
        attempt = self.attempts[-1]
        attempt.error = type(error).__name__
        if attempt.ended_ns is None:
            attempt.ended_ns = now_ns()

    def attempt_answered(self, response: Any) -> None:
        """The head of an answer has come, and its body too unless the caller streams."""
        self.attempts[-1].answered(response)
        self._headers = response.headers

    # The answer

    def event(self, event: Any) -> bool:
        """Look at one decoded event of the stream; True if it should stop after this one."""
        arrived = self.arrived_ns or now_ns()
        self._events += 1
        if self._steady:
            # The path of nearly every event of a chat stream: more content of the only choice, and nothing else.
            try:
                (choice,) = event.choices
                plain = choice.index == 0 and choice.finish_reason is None and event.usage is None
                if plain and choice.delta.content:
                    self._token_ns.append(arrived)
                    return False
            except (AttributeError, TypeError, ValueError):
                pass
        if self._first_event_ns is None:
            self._first_event_ns = arrived
        if self._is_response:
            self._response_event(event, arrived)
        else:
            self._chat_event(event, arrived)
        return self._seen_by_watchers(event) if self.watchers else False

    def _chat_event(self, event: Any, arrived: int) -> None:
        choices = getattr(event, "choices", None)
        if choices and isinstance(choices, list):
            kind = _tokens_seen.kind_of_choices(choices)
            if kind is not None:
                self._token(kind, arrived)
            for choice in choices:
                self._choice(choice)
            self._steady = kind == "content" and self._seen_choices == 1 and not self.watchers
        if self._response_model is None:
            self._response_model = _tokens_seen.text_of(event, "model")
        # Engines report usage on a last event without choices, on the finishing event, or on every event.
        usage = getattr(event, "usage", None)
        if usage is not None:
            self._usage = usage
        tier = _tokens_seen.text_of(event, "service_tier")
        if tier is not None:
            self._service_tier = tier

    def _token(self, kind: TokenKind, arrived_ns: int) -> None:
        if self._first_token_ns is None:
            self._first_token_ns = arrived_ns
            self._first_token_kind = kind
        if kind == "content" and self._first_content_ns is None:
            self._first_content_ns = arrived_ns
        self._token_ns.append(arrived_ns)

    def _choice(self, choice: Any) -> None:
        index = getattr(choice, "index", 0)
        bit = 1 << index if isinstance(index, int) and 0 <= index < 1_024 else 1
        self._seen_choices |= bit
        reason = getattr(choice, "finish_reason", None)
        if reason:
            self._finished_choices |= bit
            if self._finish_reason is None:
                self._finish_reason = reason if isinstance(reason, str) else None

    def _response_event(self, event: Any, arrived_ns: int) -> None:
        event_type = getattr(event, "type", None)
        if not isinstance(event_type, str):
            return
        kind = _tokens_seen.kind_of_response_event(event_type)
        if kind is not None:
            self._token(kind, arrived_ns)
        elif _tokens_seen.ends_response(event_type):
            self.answer(getattr(event, "response", None))
            self._seen_choices = self._finished_choices = 1

    def _seen_by_watchers(self, event: Any) -> bool:
        stop = False
        for watcher in self.watchers:
            stop = self.pipeline.see(watcher, event) or stop
        if stop:
            self._outcome = "stopped"
        return stop

    def answer(self, answer: Any) -> None:
        """Look at a whole answer: an unstreamed one, or the one that a Responses stream ends with."""
        if answer is None:
            return
        usage = getattr(answer, "usage", None)
        if usage is not None:
            self._usage = usage
        self._finish_reason = _tokens_seen.finish_reason_of(answer)
        self._response_model = _tokens_seen.text_of(answer, "model")
        self._service_tier = _tokens_seen.text_of(answer, "service_tier")
        # openai has read it from the headers already.
        self._request_id = _tokens_seen.text_of(answer, "_request_id")

    def raw_answer(self, body: bytes) -> None:
        """Look at a whole answer that the application takes undecoded."""
        if self.endpoint in FINISHING_ENDPOINTS or self.endpoint == "/embeddings":
            try:
                self.answer(_tokens_seen.from_json(body))
            except ValueError:
                pass

    # The end

    def failed(self, error: BaseException) -> None:
        """An error is on its way to the application, which ends the call."""
        if self._body_error is not None:
            self.attempt_failed(self._body_error)
        if isinstance(error, GeneratorExit):
            return  # the application stopped reading: what has come by then says how the call ended
        cancelled = isinstance(error, _CANCELLATIONS) or type(error).__name__ == "Cancelled"  # trio's, not imported
        self._outcome = "cancelled" if cancelled else "failed"
        # The last word counts: a broken connection reaches the application as openai's own error.
        self._error = type(error).__name__

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
        self._done = True

    def body_closed(self) -> None:
        """The answer's body was closed, by whoever reads it."""
        if not self.pulling:
            self.finish()

    def abandoned(self) -> None:
        """The unread answer was garbage-collected."""
        if not self._over:
            self._outcome = self._outcome or "abandoned"
            self._finish(abandoned=True)

    def finish(self) -> None:
        """The call is over: make its record and report it, unless that has been done."""
        if not self._over:
            self._finish(abandoned=False)

    def _finish(self, *, abandoned: bool) -> None:
        # A stream may be closed by one thread while another reads it. A finaliser may interrupt the very thread that
        # holds the lock, so it does not wait: whoever holds it is finishing already.
        if not self._lock.acquire(blocking=not abandoned):
            return
        try:
            if self._over:
                return
            self._over = True
        finally:
            self._lock.release()
        self._close_account()
        if self._action is not None:
            self._action.add(self.record())
        if abandoned:
            self.pipeline.remember_abandoned(self)
        else:
            self.pipeline.report(self)

    def _how_it_ended(self) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        if not self.streaming:
            return "completed"
        if self.endpoint in FINISHING_ENDPOINTS and (self.decoded or self._events):
            if self._seen_choices and self._finished_choices == self._seen_choices:
                return "completed"
            return "truncated" if self._done or self.exhausted else "closed"
        return "completed" if self._done or self.exhausted else "closed"

    def _close_account(self) -> None:
        """Take down what is known only now, and let go of what need not be kept."""
        self._ended_ns = now_ns()
        self._outcome = self._how_it_ended()
        if self.attempts:
            last = self.attempts[-1]
            if self.streaming:
                last.response_body_bytes = self.received_bytes
            if last.ended_ns is None:
                last.ended_ns = self.arrived_ns or self._ended_ns
        if self._request_id is None and self._headers is not None:
            self._request_id = self._headers.get("x-request-id")
        self._headers = self._body_error = None
        self.watchers = ()

    def record(self) -> CallRecord:
        """The record of the call, once it is over."""
        if self._made is None:
            self._made = self._make_record()
        return self._made

    def _make_record(self) -> CallRecord:
        last = self.attempts[-1] if self.attempts else None
        outcome = self._outcome or "failed"
        answer_ended_ns = None
        if last is not None and outcome in ("completed", "truncated") and (not self.streaming or self.exhausted):
            answer_ended_ns = last.ended_ns
        elif self._done:
            answer_ended_ns = self.arrived_ns
        return CallRecord(
            call_id=self.call_id,
            method=self.method,
            endpoint=self.endpoint,
            origin=self.origin,
            model=self.model,
            stream=self.stream,
            outcome=outcome,
            timeline=Timeline(
                started_wall_ns=self._started_wall_ns,
                started_ns=self._started_ns,
                ended_ns=self._ended_ns,
                answer_ended_ns=answer_ended_ns,
                first_event_ns=self._first_event_ns,
                first_token_ns=self._first_token_ns,
                first_token_kind=self._first_token_kind,
                first_content_token_ns=self._first_content_ns,
                token_ns=self._token_ns,
            ),
            attempts=tuple([attempt.record() for attempt in self.attempts]),
            usage=Usage() if self._usage is None else _tokens_seen.usage_of(self._usage),
            response_model=self._response_model,
            finish_reason=self._finish_reason,
            error=self._error,
            status_code=last.status_code if last is not None else None,
            request_id=self._request_id,
            service_tier=self._service_tier,
            events=self._events,
            plays=self.pipeline.fingerprint,
            changes=self.changes,
            user_actions=self._action.path if self._action is not None else (),
            transport=self.transport,
        )
