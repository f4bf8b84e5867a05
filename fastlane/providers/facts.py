"""Facts about providers: what each may be, and what a set of them is made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ..records.attempts import Form

T = TypeVar("T")
M = TypeVar("M", bound="Part")

Evidence: TypeAlias = Literal["documented", "source code", "reported", "measured", "not found"]
Counts: TypeAlias = Literal["requests", "tokens", "input_tokens", "output_tokens"]
"""What a limit counts: requests, tokens of both kinds together, or one kind alone."""
ResetFormat: TypeAlias = Literal["duration", "seconds", "milliseconds", "rfc3339", "unix", "unix_milliseconds"]
"""How a header says when a limit is whole again: "6m0s", "12.5", "12500", "2026-11-22T10:00:00Z", "1795341600"."""
Tokens: TypeAlias = Literal[
    "input", "cached", "cache_write", "cache_miss", "output", "reasoning", "accepted_prediction",
    "rejected_prediction", "total",
]  # fmt: skip


def _below_base_url(value: str) -> str:
    if not re.fullmatch(r"/(?!v\d+/).*[^/]", value):
        raise ValueError('expected a path below the base URL, such as "/chat/completions", without the version')
    return value


Text = Annotated[str, Field(pattern=r"\S")]
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
"""TOML has lists. They become tuples."""
Address = Annotated[str, Field(pattern=r"^https?://\S+$")]
Endpoint = Annotated[str, AfterValidator(_below_base_url)]
Header = Annotated[str, Field(pattern=r"^[^A-Z\s:]+$")]
"""The name of a header in lower case."""
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Accepted: TypeAlias = (
    bool | Literal["ignored"] | Annotated[tuple[bool | str | int, ...], Field(strict=False, min_length=1)]
)
"""True: accepted; False: refused; "ignored": accepted without effect; or the values that it may have."""
Table: TypeAlias = Mapping[str, T]
ByEndpoint: TypeAlias = Mapping[Endpoint, T]


class Part(BaseModel):
    """A table of a file. Unknown keys and values of another type are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Fact(Part, Generic[T]):
    """One fact about a provider, its source, and when it was checked.

    `evidence` is "documented" (by the provider), "source code" (of its SDK or server), "reported" (by a user or a third
    party), "measured" (by fastlane, against the real server) or "not found": looked for in vain, and then there is no
    `value`.
    """

    value: T | None = None
    source: Address | None = None
    checked: date
    evidence: Evidence
    note: str = ""

    @model_validator(mode="after")
    def _supported(self) -> Fact[T]:
        if self.evidence == "not found":
            if self.value is not None:
                raise ValueError('expected no value, because evidence = "not found" says that there is none')
            if not self.note:
                raise ValueError("expected a note that says what was looked for and not found")
        elif self.value is None:
            raise ValueError('expected a value, or evidence = "not found"')
        elif self.source is None:
            raise ValueError("expected a source: the address of the page that says so")
        return self

    def __repr_name__(self) -> str:
        return "Fact"

    def __hash__(self) -> int:
        # Its value may be a mapping.
        return hash((self.source, self.checked, self.evidence, self.note))


def _with_json(value: tuple[Form, ...]) -> tuple[Form, ...]:
    if "json" not in value:
        raise ValueError('expected "json" among the forms: every endpoint here takes plain JSON')
    return value


Forms = Annotated[tuple[Form, ...], Field(strict=False), AfterValidator(_with_json)]


class Cache(Part):
    """How the provider keeps the beginnings of prompts."""

    automatic: Fact[bool] | None = None
    """Whether it does so without being asked to in the request."""
    minimum_tokens: Fact[Count] | None = None
    """The shortest prompt that is kept: the largest bound of all models."""
    block_tokens: Fact[Count] | None = None
    lifetime_s: Fact[Seconds] | None = None
    """Seconds that an entry lives after its last use. The note says whether at least or usually."""
    key_field: Fact[Text] | None = None
    """The request's field for a cache key: requests with the same text go to the same cache."""
    retention_field: Fact[Text] | None = None
    """The dotted path of the lifetime that a request asks for. It may be part of a breakpoint."""
    retention_values: ByEndpoint[Fact[Texts]] = {}
    """What `retention_field` may be."""
    breakpoints: Fact[Text] | None = None
    """The field that marks the last content part of a prefix."""
    breakpoint_value: Fact[Table[Text]] | None = None
    """What stands in that field."""
    explicit_models: Fact[Texts] | None = None
    """Models that take breakpoints and `retention_field`. Others may refuse the request."""
    requests_per_key_per_minute: Fact[Seconds] | None = None


