"""What a set of provider facts is made of, and what each fact may say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from ..records.attempts import Form
from ._fact import (
    Accepted,
    Address,
    ByEndpoint,
    ByTokens,
    Count,
    Endpoint,
    Evidence as Evidence,
    Fact as Fact,
    FrozenMapping,
    Part,
    ProviderPhase,
    Seconds,
    Table,
    Text,
    Texts,
    Unit,
    frozen,
)
from ._limits import RateLimit as RateLimit, RateLimits as RateLimits


def _forms(value: tuple[Form, ...]) -> tuple[Form, ...]:
    if "json" not in value:
        raise ValueError('expected "json" among the forms: every endpoint here takes plain JSON')
    return value


class Cache(Part):
    """How the provider keeps the beginnings of prompts."""

    automatic: Fact[bool] | None = None
    """Whether it does so without being asked to in the request."""
    minimum_tokens: Fact[Count] | None = None
    """Tokens from which on prompts are kept, whatever the model: the largest of its models' bounds."""
    block_tokens: Fact[Count] | None = None
    lifetime_s: Fact[Seconds] | None = None
    """Seconds that an entry lives after its last use, whatever the model; the note says whether at least or usually."""
    key_field: Fact[Text] | None = None
    """The request's field that takes any text, and sends requests that have the same one in it to the same cache."""
    key_header: Fact[Text] | None = None
    retention_field: Fact[Text] | None = None
    """The dotted path by which a request asks for a longer lifetime; where it begins with the field of `breakpoints`,
    each breakpoint says so for itself."""
    retention_values: ByEndpoint[Fact[Texts]] = FrozenMapping({})
    """What `retention_field` may be."""
    breakpoints: Fact[Text] | None = None
    """The field by which a request marks where a prefix ends: of the content part that is its last."""
    breakpoint_value: Fact[Table[Text]] | None = None
    """What stands in that field."""
    most_breakpoints: Fact[Count] | None = None
    explicit_models: Fact[Texts] | None = None
    """Models, by name, `*` for any text, that take breakpoints, and the fields of `retention_field` and
    `prewarm_field`; what others do with them is up to them, and may be to refuse the request."""
    prewarm_field: ByEndpoint[Fact[Text]] = FrozenMapping({})
    """The dotted path of the field that, when true, has the prompt kept and nothing generated."""
    requests_per_key_per_minute: Fact[Seconds] | None = None


class Tiers(Part):
    """Which grades of service a request may ask for."""

    field: Fact[Text] | None = None
    values: Fact[Texts] | None = None
    answers: Fact[Texts] | None = None
    answer_path: Fact[Text] | None = None
    answer_header: Fact[Text] | None = None
    """The header of an answer that says which tier served, where no field of the body does."""
    order: Fact[tuple[Texts, ...]] | None = None
    """The tiers from the slowest to the fastest, in the names that requests and answers have for them; those that are
    one tier, or as fast as each other, together. What is slower than `standard` is no dearer, what is faster is."""
    standard: Fact[Text] | None = None
    """The tier of a request that asks for none, as a request asks for it or, where it cannot, as an answer says it."""
    patient: Table[Fact[Text]] = FrozenMapping({})
    """By model, `*` for any text: the tier for requests that can wait, which costs less or has limits of its own. Of
    several patterns the longest counts; `standard` where there is none."""
    endpoints: Fact[Texts] | None = None
    """The endpoints whose requests take `patient`."""
    full_status: Fact[Count] | None = None
    """The HTTP status of an answer that says that the tier has no capacity."""
    full_codes: Fact[Texts] | None = None
    """The error's `code` or `type` with that status, where the status alone may say something else as well."""
    timeout_s: Table[Fact[Seconds]] = FrozenMapping({})
    """By tier: seconds for which the provider asks to wait for an answer, where openai's own time-out is too short."""


