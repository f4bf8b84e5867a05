"""The fields of the built-in plays' record sections. The plays define how telemetry and reports show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

from .attempts import Form
from .section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEncodingRecord(RecordSection):
    """The encoding of a call's body, its reason and its CPU cost."""

    name: ClassVar[str] = "request_encoding"

    form: Form
    """The encoding of the answering attempt, or of the last one."""
    reason: str
    """Why this encoding was chosen, in one sentence."""
    plain_bytes: int
    """Bytes of the body as JSON."""
    sent_bytes: int
    """Bytes of the body as sent."""
    cpu_s: float = 0.0
    """CPU seconds for encoding the body, even if it was sent as JSON in the end."""
    refused: str | None = None
    """Why an encoded body failed: a status ("415") or an error's class name; None if none failed."""


StopReason = Literal["complete", "whitespace", "prose", "fence"]
"""Why a stream was closed before its end.

- complete: the JSON value was complete
- whitespace: a run of white space after the value or inside it
- prose: text before or after the value, or another value
- fence: text after the closing Markdown fence
"""

OutputVerdict = Literal["valid", "invalid", "truncated", "refused"]
"""The verdict on a structured answer: valid for its schema, invalid, truncated at the token limit, or refused by the
model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedAnswer:
    """One answer that was invalid and was re-asked."""

    verdict: OutputVerdict
    problem: str
    """What was wrong with it, by place and rule: no text of the answer."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    """Whether the counts are estimates, because the stream was stopped before the provider's arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedOutputRecord(RecordSection):
    """How a call's output was bounded, and how it ended."""

    name: ClassVar[str] = "output"

    bound_tokens: int | None = None
    """The most tokens of an answer that the schema allows; None without a schema or a bound."""
    unbounded: tuple[str, ...] = ()
    """Fields without a bound: "Ticket.notes: string without maxLength"."""
    ceiling_field: str | None = None
    """The request field with the token limit; None if none was sent."""
    ceiling_tokens: int | None = None
    headroom_tokens: int = 0
    """Tokens of the limit that are reserved for reasoning."""
    refused_fields: tuple[str, ...] = ()
    """Fields that this play added and the provider refused: the call was sent again without them."""
    dropped_keywords: tuple[str, ...] = ()
    """Schema keywords that the provider refuses: not sent, but still checked by fastlane."""
    stop_reason: StopReason | None = None
    """Why the stream was closed before its end; None if it was not."""
    received_tokens: int | None = None
    """Estimated tokens received when the stream was stopped, reasoning included; None if it was not stopped."""
    tokens_not_generated: int | None = None
    """Tokens between the stop and the request's limit, which the model may have generated otherwise; None without a
    limit."""
    verdict: OutputVerdict | None = None
    """The verdict; None if there was nothing to validate against."""
    problem: str | None = None
    """What was wrong, by path and rule, without text of the answer."""
    checked_ns: tuple[int, int] | None = None
    """Start and end of the check: monotonic nanoseconds; None without a check."""
    rejected: tuple[RejectedAnswer, ...] = ()
    """The invalid answers before the last one, which were re-asked and billed."""


