"""What the built-in plays say of a call in its record: the facts alone. How they are shown is the plays' own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from .attempts import Form
from .section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEncodingRecord(RecordSection):
    """In which form a call's body was sent, why, what that cost and what it saved by prediction."""

    name: ClassVar[str] = "request_encoding"

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
    """Round trips that the JSON body would need to arrive, by the model of `docs/plays/request_encoding.md`."""
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


StopReason = Literal["complete", "whitespace", "prose", "fence", "stop_sequence", "stop_when"]
"""Why a stream was closed before the model had ended it.

- complete: the JSON value has its last brace
- whitespace: a run of white space, behind the value or inside of it
- prose: text before or behind the value, or another value
- fence: something behind the Markdown fence that stands behind the value
- stop_sequence, stop_when: what `BoundedOutput(stop=...)` or `(stop_when=...)` asked for
"""

OutputVerdict = Literal["valid", "invalid", "truncated", "refused"]
"""What became of a structured answer: valid for its schema, not valid, cut off at the limit of tokens, or refused
by the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedAnswer:
    """One answer that was paid for, was not valid, and was asked for again."""

    verdict: OutputVerdict
    problem: str
    """What was wrong with it, by place and rule: no text of the answer."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    """The provider's count was cut off with the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedOutputRecord(RecordSection):
    """How a call's output was bounded, and how it ended."""

    name: ClassVar[str] = "output"

    bound_characters: int | None = None
    """Of the longest answer that the schema allows, indented; None where it allows any length, or there is none."""
    bound_tokens: int | None = None
    """The same in tokens of the model, at worst."""
    likely_tokens: int | None = None
    """What an answer of usual texts comes to, estimated."""
    unbounded: tuple[str, ...] = ()
    """Fields without a bound: "Ticket.notes: string without maxLength or pattern"."""
    ceiling_field: str | None = None
    """The request's field in which the bound was sent; None where none was."""
    ceiling_tokens: int | None = None
    headroom_tokens: int = 0
    """Tokens of the ceiling that are there for reasoning."""
    refused_fields: tuple[str, ...] = ()
    """Fields that this play added and the provider refused: the call was sent again without them."""
    dropped_keywords: tuple[str, ...] = ()
    """Keywords of the schema that the provider refuses: not sent, and still enforced here."""
    notes: tuple[str, ...] = ()
    """What was left as it was, and why."""
    stop_reason: StopReason | None = None
    """Why the stream was closed before its end; None where it was not."""
    effort: str | None = None
    """The reasoning effort that was asked for."""
    visible_tokens: int | None = None
    """Of the answer without its reasoning, estimated."""
    received_tokens: int | None = None
    """Tokens that had come when the stream was stopped, reasoning included, estimated; None where it was not."""
    tokens_not_generated: int | None = None
    """Tokens between those and the request's limit, which a model that runs on would have generated; None where the
    request has no limit."""
    verdict: OutputVerdict | None = None
    """None where nothing says what would be valid."""
    problem: str | None = None
    """What was wrong, by place and rule: no text of the answer."""
    checked_at_ns: tuple[int, int] | None = None
    """When the answer was checked, from and until: monotonic nanoseconds; None where it was not."""
    rejected: tuple[RejectedAnswer, ...] = ()
    """The answers before the last, each of which was asked for again: what else was paid for."""

    @property
    def checked_ns(self) -> tuple[int, int] | None:
        """When the answer was checked."""
        return self.checked_at_ns


