"""One call before it is sent (Call) and after it is over (CallRecord): frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..records.attempts import Attempt as Attempt, AttemptKind as AttemptKind, Form as Form
from ..records.output import BoundedOutputRecord
from ..records.prompt import CurationRecord, PromptCacheRecord
from ..records.provider_times import ProviderTimes
from ..records.route import HedgingRecord, RoutingRecord
from ..records.timeline import Timeline
from ..records.urgency import Level, UrgencyRecord

if TYPE_CHECKING:
    from ..experiments._record import ExperimentRecord
    from ..plays.bounded_output.outputs._plan import OutputPlan
    from ..plays.hedging._plan import HedgePlan
    from ..plays.prompt_cache.prefixes._account import PromptAccount
    from ..plays.routing._plan import RoutePlan
    from ..plays.urgency.tiers._plan import UrgencyPlan
    from ..providers import ProviderFacts
    from ..records.savings import Savings

Outcome = Literal["completed", "truncated", "stopped", "closed", "abandoned", "cancelled", "failed"]
"""How a call ended.

- completed: the whole answer came (a stream: with a finish reason or its final event)
- truncated: the stream ended in good order but without a finish reason
- stopped: a play's watcher stopped the stream
- closed: the application closed the stream before its end
- abandoned: the application dropped the stream unread, and it was garbage-collected
- cancelled: the task or thread was cancelled or interrupted while it waited
- failed: an error was raised; `error` names its class
"""


Placement = Literal["stable", "session", "volatile"]
"""How long a part of a prompt stays as it is: for all calls, for one conversation, or for one call."""


class Encode(NamedTuple):
    """Other forms in which a call's body may be sent, where that pays."""

    forms: tuple[Form, ...]
    """The best first; without "json", which is always allowed."""
    known: bool
    """Whether the provider's facts say that it takes them; False where nobody knows."""
    probe: bool = False
    """Whether to find out what is not known, without a call of the application's."""
    min_bytes: int = 0
    """Bodies below this many bytes of JSON are sent as they are."""
    gzip_level: int = 1
    uplink_bytes_per_s: float | None = None
    """What the uplink carries; None: what the kernel has seen it carry, or no limit."""
    msgpack_type: str = "application/vnd.msgpack"
    """The content type of MessagePack."""
    binary_parts: tuple[str, ...] = ()
    """Paths in the body whose base64 text MessagePack may carry as bytes: "messages[].content[].input_audio.data"."""
    remember: str | None = None
    """A file in which to keep what was found out about providers; None for this process only."""


class Upstreams(NamedTuple):
    """What is known of the upstreams of a call, asked without opening or waiting for anything."""

    outlook: Callable[[Any], Any]
    """Of a model of the catalog: what is known of the connection to it (`transport._outlook.Outlook`)."""
    missing_key: Callable[[Any], str | None]
    """Of a model of the catalog: why it cannot be called for want of a key; None where it can."""
    encoded_share: Callable[[str], float | None] | None = None
    """Of an origin: the share of its bytes that a body has there once it is encoded; None where none is."""
    is_checked: bool = False
    """Whether a play checks answers against their schema, so that a provider need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is about to be sent, for plays to rewrite; a play returns a new Call and leaves this one as it is."""

    call_id: str
    endpoint: str
    """The path below the base URL, such as "/chat/completions"."""
    origin: str
    """scheme://host:port of the provider."""
    body: Mapping[str, Any]
    """The JSON body, `extra_body` merged in. Never changed in place: it may be the caller's own mapping."""
    stream: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that plays add to the request. Neither the caller's headers nor any credential are in here."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    facts: ProviderFacts | None = None
    """What is known of the provider; None unless a play needs it (`Play.needs_facts`)."""
    encoding: Encode | None = None
    """Other forms in which the body may be sent; None for JSON and nothing else."""
    issued_ns: int = 0
    """When the application issued it: monotonic nanoseconds, for plays that know what was sent when."""
    placements: tuple[Any, ...] | None = None
    """What the caller declared of each message, or of each part of its content: see `fastlane.Prompt`; None where
    nothing was declared."""
    prompt: PromptAccount | None = None
    """What is to be expected of the provider's prompt cache, which is settled when the call is over."""
    optional: tuple[str, ...] = ()
    """Fields of the body that a play added: where the provider refuses one, the call is sent again without them."""
    refused: frozenset[str] = frozenset()
    """Fields that the provider has refused for this model within the last hour: plays do not add them."""
    curation: CurationRecord | None = None
    """What was cut from the conversation."""
    unread: bool = False
    """The application reads the bytes of the answer itself (`with_streaming_response`): nobody else may."""
    output: OutputPlan | None = None
    """How the answer is to be watched, checked and repaired."""
    upstreams: Upstreams | None = None
    """What is known of the upstreams that the call may go to; None unless one is to be chosen."""
    extra: frozenset[str] = frozenset()
    """Names of the body's fields that the caller gave by `extra_body`."""
    written: bytes | None = None
    """The body as it would be sent if nothing changed it, where that has been written already."""
    route: RoutePlan | None = None
    """Which upstreams are to be tried, in which order; None for a call that names its model itself."""
    hedge: HedgePlan | None = None
    """When a second attempt is to be made, if the first is late."""
    urgency: Level | None = None
    """How urgent the application says that it is; None where it has not said."""
    urgency_plan: UrgencyPlan | None = None
    """How it comes to its place, and which tier it asks for."""

    @property
    def model(self) -> str | None:
        """The model asked for; None where the body names none."""
        model = self.body.get("model")
        return model if isinstance(model, str) else None

    def with_body(self, changed: str, **fields: Any) -> Call:
        """This call with `fields` set in its body, `changed` saying so on the record."""
        return self.replaced(body={**self.body, **fields}, changes=(*self.changes, changed))

    def replaced(self, **fields: Any) -> Call:
        """This call with other values of its own fields, at a third of the CPU of `dataclasses.replace`."""
        call = object.__new__(Call)
        for name in _CALL_FIELDS:
            object.__setattr__(call, name, fields[name] if name in fields else getattr(self, name))
        return call


