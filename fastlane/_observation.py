"""Collect what happens to one call until it is over, and turn it into its record exactly once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Literal

from ._answer_seen import AnswerSeen
from ._attempt_stamps import AttemptStamps
from ._call import CallRecord, Form, Outcome, Usage
from ._call_ids import call_id, next_number
from ._clock import now_ns, wall_ns
from ._context import take_issued
from ._json_body import longer_bytes
from ._output_records import BoundedOutputRecord
from ._pipeline import Pipeline
from ._prompt_records import CurationRecord, PromptCacheRecord
from ._recording import outcome_of, record_of, settled
from ._request import body_of
from ._tokens_seen import usage_of
from ._user_action import current_user_action
from .plays._base import Watcher

if TYPE_CHECKING:
    from .encoding import Sending
    from .outputs._guard import Guard
    from .prefixes._account import PromptAccount

EXTENSION = "fastlane.observation"
"""Where a request carries its observation: a stream may be read in another thread or task than it was opened in."""

# Endpoints whose streams end with a finish reason: without one they were cut off.
FINISHING_ENDPOINTS = frozenset({"/chat/completions", "/completions", "/responses"})
# Endpoints whose whole answers report usage.
_ANSWERING_ENDPOINTS = FINISHING_ENDPOINTS | {"/embeddings"}

_CANCELLATIONS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class Observation:
    """One call while it lasts. Sans-IO: the clients and streams tell it what happens."""

    __slots__ = (
        "_action", "_body_error", "_encoded", "_headers", "_issued", "_lock", "_made", "_number", "_over",
        "action_path", "answer", "attempts", "cached_path", "changes", "curation", "decoded", "ended_ns", "endpoint",
        "error", "exhausted", "first_attempt", "guard", "is_done", "method", "model", "next_kind", "optional", "origin",
        "outcome", "output", "pipeline", "prompt", "prompt_cache", "pulling", "received_bytes", "refused", "sending",
        "started_ns", "started_wall_ns", "stream", "streaming", "transport", "watchers",
    )  # fmt: skip

    def __init__(
        self, pipeline: Pipeline, *, method: str, endpoint: str, origin: str, stream: bool, transport: str
    ) -> None:
        # A call that came by one of our resources was issued before it was built.
        entered_ns = now_ns()
        self._issued = take_issued()
        self.started_ns = self._issued.ns if self._issued is not None else entered_ns
        self.started_wall_ns = wall_ns() - (entered_ns - self.started_ns)
        self.pipeline = pipeline
        self._number = next_number()
        self.method = method
        self.endpoint = endpoint
        self.origin = origin
        self.stream = stream
        self.transport = transport
        self.model: str | None = None
        self.changes: tuple[str, ...] = ()
        self.watchers: tuple[Watcher, ...] = ()
        self.guard: Guard | None = None
        """Bounds the output; None where no play asks for that."""
        self.output: BoundedOutputRecord | None = None
        self.sending: Sending | None = None
        """Sends the body in another form than JSON where that pays; None where no play asks for that."""
        self.prompt: PromptAccount | None = None
        """Settles what was to be expected of the provider's prompt cache; None where no play keeps track of that."""
        self.prompt_cache: PromptCacheRecord | None = None
        self.curation: CurationRecord | None = None
        self.optional: tuple[str, ...] = ()
        """Fields of the body that a play added, and that the call goes without where the provider refuses them."""
        self.refused: tuple[str, ...] = ()
        """Those that were."""
        self.next_kind: Literal["plain", "repair"] | None = None
        """Why the next attempt is made, if not because the one before it failed."""
        self.cached_path: tuple[str, ...] = ()
        """Where the provider's usage counts cached tokens, if elsewhere than OpenAI's."""
        self.attempts: list[AttemptStamps] = []
        self.streaming = False
        """The answer's body is handed to the application unread: the call is over when that stream is."""
        self.decoded = False
        """A decoding stream shows its events, so that the bytes need not be looked into."""
        self.pulling = False
        """The decoding stream waits for its source: if the body is closed now, the decoding stream will say why."""
        self.exhausted = False
        """The last byte of the answer's body was read."""
        self.received_bytes = 0
        self.answer = AnswerSeen(is_response=endpoint == "/responses" or endpoint.startswith("/responses/"))
        self._action = current_user_action()
        self.action_path: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._over = False
        self.is_done = False
        self.outcome: Outcome | None = None
        self.error: str | None = None
        self._body_error: BaseException | None = None
        self._headers: Any = None
        self.first_attempt: tuple[Any, Any, Exception | None] | None = None
        """Request, response and error of an attempt that openai's loop is to take for its own first."""
        self._encoded: tuple[Any, Any, bytes | None] | None = None
        self.ended_ns = 0
        self._made: CallRecord | None = None

    @property
    def call_id(self) -> str:
        """Tells the call from every other, also of other processes."""
        return call_id(self._number)

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

    def attempted(self, request: Any, response: Any, error: Exception | None) -> None:
        """The first attempt was not the last word: openai's own loop is to go on from it."""
        self.first_attempt = (request, response, error)

    def take_first_attempt(self) -> Any:
        """The response of the attempt that was made before openai's loop began; raises its error."""
        (_, response, error), self.first_attempt = self.first_attempt or (None, None, None), None
        try:
            if error is not None:
                raise error
            return response
        finally:
            # Its traceback keeps this frame, and with the error in it neither would go before a garbage collection.
            del error

    def begin_attempt(
        self, request_body_bytes: int | None, *, form: Form = "json", plain: bool = False
    ) -> AttemptStamps:
        """An attempt is handed to the HTTP client; `plain`: because the one before it was refused for its form."""
        number = len(self.attempts) + 1
        kind: Any = "first" if number == 1 else "plain" if plain else self.next_kind or "retry"
        self.next_kind = None
        attempt = AttemptStamps(number, request_body_bytes, kind=kind, form=form)
        self.attempts.append(attempt)
        return attempt

    def take_back(self, optional: tuple[str, ...]) -> None:
        """The next attempt is the call without these fields, and none of later calls has them."""
        self.next_kind, self.refused = "plain", (*self.refused, *optional)
        self.changes = (*self.changes, f"sent again without {', '.join(optional)}, which the provider refused")
        if self.prompt is not None:
            self.prompt.refused(optional)
        if self.guard is not None:
            self.guard.refused(optional)

    def asking_again(self) -> None:
        """The next attempt asks for another answer in the place of one that was not valid."""
        self.next_kind = "repair"
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
        attempt = self.attempts[-1]
        attempt.answered(response)
        if response.is_closed:
            attempt.response_body_bytes = response.num_bytes_downloaded
        self._headers = response.headers
        if self.pipeline.needs_facts and response.status_code < 300:
            from .providers import hear  # which a pipeline that needs facts has loaded

            hear(self.origin, response.headers)

    # The answer

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

    @property
    def finishes(self) -> bool:
        """Whether the answer is one that ends with a finish reason: a stored response that is streamed again too."""
        return self.endpoint in FINISHING_ENDPOINTS or self.answer.is_response

    def whole_answer(self, answer: Any) -> None:
        """Look at a whole answer, decoded."""
        if self._says_usage():
            self.answer.answer(answer)

    def raw_answer(self, body: bytes) -> None:
        """Look at a whole answer that the application takes undecoded."""
        if self._says_usage():
            self.answer.raw_answer(body)

    def _says_usage(self) -> bool:
        return self.endpoint in _ANSWERING_ENDPOINTS or self.answer.is_response

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

    def body_closed(self) -> None:
        """The answer's body was closed, by whoever reads it."""
        if not self.pulling:
            self.finish()

    def abandoned(self) -> None:
        """The unread answer was garbage-collected."""
        if not self._over:
            self.outcome = self.outcome or "abandoned"
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
        if self.guard is not None and not abandoned:
            self.guard.settle(is_stream=self.stream, finish_reason=self.answer.finish_reason)
        self._close_account()
        if not abandoned:
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
        if abandoned:
            self.pipeline.remember_abandoned(self)
        else:
            self.pipeline.report(self)

    @property
    def usage(self) -> Usage:
        """What the provider said that the call took."""
        return usage_of(self.answer.usage, self.cached_path)

    @property
    def placements(self) -> Any:
        """What the caller declared of each message of the prompt."""
        return self._issued.placements if self._issued is not None else None

    def _close_account(self) -> None:
        """Take down what is known only now, and let go of what need not be kept."""
        self.ended_ns = now_ns()
        self.outcome = outcome_of(self)
        if self.attempts:
            last = self.attempts[-1]
            if self.streaming:
                last.response_body_bytes = self.received_bytes
            if last.ended_ns is None:
                read_whole = self.is_done or self.exhausted
                last.ended_ns = (self.answer.arrived_ns if read_whole else 0) or self.ended_ns
        if self.answer.request_id is None and self._headers is not None:
            self.answer.request_id = self._headers.get("x-request-id")
        self._headers = self._body_error = self._encoded = self._issued = None
        self.watchers = ()
        if self.guard is not None:
            # A record is remembered for long, and the guard holds the prompt and the answer.
            self.output = self.guard.record()
            self.guard = None
        self.answer.freeze()

    def record(self) -> CallRecord:
        """The record of the call, once it is over."""
        if self._made is None:
            self._made = record_of(self)
        return self._made