class Timing(Part):
    """What answers say of the time that the provider spent: header or dotted path to its unit.

    A header's value is the number, or has it after `dur=` where it is `server-timing`.
    """

    headers: Fact[Table[Unit]] | None = None
    fields: Fact[Table[Unit]] | None = None
    phases: Fact[Table[ProviderPhase]] | None = None
    """Which of them say how long the request waited (queue), the prompt was read (prefill), the answer was generated
    (decode), or all of it together took (total). Those that are none of these are not named here."""


class Structured(Part):
    """Which bounds on an answer's form the provider takes."""

    formats: Fact[tuple[Literal["json_object", "json_schema"], ...]] | None = None
    strict: Fact[bool] | None = None
    """Whether an answer can be bound to a schema for sure."""
    unasked: Fact[bool] | None = None
    """Whether a schema binds, and what is refused in it is refused, where the request does not say `strict` as well."""
    object_root: Fact[bool] | None = None
    """Whether what stands at the top of a strict schema has to be an object, and no anyOf."""
    all_required: Fact[bool] | None = None
    """Whether every property of a strict schema has to be required."""
    closed_objects: Fact[bool] | None = None
    """Whether `additionalProperties` has to be false everywhere in a strict schema."""
    bare_references: Fact[bool] | None = None
    """Whether nothing may stand beside a `$ref` in a strict schema."""
    refused_keywords: Fact[Texts] | None = None
    limits: Fact[Table[Count]] | None = None


class Output(Part):
    """How long an answer may be."""

    most_tokens: Table[Fact[Count]] = FrozenMapping({})
    """By model, `*` for any text: the largest limit that a request may name; a larger one is refused."""


class Reasoning(Part):
    """Which models think before they answer, and how much a request may say about it. Models: `*` for any text."""

    models: Fact[Texts] | None = None
    """Models that think, unless the request says that they should not, if it can."""
    never: Fact[Texts] | None = None
    """Models that do not. Of a pattern here and one in `models`, the longer one counts."""
    counted: Fact[bool] | None = None
    """Whether the limit of an answer's length counts what is thought as well."""
    efforts: Table[Fact[Texts]] = FrozenMapping({})
    """By model: what `reasoning_effort`, or `reasoning.effort`, may be. Of several patterns the longest counts."""
    verbosities: Table[Fact[Texts]] = FrozenMapping({})
    """By model: what `verbosity`, or `text.verbosity`, may be."""


class Batch(Part):
    """How requests are left with the provider to be answered later."""

    path: Fact[Endpoint] | None = None
    shape: Fact[Literal["openai", "own"]] | None = None
    """Whether files and batches are made, watched, listed and read as OpenAI's are, or in a way of the provider's own.
    Absent: there is no batch mode to rely on."""
    endpoints: Fact[Texts] | None = None
    """What a batch's requests may be sent to, as a batch names it: "/v1/chat/completions". One of them for a batch."""
    one_model: Fact[bool] | None = None
    """Whether all requests of a batch have to name the same model."""
    metadata: Fact[bool] | None = None
    """Whether a batch takes `metadata`, and says it again when it is listed."""
    custom_id_letters: Fact[Count] | None = None
    """The longest `custom_id`."""
    most_requests: Fact[Count] | None = None
    most_bytes: Fact[Count] | None = None
    """The largest file, in bytes."""
    window_s: Fact[Seconds] | None = None
    """Seconds within which a batch is answered, or expires."""