DriftKind = Literal[
    "timestamp", "uuid", "counter", "random", "whitespace", "reordered_keys", "reordered_tools", "changed_tool",
    "changed", "changed_model", "changed_parameter", "compacted", "expired", "evicted",
]  # fmt: skip
"""Why a prompt does not have the same prefix as an earlier one.

- timestamp, uuid, counter, random: the first difference is a value of this kind
- whitespace, reordered_keys, reordered_tools: the same content, written differently
- changed_tool: a tool was added, removed or edited
- changed: a message or a response format was edited, or the kind is uncertain
- changed_model, changed_parameter: the prompt is the same, but another part of the provider's cache key differs
- compacted: messages in the middle were dropped, summarised or shortened
- expired: the same prefix, but last used longer ago than the provider's retention
- evicted: the same prefix, recently used, but not read from the cache: evicted early, or on another machine
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Where and how the prefix of a prompt differs from the expected earlier one."""

    kind: DriftKind
    path: str | None
    """The value in the request's body, such as "messages[0].content" or "tools[2].function.description"; None if no
    value differs (expired, evicted)."""
    character: int | None = None
    """Characters of that value before the difference; None if it is not a string."""
    token_offset: int = 0
    """Estimated tokens of the prompt before the difference."""
    tokens_lost: int = 0
    """Estimated tokens of the common prefix that were lost by the difference."""
    provider_reason: str | None = None
    """The reason that the provider reports ("tools_changed"); None if it reports none."""
    before: str | None = field(default=None, repr=False, compare=False)
    """The text around the difference in the earlier prompt. In memory alone: not in `to_dict()`, repr or copies."""
    after: str | None = field(default=None, repr=False, compare=False)
    """The same text in this prompt. In memory alone."""

    @property
    def diff(self) -> str | None:
        """A word diff of both texts ("- 10:04:11", "+ 10:04:37"); None without both texts."""
        if self.before is None or self.after is None:
            return None
        import difflib

        changed = difflib.ndiff(self.before.split(), self.after.split())
        return "\n".join(line for line in changed if line[0] in "+-")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheRecord(RecordSection):
    """Expected and actual hits of a call in the provider's prompt cache."""

    name: ClassVar[str] = "prompt_cache"

    family: str
    """A keyed hash of origin, model, key and leading segments, which identifies prompts of one kind."""
    prompt_tokens: int
    """Tokens of the prompt as the provider counted them; estimated if it did not report them."""
    reusable_tokens: int
    """Estimated tokens of the longest prefix that an earlier call sent and that has not expired."""
    expected_tokens: int | None
    """Those of them that the provider caches by its facts (whole blocks, above its minimum); None if it is not known to
    cache prompts."""
    cached_tokens: int | None
    """Cached tokens that the provider reports; None (not 0) if it reports none."""
    explanation: Drift | Callable[[], Drift | None] | None = field(default=None, repr=False, compare=False)
    """The drift, or a function that finds it on first access."""
    key: str | None = None
    """The cache key that was sent."""
    shards: int = 1
    """The number of cache keys over which the calls of the family were spread."""

    @property
    def drift(self) -> Drift | None:
        """Why fewer tokens were cached than possible; None if none were lost.

        Prompts are compared when this is first looked at, which takes milliseconds. None as well where the earlier
        prompt is no longer kept: see `PromptCache.kept_bytes`.
        """
        explanation = self.explanation
        if callable(explanation):
            explanation = explanation()
            object.__setattr__(self, "explanation", explanation)
        return explanation

    @property
    def hit_ratio(self) -> float | None:
        """The share of the prompt that was read from the cache; None if the provider does not report it."""
        if self.cached_tokens is None or self.prompt_tokens <= 0:
            return None
        return min(1.0, self.cached_tokens / self.prompt_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The section as plain JSON data."""
        drift = self.drift  # found before: what finds it is no JSON
        shown = asdict(self)
        del shown["explanation"]
        shown_drift = None if drift is None else asdict(drift)
        if shown_drift is not None:
            del shown_drift["before"], shown_drift["after"]
        return {**shown, "drift": shown_drift, "hit_ratio": self.hit_ratio}

    def __getstate__(self) -> list[Any]:
        # A copy has the drift, and neither the memory of prompts that finds it nor text of them.
        drift = None if self.drift is None else replace(self.drift, before=None, after=None)
        return [drift if each.name == "explanation" else getattr(self, each.name) for each in fields(self)]


CutKind = Literal["stubbed", "turn"]
"""Why a part of a conversation was cut: an old result of a tool, replaced by one line; an old turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One message that is shortened or left out."""

    kind: CutKind
    path: str
    """The path of the message in the caller's body: "messages[7]"."""
    tokens: int
    """Tokens saved, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTrimmingRecord(RecordSection):
    """How a conversation was kept within its budget."""

    name: ClassVar[str] = "context_trimming"

    tokens_before: int
    """Estimated tokens of the caller's conversation."""
    tokens_after: int
    """Estimated tokens of the conversation as sent."""
    cuts: tuple[Cut, ...] = ()
    """All cuts in this call, those first made by earlier calls included."""
    new_cuts: int = 0
    """The number of cuts first made in this call, which changes the prefix once; 0: the prefix is unchanged."""
    batches: int = 0
    """How often this conversation has been cut from the high to the low water mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsRecord(RecordSection):
    """How a call was paced to the provider's rate limits."""

    name: ClassVar[str] = "rate_limits"

    waited_s: float
    """Seconds for which it was held back, all attempts together."""
    waited_for: str | None
    """The limit that its last attempt waited for, as the provider's facts name it; "stated" for a limit of yours,
    "retry-after" for a pause that the provider asked for, "refusals" for a rate learned from them; None: it did not
    wait."""
    ahead: int
    """The number of calls ahead of its last attempt when that joined the queue."""
    refused: int
    """Attempts that the provider refused with status 429."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCandidate:
    """One model of the catalog, with the predictions of the decision in seconds."""

    model: str
    """As the catalog names it."""
    provider: str
    origin: str
    quality: float | None
    """In the units of the catalog's index."""
    predicted_s: float | None = None
    """The predicted time at the requested quantile; None if it was not eligible."""
    first_token_s: float | None = None
    decode_s: float | None = None
    cached_tokens: int | None = None
    """Tokens of the prompt that were expected in its cache."""
    why_not: str | None = None
    """Why it was not eligible; None if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """An upstream that failed, so that the next one was tried."""

    model: str
    """As the catalog names it."""
    origin: str
    why: str
    """"connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long", "unfit" or
    "queue" (fastlane's own queue had no slot): see docs/plays/routing.md."""
    after_s: float
    """Seconds from the issue of the call to the failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRecord(RecordSection):
    """The candidates for a call, the chosen model, and the outcome."""

    name: ClassVar[str] = "routing"

    asked: str
    """The requested model: "fastlane/auto…"."""
    task: str | None
    min_quality: float | None
    min_pass_rate: float | None
    """The minimum pass rate; if set, evaluations of the task override the index: see docs/catalog.md."""
    quantile: float
    reason: Literal["fastest", "only", "explored", "probed"]
    """Why the first choice was made."""
    candidates: tuple[RoutingCandidate, ...]
    """Eligible models first, by predicted time (or by remaining cooldown, if all have failed), then the others."""
    chosen: str
    """The model that was tried first, as the catalog names it."""
    model: str | None
    """The model that answered, as the catalog names it; None if none did."""
    provider: str | None
    predicted_s: float | None
    """The predicted seconds of the first choice, at the quantile."""
    predicted_first_token_s: float | None
    """The predicted seconds from issue to the first token."""
    actual_s: float | None
    """The actual API end-to-end seconds; None without an answer."""
    fallbacks: tuple[Fallback, ...] = ()
    body_bytes: int = 0
    """Bytes of the application's body as JSON."""
    input_tokens: int = 0
    """Tokens of the prompt, as estimated for the decision."""
    price: float | None = None
    """The price of the answer, in the catalog's currency; None if the catalog has no prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgingRecord(RecordSection):
    """Whether a call was hedged, and the outcome."""

    name: ClassVar[str] = "hedging"

    delay_s: float | None
    """Seconds without a first token after which to hedge; None for no hedge."""
    hedged: bool
    """Whether a second attempt was made."""
    won: bool | None
    """Whether the second attempt brought the first content; None without one."""
    why_not: str | None
    """Why no second attempt was planned, or made although the first was late."""
    extra_input_tokens: int | None = None
    """Estimated input tokens of the losing attempt."""
    extra_price: float | None = None
    """The price of these tokens; None if the catalog has no prices."""


Level = Literal["interactive", "background", "offline"]
"""The urgency of a call: a user waits for it, it is needed soon, or it may take hours."""

LEVELS: tuple[Level, ...] = ("interactive", "background", "offline")
"""All levels, most urgent first."""


@dataclass(frozen=True, slots=True)
class CallUrgency:
    """The urgency that the application attached to a call (`Call.get`)."""

    level: Level

    @property
    def unread_warning(self) -> str | None:
        """The warning to log if no play reads it; None for no warning."""
        if self.level == "interactive":
            return None
        return (
            f'urgency("{self.level}") has no effect, because this client has no Urgency play: make it with '
            "OpenAI(plays=[Urgency()])"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRecord:
    """How the last attempt of a call got its slot."""

    waited_s: float
    """Seconds in the queue for a slot, all attempts together."""
    ahead: int
    """The number of calls ahead when it joined the queue."""
    concurrency: int | None
    """The concurrency limit when it was sent; None: no known limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgencyRecord(RecordSection):
    """The urgency of a call, its service tier and its wait for a slot."""

    name: ClassVar[str] = "urgency"

    urgency: Level
    asked_tier: str | None = None
    """The service tier that the last attempt requested, whether the play or the caller set it; None without one."""
    served_tier: str | None = None
    """The service tier that the provider reports; None if it reports none."""
    full_tier: str | None = None
    """The tier that had no capacity for it, so that it asked for the usual one; None if none was full."""
    admission: AdmissionRecord | None = None
    """None if the call was not sent."""