class Tiers(Part):
    """Service tiers. `*` in the name of a model stands for any text, and the longest pattern counts."""

    field: Fact[Text] | None = None
    values: Fact[Texts] | None = None
    answers: Fact[Texts] | None = None
    answer_path: Fact[Text] | None = None
    standard: Fact[Text] | None = None
    """The tier of a request that asks for none."""
    patient: Table[Fact[Text]] = {}
    """By model: the tier for requests that can wait, which costs less or has its own limits."""
    endpoints: Fact[Texts] | None = None
    """The endpoints whose requests take `patient`."""
    full_status: Fact[Count] | None = None
    """The HTTP status of a response that says that the tier has no capacity."""
    full_codes: Fact[Texts] | None = None
    """The error's `code` or `type` with that status, where the status alone is ambiguous."""
    timeout_s: Table[Fact[Seconds]] = {}
    """By tier: the timeout that the provider recommends, in seconds, where openai's is too short."""


class Structured(Part):
    """Which structured outputs the provider supports."""

    formats: Fact[Annotated[tuple[Literal["json_object", "json_schema"], ...], Field(strict=False)]] | None = None
    strict: Fact[bool] | None = None
    """Whether a schema can be enforced."""
    unasked: Fact[bool] | None = None
    """Whether a schema is enforced, and unsupported keywords are refused, without `strict` as well."""
    all_required: Fact[bool] | None = None
    """Whether every property of a strict schema has to be required."""
    closed_objects: Fact[bool] | None = None
    """Whether `additionalProperties` has to be false everywhere in a strict schema."""
    bare_references: Fact[bool] | None = None
    """Whether nothing may stand beside a `$ref` in a strict schema."""
    refused_keywords: Fact[Texts] | None = None


class Output(Part):
    """How long an answer may be."""

    most_tokens: Table[Fact[Count]] = {}
    """By model, `*` for any text: the largest limit that a request may name."""


class Reasoning(Part):
    """Which models reason, and how a request controls it. In names of models, `*` stands for any text."""

    models: Fact[Texts] | None = None
    """Models that reason unless the request switches it off."""
    never: Fact[Texts] | None = None
    """Models that do not reason. Of a pattern here and one in `models`, the longer one counts."""
    counted: Fact[bool] | None = None
    """Whether reasoning tokens count towards the limit of the output."""
    efforts: Table[Fact[Texts]] = {}
    """By model: the values of `reasoning_effort`, or `reasoning.effort`. The longest pattern counts."""
    verbosities: Table[Fact[Texts]] = {}
    """By model: the values of `verbosity`, or `text.verbosity`."""


class Batch(Part):
    """The provider's batch mode."""

    shape: Fact[Literal["openai", "own"]] | None = None
    """Whether its API for files and batches is that of OpenAI. Absent: there is no batch mode."""
    endpoints: Fact[Texts] | None = None
    """The endpoints of its requests, such as "/v1/chat/completions". A batch has one of them."""
    metadata: Fact[bool] | None = None
    """Whether a batch has `metadata`, also when it is listed."""
    most_requests: Fact[Count] | None = None
    most_bytes: Fact[Count] | None = None
    """The largest file, in bytes."""
    window_s: Fact[Seconds] | None = None
    """Seconds within which a batch is answered, or expires."""


class RateLimit(Part):
    """One rate limit, and the response headers that report it."""

    counts: Counts
    window_s: Seconds | None = None
    """Seconds over which it counts: 60 for a limit per minute."""
    limit_header: Header | None = None
    limit_per_s: Seconds | None = None
    """The seconds that the number in `limit_header` is for, where that is not the window."""
    remaining_header: Header | None = None
    reset_header: Header | None = None
    reset_format: ResetFormat | None = None
    """None: it is guessed from the value."""
    kind: Literal["bucket", "window"] | None = None
    """A bucket refills continuously, and its reset is when it is full. A window is whole again at its end."""
    enforced_s: Seconds | None = None
    """The shorter period, in seconds, over which the provider enforces a share of the limit."""


