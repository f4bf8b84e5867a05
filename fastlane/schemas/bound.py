"""How long an answer can be that is valid for a JSON schema, in characters and in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter, counter

from .bound_tokens import Measure
from .by_content import ByContent
from .checks import check_schema
from .longest import longest
from .references import Schema
from .scalars import Rules
from .sizes import Found

_CHARACTERS_PER_TOKEN = 4
_USUAL_FIELD_TOKENS = 200

_remembered: ByContent[Bound] = ByContent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A field of which a schema does not say how long it can be."""

    path: str
    """From the name of the whole: "Ticket.notes", "Ticket.tags[]", "Ticket.scores.*" for properties of any name.
    One of more than 200 characters is cut off, with "…" for the rest."""
    reason: str
    """What is missing: "string without maxLength or pattern"."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How long an answer can be that is valid for a schema."""

    characters: int | None
    """Of the longest JSON text, indented by four blanks for each level; None where there is no longest."""
    compact_characters: int | None
    """The same without white space between tokens."""
    tokens: int | None
    """The most tokens that any of these texts can have: of free text, one for each character of its JSON, as no token
    is shorter."""
    likely_tokens: int
    """What an answer of usual texts comes to, without white space, estimated."""
    unbounded: tuple[Gap, ...]
    """The fields without a bound; at most 1,000 are named."""
    assumed: tuple[Gap, ...]
    """The fields whose bound rests on a convention: numbers without a range, and formats without a greatest length."""
    exact: bool
    """Whether names, literals and white space are counted by the model's own tokenizer; else by their characters."""


def bound(
    schema: Schema,
    *,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return how long an answer can be that is valid for a JSON schema, as `fastlane.bound` does.

    What is malformed in it has no bound, and is no error: the provider's own error is clearer.
    """
    return bound_of(
        schema,
        model=model,
        origin=origin,
        name=name,
        unbounded=unbounded,
        number_characters=number_characters,
    )


def bound_of(
    schema: Schema,
    *,
    closed: bool = False,
    checked: bool = False,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    otherwise: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return the bound of a JSON schema, remembered by its content.

    `closed`: objects that do not say so have no properties but those that are named. `checked`: raise
    ConfigurationError for what is no JSON schema. `otherwise`: the name of one that has neither `name` nor a title.
    """
    counts = counter(model, origin=origin, wait=False)
    named = (name, otherwise)
    beside = (closed, checked, counts.encoding if counts.exact else None, counts.ratio, named)

    def made(_copy: Any) -> Bound:
        # The outcome holds nothing of the schema, and is made of it as it is: copies have no NaN.
        if checked:
            check_schema(schema, "bound()")
        return _made(schema, counts, closed, name or _title(schema) or otherwise or "$", unbounded, number_characters)

    return _remembered.of(schema, (*beside, unbounded, number_characters), made)


def _made(
    schema: Schema,
    counts: Counter,
    closed: bool,
    root: str,
    unbounded: int | None,
    number_characters: int | None,
) -> Bound:
    _check("unbounded", unbounded, "tokens of a field without a bound")
    _check("number_characters", number_characters, "characters of a number without a range")
    field = _USUAL_FIELD_TOKENS if unbounded is None else unbounded
    rules = Rules(field, field * _CHARACTERS_PER_TOKEN, number_characters, closed)
    measure = Measure(counts)
    size = longest(schema, measure, rules)
    numbers = not size.gaps or unbounded is not None
    tokens = measure.whole(size)
    return Bound(
        characters=size.compact + size.white if numbers else None,
        compact_characters=size.compact if numbers else None,
        tokens=tokens if numbers else None,
        likely_tokens=min(size.likely, tokens),
        unbounded=_gaps(root, size.gaps),
        assumed=_gaps(root, size.assumed),
        exact=counts.exact,
    )


def _gaps(root: str, found: tuple[Found, ...]) -> tuple[Gap, ...]:
    return tuple(Gap(path=root + path, reason=reason) for path, reason in found)


def _title(schema: Schema) -> str | None:
    title = schema.get("title") if isinstance(schema, Mapping) else None
    return title if isinstance(title, str) and title else None


def _check(name: str, value: Any, what: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigurationError(f"bound({name}=...) takes the {what}, at least 1, or None; got {value!r:.80}")
