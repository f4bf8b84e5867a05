"""The record of a call that has ended: frozen data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar

from .attempts import Attempt
from .bursts import bursts_of
from .ledger import Entry
from .plays import (
    BoundedOutputRecord,
    ContextTrimmingRecord,
    HedgingRecord,
    PromptCacheRecord,
    RateLimitsRecord,
    RequestEncodingRecord,
    RoutingRecord,
    UrgencyRecord,
)
from .savings import savings_of
from .section import RecordSection
from .timeline import Timeline, seconds
from .usage import Usage

_S = TypeVar("_S", bound=RecordSection)

Outcome = Literal["completed", "truncated", "stopped", "closed", "abandoned", "cancelled", "failed"]
"""How a call ended.

- completed: the whole answer arrived (a stream: with a finish reason or its final event)
- truncated: the stream ended normally, but without a finish reason
- stopped: a play stopped the stream
- closed: the application closed the stream before its end
- abandoned: the application dropped the stream unread, and it was garbage-collected
- cancelled: the task or thread was cancelled or interrupted while it waited
- failed: an error was raised; `error` names its class
"""


Why = Literal["ended", "unknown", "failed"]
"""Why a call went to another arm than the one assigned to its unit.

- ended: that arm has ended
- unknown: the store, which knows the ended arms, could not be read yet
- failed: the client of the arm could not be made
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord:
    """The arm of an experiment that a call went to. Contains only a hash of its unit's id."""

    name: str
    arm: str
    """The arm that handled the call."""
    unit_id_hash: str
    """Identifies the calls of one unit, without its id: keyed by the experiment, so that it differs in each."""
    drawn: str
    """The arm that was assigned to the unit."""
    why: Why | None = None
    """Why it went to another arm than `drawn`; None if it did not. Such calls are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CallRecord:
    """One logical call, retries included. Contains no text of the prompt or the answer, and no key."""

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
    """The model that the provider reports."""
    finish_reason: str | None = None
    """The first choice's finish reason, or the status of a Responses answer."""
    error: str | None = None
    """Class name of the error raised to the application; None without an error."""
    status_code: int | None = None
    request_id: str | None = None
    """The provider's id of the request (`x-request-id`)."""
    response_id: str | None = None
    """The answer's own id."""
    service_tier: str | None = None
    """The service tier that the provider reports."""
    events: int = 0
    """Server-sent events decoded. An event is not a token."""
    plays: tuple[str, ...] = ()
    """The fingerprint: the `repr` of every play of the client."""
    changes: tuple[str, ...] = ()
    """What plays changed, one sentence each."""
    sections: tuple[RecordSection, ...] = ()
    """The sections of the plays that acted on the call."""
    user_actions: tuple[str, ...] = ()
    """Names of the enclosing user actions, outermost first."""
    experiment: ExperimentRecord | None = None
    """The arm of the client's experiment; None without an experiment, and for calls that no play takes part in."""
    transport: str | None = None
    """What carried the last attempt: our own transport on the shared connections ("fastlane"), the HTTP library's own
    ("stock"), or the application's `http_client` ("caller"), whatever its transport is."""

    def __repr__(self) -> str:
        error = f" ({self.error})" if self.error else ""
        many = "" if len(self.attempts) == 1 else f", {len(self.attempts)} attempts"
        return f"<CallRecord {self.endpoint} {self.model}: {self.outcome}{error} in {self.duration_s:.3f} s{many}>"

    # The sections

    def get(self, kind: type[_S]) -> _S | None:
        """Return the section of this class, such as `record.get(HedgingRecord)`; None if the call has none."""
        for section in self.sections:
            if isinstance(section, kind):
                return section
        return None

    @property
    def request_encoding(self) -> RequestEncodingRecord | None:
        """In which form the body was sent; None if no play asked for another than JSON."""
        return self.get(RequestEncodingRecord)

    @property
    def prompt_cache(self) -> PromptCacheRecord | None:
        """What should have been and what was read from the provider's cache; None without the `PromptCache` play."""
        return self.get(PromptCacheRecord)

    @property
    def context_trimming(self) -> ContextTrimmingRecord | None:
        """What was cut from the conversation; None without the `ContextTrimming` play."""
        return self.get(ContextTrimmingRecord)

    @property
    def output(self) -> BoundedOutputRecord | None:
        """How the answer was bounded, stopped and checked.

        None without the `BoundedOutput` play, or where it had nothing to do.
        """
        return self.get(BoundedOutputRecord)

    @property
    def routing(self) -> RoutingRecord | None:
        """Which model was chosen and why; None for a call that named its model itself."""
        return self.get(RoutingRecord)

    @property
    def hedging(self) -> HedgingRecord | None:
        """Whether a second attempt was made; None without the `Hedging` play."""
        return self.get(HedgingRecord)

    @property
    def urgency(self) -> UrgencyRecord | None:
        """How urgent it was, its tier, and how it came to its slot; None without the `Urgency` play."""
        return self.get(UrgencyRecord)

    @property
    def rate_limits(self) -> RateLimitsRecord | None:
        """How it was kept to the provider's rate limits; None without the `RateLimits` play."""
        return self.get(RateLimitsRecord)

    @property
    def verdict(self) -> str | None:
        """The verdict of a check of the answer, such as "valid"; None if there was no check."""
        return next((verdict for section in self.sections if (verdict := section.verdict) is not None), None)

    @property
    def queued_s(self) -> float | None:
        """Seconds in fastlane's queues, all attempts together; None if there was none."""
        waits_s = [each for section in self.sections if (each := section.queued_s) is not None]
        return sum(waits_s) if waits_s else None

    @property
    def plain_body_bytes(self) -> int | None:
        """Bytes of the request's body as JSON, if it may have been sent in another encoding."""
        return next((size for section in self.sections if (size := section.plain_body_bytes) is not None), None)

    # The attempts

    @property
    def last_attempt(self) -> Attempt | None:
        """The attempt that gave the answer, or the last that failed."""
        return self.attempts[-1] if self.attempts else None

    @property
    def connection_reused(self) -> bool | None:
        """Whether the answering attempt reused a connection; None if unknown."""
        return self.attempts[-1].connection_reused if self.attempts else None

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds from issue to the first output of any kind; None without a stream."""
        return seconds(self.timeline.started_ns, self.timeline.first_token_ns)

    @property
    def time_to_first_content_token_s(self) -> float | None:
        """Seconds from issue to the first visible content; None without a stream."""
        return seconds(self.timeline.started_ns, self.timeline.first_content_token_ns)

    @property
    def inter_token_latencies_s(self) -> tuple[float, ...]:
        """Seconds between neighbouring events that carry output, one fewer than such events."""
        return tuple((later - earlier) / 1e9 for earlier, later in pairwise(self.timeline.token_ns))

    @property
    def streamed_output_tokens(self) -> int | None:
        """Output tokens that can have arrived in the stream: reasoning counts only where it was streamed.

        None if they were only estimated.
        """
        output = None if self.usage.estimated else self.usage.output_tokens
        if output is None or not self.usage.reasoning_tokens or self.timeline.first_token_kind == "reasoning":
            return output
        return max(0, output - self.usage.reasoning_tokens)

    @property
    def bursts(self) -> int | None:
        """In how many bursts a stream came that something on the way held back, such as a buffering gateway.

        None if it was not held back, or if the arrival of its bytes was not observed. An event loop that is blocked
        again and again looks the same here; the warning in the log tells the two apart.
        """
        last = self.last_attempt
        if last is None or not len(last.wire.data_ns):
            return None
        return bursts_of(self.timeline.token_ns, last.wire.send_ended_ns)

    @property
    def time_per_output_token_s(self) -> float | None:
        """(API end-to-end - time to first token) / (output tokens - 1), in seconds.

        None without a stream, where the provider reported no count, and below two tokens.
        """
        token_ns, output = self.timeline.token_ns, self.streamed_output_tokens
        if output is None or output < 2 or len(token_ns) < 2:
            return None
        return (token_ns[-1] - token_ns[0]) / 1e9 / (output - 1)

    @property
    def decode_rate(self) -> float | None:
        """Output tokens per second after the first; None if the provider reported no count."""
        per_token_s = self.time_per_output_token_s
        return 1 / per_token_s if per_token_s else None

    @property
    def api_end_to_end_s(self) -> float | None:
        """Seconds from issue to the last output of a stream, or to the whole answer without a stream."""
        timeline = self.timeline
        return seconds(timeline.started_ns, timeline.last_token_ns if timeline.token_ns else timeline.answer_ended_ns)

    @property
    def duration_s(self) -> float:
        """Seconds from issue until the call was over for the application."""
        return (self.timeline.ended_ns - self.timeline.started_ns) / 1e9

    @property
    def savings(self) -> dict[str, Entry]:
        """The savings and costs of this call, by figure: each with its value, unit and basis."""
        return savings_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON data, with derived metrics under "metrics" and savings under "savings"."""
        data = asdict(replace(self, sections=()))
        del data["sections"]
        data["timeline"]["token_ns"] = list(self.timeline.token_ns)
        for attempt, plain in zip(self.attempts, data["attempts"], strict=True):
            plain["wire"]["data_ns"] = list(attempt.wire.data_ns)
        data.update(dict.fromkeys(_SECTIONS))
        data.update({section.name: section.to_dict() for section in self.sections})
        data["metrics"] = {
            "time_to_first_token_s": self.time_to_first_token_s,
            "time_to_first_content_token_s": self.time_to_first_content_token_s,
            "time_per_output_token_s": self.time_per_output_token_s,
            "decode_rate": self.decode_rate,
            "api_end_to_end_s": self.api_end_to_end_s,
            "duration_s": self.duration_s,
            "bursts": self.bursts,
        }
        data["savings"] = {
            name: {"value": entry.value, "unit": entry.unit, "basis": entry.basis}
            for name, entry in self.savings.items()
        }
        return data


# Keys that `to_dict()` always has; None if the call has no such section.
_SECTIONS = tuple(
    section.name
    for section in (
        RequestEncodingRecord,
        PromptCacheRecord,
        ContextTrimmingRecord,
        BoundedOutputRecord,
        RoutingRecord,
        HedgingRecord,
        UrgencyRecord,
        RateLimitsRecord,
    )
)