_CALL_FIELDS = tuple(Call.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the provider reported them; None is unknown, which is not 0."""

    input_tokens: int | None = None
    """All tokens of the prompt, cached ones included."""
    cached_tokens: int | None = None
    """Tokens of the prompt that were read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Tokens of the prompt that were written to the provider's cache, where that is counted."""
    output_tokens: int | None = None
    """All tokens generated, reasoning included."""
    reasoning_tokens: int | None = None
    """Tokens generated as reasoning."""
    estimated: bool = False
    """The provider's own counts were cut off when the stream was stopped, and these are estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingRecord:
    """In which form a call's body was sent, why, what that cost and what it saved by prediction."""

    form: Form
    """That of the attempt that gave the answer, or of the last."""
    reason: str
    """Why that form, in one sentence."""
    plain_bytes: int
    """Of the body as JSON."""
    sent_bytes: int
    """Of the body in `form`."""
    cpu_s: float = 0.0
    """CPU seconds of this thread for writing other forms than JSON, also where they were not sent in the end."""
    plain_rounds: int | None = None
    """Round trips that the JSON body would need to arrive, by the model of `docs/plays/encoding.md`."""
    sent_rounds: int | None = None
    """Round trips that the body as sent needs, by the same model; None where only JSON was considered."""
    round_trip_time_s: float | None = None
    """What the prediction was made with; an assumption where nothing was known of the connection."""
    congestion_window: int | None = None
    """Segments that could leave at once, as the prediction assumed."""
    predicted_saving_s: float = 0.0
    """Seconds by which the answer should come earlier, CPU taken off; 0 where the body went out as JSON."""
    probed: bool = False
    """Whether this call first found out whether the provider takes such bodies."""
    refused: str | None = None
    """What came of an encoded body that was not answered: a status ("415") or an error's class name."""
    send_s: float | None = None
    """Seconds from the first to the last byte of the request that were handed to the socket, as stamped."""
    answer_s: float | None = None
    """Seconds from the first byte of the request to the first of the answer, as stamped: the upload, a way back, and
    what the provider took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """What one logical call did, retries included. Holds no text of the prompt or the answer, and no key."""

    call_id: str
    method: str
    endpoint: str
    origin: str
    model: str | None
    """The model asked for."""
    stream: bool
    outcome: Outcome
    timeline: Timeline
    attempts: tuple[Attempt, ...] = ()
    usage: Usage = field(default_factory=Usage)
    response_model: str | None = None
    """The model that answered, by its own word."""
    finish_reason: str | None = None
    """The first choice's finish reason, or the status of a Responses answer."""
    error: str | None = None
    """Class name of the error raised to the application."""
    status_code: int | None = None
    request_id: str | None = None
    """The provider's id of the request (`x-request-id`)."""
    response_id: str | None = None
    """The answer's own id."""
    service_tier: str | None = None
    """The tier that served the call, by the provider's own word."""
    events: int = 0
    """Server-sent events decoded. An event is not a token."""
    plays: tuple[str, ...] = ()
    """The fingerprint: the `repr` of every play of the client."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    encoding: EncodingRecord | None = None
    """In which form the body was sent; None where no play asked for another than JSON."""
    prompt_cache: PromptCacheRecord | None = None
    """What should have been and what was read from the provider's cache; None without the `PromptCache` play."""
    curation: CurationRecord | None = None
    """What was cut from the conversation; None without the `Curation` play."""
    output: BoundedOutputRecord | None = None
    """How the answer was bounded, stopped and checked; None without the `BoundedOutput` play, or where it had nothing
    to do."""
    routing: RoutingRecord | None = None
    """Which model was chosen and why; None for a call that named its model itself."""
    hedging: HedgingRecord | None = None
    """Whether a second attempt was made; None without the `Hedging` play."""
    provider_times: ProviderTimes | None = None
    """The provider's own times, where its facts say in which header or field it tells them."""
    urgency: UrgencyRecord | None = None
    """How urgent it was, its tier, and how it came to its place; None without the `Urgency` play."""
    user_actions: tuple[str, ...] = ()
    """Names of the user actions around the call, the outermost first."""
    experiment: ExperimentRecord | None = None
    """Which arm of the client's experiment the call went to; None without one, and for calls that no play shapes."""
    transport: str | None = None
    """What carried the last attempt: our own transport on the shared connections ("fastlane"), the HTTP library's own
    ("stock"), or the application's `http_client` ("caller"), whatever its transport is."""

    @property
    def last_attempt(self) -> Attempt | None:
        """The attempt that gave the answer, or the last that failed."""
        return self.attempts[-1] if self.attempts else None

    @property
    def connection_reused(self) -> bool | None:
        """Whether the answering attempt found its connection open; None where that is not known."""
        return self.attempts[-1].connection_reused if self.attempts else None

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from issue to the first output of any kind; None without a stream."""
        return self.timeline.time_to_first_token_s

    @property
    def time_to_first_content_token_s(self) -> float | None:
        """Seconds from issue to the first visible content; None without a stream."""
        return self.timeline.time_to_first_content_token_s

    @property
    def inter_token_latencies_s(self) -> tuple[float, ...]:
        """Seconds between neighbouring events that carry output."""
        return self.timeline.inter_token_latencies_s

    @property
    def streamed_output_tokens(self) -> int | None:
        """Output tokens that can have arrived in the stream: reasoning counts only where it was streamed.

        None where they were only estimated.
        """
        output = None if self.usage.estimated else self.usage.output_tokens
        if output is None or not self.usage.reasoning_tokens or self.timeline.first_token_kind == "reasoning":
            return output
        return output - self.usage.reasoning_tokens

    @property
    def time_per_output_token_s(self) -> float | None:
        """Seconds per output token after the first; None where the provider reported no count."""
        return self.timeline.time_per_output_token_s(self.streamed_output_tokens)

    @property
    def decode_rate(self) -> float | None:
        """Output tokens per second after the first; None where the provider reported no count."""
        return self.timeline.decode_rate(self.streamed_output_tokens)

    @property
    def api_end_to_end_s(self) -> float | None:
        """Seconds from issue to the last output of a stream, or to the whole answer without a stream."""
        return self.timeline.api_end_to_end_s

    @property
    def duration_s(self) -> float:
        """Seconds from issue until the call was over for the application."""
        return self.timeline.duration_s

    @property
    def savings(self) -> Savings:
        """What was saved on this call and what was spent for that, each figure with how it is known."""
        from ..records.savings import savings_of

        return savings_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON data, the derived metrics under "metrics", what was saved under "savings"."""
        data = asdict(self)
        data["timeline"]["token_ns"] = list(self.timeline.token_ns)
        for attempt, plain in zip(self.attempts, data["attempts"], strict=True):
            plain["wire"]["data_ns"] = list(attempt.wire.data_ns)
            plain["connect_losers"] = [loser._asdict() for loser in attempt.connect_losers]
        if self.prompt_cache is not None:
            data["prompt_cache"]["hit_ratio"] = self.prompt_cache.hit_ratio
        data["metrics"] = {
            "time_to_first_token_s": self.time_to_first_token_s,
            "time_to_first_content_token_s": self.time_to_first_content_token_s,
            "time_per_output_token_s": self.time_per_output_token_s,
            "decode_rate": self.decode_rate,
            "api_end_to_end_s": self.api_end_to_end_s,
            "duration_s": self.duration_s,
        }
        data["savings"] = self.savings.to_dict()
        return data