class RateLimitFacts(Part):
    """Rate limits, the response headers that report them, and what counts towards them."""

    headers: Fact[Texts] | None = None
    limits: Table[Fact[RateLimit]] = {}
    """By a name of ours, such as "requests_per_minute"."""
    admission: Fact[Literal["prompt and limit", "larger of both", "prompt", "nothing"]] | None = None
    """The tokens of a request that count before it is answered. "nothing": only usage counts."""
    refunded: Fact[bool] | None = None
    """Whether counted tokens that were not used are given back."""
    retry_headers: Fact[Texts] | None = None
    """Headers of a refusal that say how long to wait, the most precise first. "…-ms" has milliseconds."""


class ProviderFacts(Part):
    """What is known of one provider or kind of server. What is absent was not checked."""

    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """The name for `extends` and `facts_named`; in a file without it, the file's name."""
    name: str = ""
    telemetry_name: Text | None = None
    """`gen_ai.provider.name` on spans and metrics, where that is not the slug."""
    base_url: Address | None = None
    extends: Text | None = None
    """The slug of the provider whose facts hold where these say nothing."""
    origins: Texts = ()
    """Where these facts hold: "https://api.example.com", "https://*.example.com", "http://localhost:8000"."""
    http2: Fact[bool] | None = None
    response_sockets: Fact[bool] | None = None
    """Whether /responses can be used over a WebSocket, and continues what it has seen on it."""
    encodings: ByEndpoint[Fact[Forms]] = {}
    media_types: Table[Fact[Text]] = {}
    cache: Cache = Cache()
    usage: ByEndpoint[Fact[Mapping[Tokens, Text]]] = {}
    parameters: Table[Fact[Accepted]] = {}
    """What happens to a request's field: see `Accepted`."""
    tiers: Tiers = Tiers()
    rate_limits: RateLimitFacts = RateLimitFacts()
    structured: Structured = Structured()
    output: Output = Output()
    reasoning: Reasoning = Reasoning()
    batch: Batch = Batch()
    continued_by: Fact[Literal["prefix", "continue_final_message", "assistant_message"]] | None = None
    """How a chat completion asks the model to continue an answer that is the last of the messages: `prefix` in that
    message, `continue_final_message` in the body, or the message alone."""

    def forms(self, endpoint: str) -> tuple[Form, ...] | None:
        """Return the forms of request bodies that an endpoint takes; None if that is not known."""
        fact = self.encodings.get(endpoint)
        return None if fact is None else fact.value

    def over(self, base: ProviderFacts) -> ProviderFacts:
        """Return these facts, and where they say nothing, those of `base`: fact by fact.

        Slug, origins and `extends` are always of these.
        """
        own = {"slug": self.slug, "origins": self.origins, "extends": self.extends}
        return _merged(self, base).model_copy(update=own)

    def all_facts(self) -> Iterator[tuple[tuple[str, ...], Fact[Any]]]:
        """Yield every fact with the keys that lead to it, such as `("cache", "minimum_tokens")`."""
        yield from _facts_in(self, ())

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that differ where facts differ."""
        written = json.dumps(self.model_dump(exclude_defaults=True), default=str, sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        # A play's repr is its fingerprint in every record: all facts would be pages.
        return f"ProviderFacts(slug={self.slug!r}, digest={self.digest!r})"

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        # `Fact[bool]` is a class without a name in any module, and cannot be pickled.
        return type(self).model_validate, (self.model_dump(exclude_defaults=True),)


def _merged(part: M, base: M) -> M:
    changes: dict[str, Any] = {}
    for name in part.model_fields_set:
        own, below = getattr(part, name), getattr(base, name)
        if isinstance(own, Mapping):
            own = {**below, **own}
        elif isinstance(own, Part) and not isinstance(own, Fact):
            own = _merged(own, below)
        if own is not None:
            changes[name] = own
    return base.model_copy(update=changes)


def _facts_in(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Fact[Any]]]:
    if isinstance(value, Fact):
        yield keys, value
    elif isinstance(value, BaseModel | Mapping):
        for name, one in value.items() if isinstance(value, Mapping) else value:
            yield from _facts_in(one, (*keys, name))


def value_of(fact: Fact[Any] | None) -> Any:
    """Return the value of a fact; None if nothing is known."""
    return None if fact is None else fact.value