DriftKind = Literal[
    "timestamp", "uuid", "counter", "random", "whitespace", "reordered_keys", "reordered_tools", "changed_tool",
    "changed", "changed_model", "changed_parameter", "compacted", "expired", "evicted",
]  # fmt: skip
"""What broke the beginning that a prompt had in common with an earlier one.

- timestamp, uuid, counter, random: a value of this sort differs, and nothing before it
- whitespace, reordered_keys, reordered_tools: the same content, written otherwise
- changed_tool: a tool was added, removed or edited
- changed: a message or a response format was edited, or it is not certain how
- changed_model, changed_parameter: the prompt is the same, but what else the provider keeps caches apart by is not
- compacted: messages in the middle were dropped, summarised or shortened
- expired: the same beginning, but its last use lies longer ago than the provider keeps it
- evicted: the same beginning, and recent, and yet not read from the cache: given up early, or on another machine
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Where and how a prompt departs from the earlier one that it was expected to begin like."""

    kind: DriftKind
    path: str | None
    """The value in the request's body, such as "messages[0].content" or "tools[2].function.description"; None where no
    value differs (expired, evicted)."""
    character: int | None = None
    """Characters of that value before the difference, None where it is not a text."""
    token_offset: int = 0
    """Tokens of the prompt before the difference, estimated."""
    tokens_lost: int = 0
    """Tokens that an unbroken beginning would have in common with the earlier prompt, beyond those that this has."""
    provider_reason: str | None = None
    """The provider's own word for it, where it gives one ("tools_changed")."""
    before: str | None = None
    """The text around the difference in the earlier prompt; only with `PromptCache(quote=True)`."""
    after: str | None = None
    """The same text in this prompt; only with `PromptCache(quote=True)`."""

    @property
    def diff(self) -> str | None:
        """What changed, word by word ("- 10:04:11", "+ 10:04:37"); None without both texts."""
        if self.before is None or self.after is None:
            return None
        import difflib

        changed = difflib.ndiff(self.before.split(), self.after.split())
        return "\n".join(line for line in changed if line[0] in "+-")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCacheRecord(RecordSection):
    """What a call should have found in the provider's prompt cache, and what it did find."""

    name: ClassVar[str] = "prompt_cache"

    family: str
    """Tells prompts of one kind from others: origin, model, key and leading segments. A keyed hash, not the text."""
    prompt_tokens: int
    """As the provider counted; estimated where it did not say."""
    reusable_tokens: int
    """Tokens of the prompt's beginning that an earlier call has sent alike, and that have not expired, estimated."""
    expected_tokens: int | None
    """Of these, what the provider keeps by its facts (whole blocks, above its minimum); None where nobody knows that it
    keeps anything."""
    cached_tokens: int | None
    """What it read from its cache, by its own word; None where it says nothing, which is not 0."""
    explanation: Drift | Callable[[], Drift | None] | None = field(default=None, repr=False, compare=False)
    """The drift, or what finds it when it is first looked at."""
    key: str | None = None
    """The cache key that was sent."""
    shards: int = 1
    """Among how many keys the family's calls were spread when this one was sent."""

    @property
    def drift(self) -> Drift | None:
        """Why less was read than an unbroken prompt would have given; None where nothing was lost.

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
        """The share of the prompt that was read from the cache; None where the provider does not say."""
        if self.cached_tokens is None or self.prompt_tokens <= 0:
            return None
        return min(1.0, self.cached_tokens / self.prompt_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The section as plain JSON data."""
        drift = self.drift  # found before: what finds it is no JSON
        shown = asdict(self)
        del shown["explanation"]
        return {**shown, "drift": None if drift is None else asdict(drift), "hit_ratio": self.hit_ratio}

    def __getstate__(self) -> list[Any]:
        # A copy has the drift, and not the memory of prompts that finds it.
        return [self.drift if each.name == "explanation" else getattr(self, each.name) for each in fields(self)]