class ProviderFacts(Part):
    """What is known of one provider or kind of server. What is absent, nobody has looked for."""

    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """By what it is called in `extends` and `facts_named`; in a file without it, the file's name."""
    name: str = ""
    telemetry_name: Text | None = None
    """`gen_ai.provider.name` on spans and metrics, where that is not the slug:
    https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/."""
    base_url: Address | None = None
    documentation: Address | None = None
    extends: Text | None = None
    """The slug of the provider whose facts hold where these say nothing."""
    origins: Annotated[Texts, BeforeValidator(frozen)] = ()
    """Where these facts hold: "https://api.example.com", "https://*.example.com", "http://localhost:8000"."""
    http2: Fact[bool] | None = None
    encodings: ByEndpoint[Fact[Annotated[tuple[Form, ...], AfterValidator(_forms)]]] = FrozenMapping({})
    media_types: Table[Fact[Text]] = FrozenMapping({})
    binary_parts: Fact[Texts] | None = None
    cache: Cache = Cache()
    usage: ByEndpoint[Fact[ByTokens]] = FrozenMapping({})
    parameters: Table[Fact[Accepted]] = FrozenMapping({})
    """What happens to a request's field: True: accepted; False: refused; "ignored"; or the values that it may have."""
    tiers: Tiers = Tiers()
    timing: Timing = Timing()
    rate_limits: RateLimits = RateLimits()
    structured: Structured = Structured()
    output: Output = Output()
    reasoning: Reasoning = Reasoning()
    batch: Batch = Batch()

    def forms(self, endpoint: str) -> tuple[Form, ...] | None:
        """Return the forms in which an endpoint takes request bodies; None where nobody knows."""
        fact = self.encodings.get(endpoint)
        return None if fact is None else fact.value

    def over(self, base: ProviderFacts) -> ProviderFacts:
        """Return these facts, and where they say nothing, those of `base`: fact by fact.

        Slug, origins and `extends` are always of these.
        """
        own = {"slug": self.slug, "origins": self.origins, "extends": self.extends}
        return ProviderFacts(**{**dict(base), **_laid_over(self, base), **own})

    def all_facts(self) -> Iterator[tuple[tuple[str, ...], Fact[Any]]]:
        """Yield every fact with the keys that lead to it, such as `("cache", "minimum_tokens")`."""
        yield from _facts_in(self, ())

    def to_toml(self) -> str:
        """Return a file's text that `load` makes the same facts of. Raises MissingExtraError without `tomli_w`."""
        from ..errors import MissingExtraError

        try:
            import tomli_w
        except ImportError as error:
            raise MissingExtraError("bench", "tomli_w") from error
        return tomli_w.dumps(_written(self))

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that differ where facts differ."""
        return hashlib.sha256(json.dumps(_written(self), default=str, sort_keys=True).encode()).hexdigest()[:8]

    def __repr__(self) -> str:
        # A play's repr is its fingerprint in every record: all facts would be pages.
        return f"ProviderFacts(slug={self.slug!r}, digest={self.digest!r})"

    __str__ = __repr__


def _said(part: BaseModel) -> Iterator[tuple[str, Any]]:
    """The fields of a part that say something."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        # An empty list is something that a fact may say; a set of facts without origins says nothing of them.
        if value is not None and value != "" and (value != () or isinstance(part, Fact)):
            yield name, value


def _laid_over(part: BaseModel, base: BaseModel) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in _said(part):
        below = getattr(base, name)
        if isinstance(value, FrozenMapping):
            changes[name] = FrozenMapping({**below, **value})
        elif isinstance(value, Part) and not isinstance(value, Fact):
            changes[name] = type(below)(**{**dict(below), **_laid_over(value, below)})
        else:
            changes[name] = value
    return changes


def _facts_in(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Fact[Any]]]:
    if isinstance(value, Fact):
        yield keys, value
    elif isinstance(value, BaseModel):
        for name, one in _said(value):
            yield from _facts_in(one, (*keys, name))
    elif isinstance(value, FrozenMapping):
        for name, one in value.items():
            yield from _facts_in(one, (*keys, name))


def _written(value: Any) -> Any:
    """What TOML has for a value, without what says nothing."""
    if isinstance(value, BaseModel):
        fields = {name: _written(one) for name, one in _said(value)}
        return {name: one for name, one in fields.items() if one != {} or isinstance(value, Fact)}
    if isinstance(value, FrozenMapping):
        return {key: _written(one) for key, one in value.items()}
    return [_written(one) for one in value] if isinstance(value, tuple) else value
