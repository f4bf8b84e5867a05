"""What is known of one call while it lasts, and the attempts that it is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from .._clock import now_ns, wall_ns
from ..compat.context import Issued, take_issued
from ..compat.json_body import longer_bytes
from ..compat.requests import body_of
from ..protocol.endpoints import is_response
from ..records.attempts import Form
from ..records.call_ids import call_id, next_number
from ..records.output import BoundedOutputRecord
from ..records.prompt import PromptCacheRecord
from ..records.provider_times import ProviderTimes
from ..records.record import CallRecord, Outcome
from ..records.section import RecordSection
from ..records.urgency import Level
from ..records.usage import Usage
from .answer_seen import AnswerSeen
from .attempt_stamps import AttemptStamps
from .pipeline import Pipeline
from .play import Watcher
from .refused_fields import Upstream, refusals
from .session import NO_SESSIONS, Sessions
from .user_action import current_user_action

if TYPE_CHECKING:
    from ..plays.bounded_output.outputs._guard import Guard
    from ..plays.prompt_cache.prefixes._account import PromptAccount
    from ..plays.request_encoding._sending import Sending
    from ..protocol.provider_times import TimesSaid
    from ..records.listeners import AssignedArm, CallTrace
    from ..records.section import RecordSection


class ObservedAttempts:
    """What is known of one call while it lasts, and its attempts."""

    __slots__ = (
        "_action", "_body_error", "_doubted", "_encoded", "_ends", "_headers", "_is_first_way", "_issued", "_lock",
        "_made", "_number", "_numbers", "_over", "_usage", "action_path", "answer", "attempts", "before",
        "cached_path", "changes", "collector", "decoded", "ended_ns", "endpoint", "error", "exhausted",
        "experiment", "guard", "is_done", "is_final", "method", "model", "next_kind", "optional", "origin",
        "outcome", "output", "pipeline", "prompt", "prompt_cache", "provider_times", "pulling", "received_bytes",
        "refused", "sections", "sending", "sessions", "started_ns", "started_wall_ns", "stream", "streaming",
        "times_said", "trace", "transport", "upstream", "urgency", "urgent", "validate_ended_ns",
        "validate_started_ns", "watchers",
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
        beside: ObservedAttempts | None = None,
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
        self.watchers: tuple[Watcher, ...] = ()
        self.trace: CallTrace | None = None if beside is None else beside.trace
        """What OpenTelemetry is told of the call; None where nobody listens."""
        self.experiment: AssignedArm | None = experiment if beside is None else beside.experiment
        """Which arm of the client's experiment the call goes to; None without one."""
        self.validate_started_ns: int | None = None
        self.validate_ended_ns: int | None = None
        self.guard: Guard | None = None
        """Bounds the output; None where no play asks for that."""
        self.output: BoundedOutputRecord | None = None
        self.sending: Sending | None = None
        """Sends the body in another form than JSON where that pays; None where no play asks for that."""
        self.prompt: PromptAccount | None = None
        """Settles what was to be expected of the provider's prompt cache; None where no play keeps track of that."""
        self.prompt_cache: PromptCacheRecord | None = None
        self.sessions: Sessions = NO_SESSIONS if beside is None else beside.sessions
        """Those of the plays in this call."""
        self.sections: tuple[RecordSection, ...] = ()
        """What plays say of it in its record."""
        self._ends: tuple[Callable[[str], None], ...] = ()
        self.urgency: Level | None = None if beside is None else beside.urgency
        """How urgent the application says that it is; None where it has not said."""
        self.urgent: Any = None
        """Brings the call to its place, and gives that back; None where no play asks for that."""
        self.optional: tuple[str, ...] = ()
        """Fields of the body that a play added, and that the call goes without where the provider refuses them."""
        self.refused: tuple[str, ...] = ()
        """Those that it was sent without."""
        self._doubted: tuple[tuple[Upstream, tuple[str, ...]], ...] = ()
        self.next_kind: Literal["plain", "repair", "fallback", "hedge", "shared"] | None = None
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
        """Puts a streamed answer together for an application that does not stream; None where nobody asks for that,
        or where `guard` does it."""
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

    def take_back(self, optional: tuple[str, ...], upstream: Upstream) -> None:
        """The next attempt is the call without these fields, which the error names."""
        self.next_kind, self.refused = "plain", (*self.refused, *optional)
        self.changes = (*self.changes, f"sent again without {', '.join(optional)}, which the provider's error names")
        if self.prompt is not None:
            self.prompt.refused(optional)
        self.doubt(optional if self.urgent is None else self.urgent.took_back(optional), upstream)
        if self.upstream is not None and "stream" in optional:
            self.upstream.comes_at_once()

    def doubt(self, fields: tuple[str, ...], upstream: Upstream) -> None:
        """An error names these fields: they were refused if the call succeeds without them."""
        self._doubted = (*self._doubted, (upstream, fields))

    def _believe(self) -> None:
        """The call has succeeded without the fields that an error named: later calls leave them out."""
        for upstream, fields in self._doubted:
            refusals.add(upstream, fields)
            if self.guard is not None:
                self.guard.refused(fields)
        self._doubted = ()

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
            from ..providers import hear

            hear(self.origin, response.headers)