CutKind = Literal["repeated", "stubbed", "turn"]
"""Why a part of a conversation was cut: a tool's result that a later call has got again; an old result, replaced by one
line; an old turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One message that is sent shortened, or not at all."""

    kind: CutKind
    path: str
    """The message as the caller wrote it: "messages[7]"."""
    tokens: int
    """Tokens saved, estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTrimmingRecord(RecordSection):
    """How a conversation was kept within its budget."""

    name: ClassVar[str] = "context_trimming"

    tokens_before: int
    """Of the conversation as the caller gave it, estimated."""
    tokens_after: int
    """As it was sent."""
    cuts: tuple[Cut, ...] = ()
    """All cuts that are in force in this call, those of earlier calls too."""
    new_cuts: int = 0
    """How many of them were first made with this call, which breaks the prefix once; 0: it is the last call's."""
    batches: int = 0
    """How often this conversation has been cut from the high to the low water mark."""
    ratio: float | None = None
    """By what the estimates were multiplied, by what the provider had counted of earlier prompts when the conversation
    began; None where its tokens are counted and not estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsRecord(RecordSection):
    """How a call was kept to the provider's rate limits."""

    name: ClassVar[str] = "rate_limits"

    waited_s: float
    """Seconds for which it was held back, all attempts together."""
    waited_for: str | None
    """The limit that its last attempt waited for, as the provider's facts name it; "stated" for the application's own,
    "retry-after" for a pause that the provider asked for, "refusals" for a rate learned from them; None: it did not
    wait."""
    ahead: int
    """Calls that were to be sent before its last attempt when that came."""
    refused: int
    """Attempts that the provider refused all the same, with status 429."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCandidate:
    """One model of the catalog, as the decision saw it. Seconds."""

    model: str
    """As the catalog names it."""
    provider: str
    origin: str
    quality: float | None
    """In the units of the catalog's index."""
    predicted_s: float | None = None
    """At the quantile that was asked for; None where it was not eligible."""
    connect_s: float | None = None
    upload_s: float | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    cached_tokens: int | None = None
    """Tokens of the prompt that its cache was expected to have."""
    why_not: str | None = None
    """Why it was not eligible; None where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """An upstream that was tried and left for the next one."""

    model: str
    """As the catalog names it."""
    origin: str
    why: str
    """"connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long", "unfit" or
    "queue" (our own had no place for it): see docs/plays/routing.md."""
    after_s: float
    """Seconds that the call had taken by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRecord(RecordSection):
    """Which models could have answered a call, which one was chosen, and what came of it."""

    name: ClassVar[str] = "routing"

    asked: str
    """What stood in the place of the model: "fastlane/auto…"."""
    task: str | None
    min_quality: float | None
    min_pass_rate: float | None
    """With which, where there is one, evaluations of the task outweigh the index: see docs/catalog.md."""
    quantile: float
    reason: Literal["fastest", "only", "explored", "probed"]
    """Why the first choice was made."""
    candidates: tuple[RoutingCandidate, ...]
    """The eligible ones first, the fastest of them first, or who rests the shortest where all rest after failures; then
    the others."""
    chosen: str
    """The model that was tried first, as the catalog names it."""
    model: str | None
    """The model that answered, as the catalog names it; None where none did."""
    provider: str | None
    predicted_s: float | None
    """What was predicted for the first choice, at the quantile."""
    predicted_first_token_s: float | None
    """From the call's start to its first token, by the same prediction."""
    actual_s: float | None
    """What the call took, API end-to-end; None where no answer came."""
    fallbacks: tuple[Fallback, ...] = ()
    body_bytes: int = 0
    """Of the call's body as JSON, as the application gave it."""
    input_tokens: int = 0
    """Tokens of the prompt, as estimated for the decision."""
    price: float | None = None
    """What the answer cost by the catalog's prices, in the catalog's currency; None where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgingRecord(RecordSection):
    """Whether a call was given a second chance, and what came of it."""

    name: ClassVar[str] = "hedging"

    delay_s: float | None
    """Seconds without a first token after which a second attempt was to be made; None where none was."""
    hedged: bool
    """Whether it was made."""
    won: bool | None
    """Whether it brought the first content; None where it was not made."""
    why_not: str | None
    """Why no second attempt was to be made, or was not made though the first was late."""
    origin: str | None = None
    """Where the second attempt went."""
    model: str | None = None
    extra_input_tokens: int | None = None
    """Tokens of the prompt that the attempt which lost has read, estimated."""
    extra_output_tokens: int | None = None
    """Tokens that it had generated until it was reset, estimated."""
    extra_price: float | None = None
    """What that cost by the catalog's prices; None where there are none."""


Level = Literal["interactive", "background", "offline"]
"""How urgent a call is: somebody waits for it, it is wanted soon, or at some time."""

LEVELS: tuple[Level, ...] = ("interactive", "background", "offline")
"""The most urgent first."""


@dataclass(frozen=True, slots=True)
class CallUrgency:
    """How urgent the application says that a call is: data of the call (`Call.get`)."""

    level: Level

    @property
    def unread_warning(self) -> str | None:
        """What to log where no play looks at it."""
        if self.level == "interactive":
            return None
        return (
            f'urgency("{self.level}") has no effect, because this client has no Urgency play: make it with '
            f'OpenAI(plays=[Urgency()]), or call client.with_urgency("{self.level}")'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRecord:
    """How a call got its slot. Of its last attempt, the wait of all of them."""

    waited_s: float
    """Seconds in the queue for a slot, all attempts together."""
    ahead: int
    """Calls that were to be sent before it when it came."""
    concurrency: int | None
    """How many were allowed at once when it was sent; None: no limit was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgencyRecord(RecordSection):
    """How urgent a call was, and what was done about that."""

    name: ClassVar[str] = "urgency"

    urgency: Level
    asked_tier: str | None = None
    """The service tier that the last attempt asked for, whoever chose it; None where it asked for none."""
    served_tier: str | None = None
    """The tier that served it, by the provider's own word; None where it said none."""
    downgraded: bool = False
    """Whether it was served by a slower tier than the one that it asked for."""
    full_tiers: tuple[str, ...] = ()
    """Tiers that had no capacity for it, in the order in which they were asked."""
    admission: AdmissionRecord | None = None
    """None where the call was not sent."""
