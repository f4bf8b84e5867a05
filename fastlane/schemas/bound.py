"""How long an answer can be that is valid for a JSON schema, in characters and in tokens."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.knowledge.table import Table
from fastlane.knowledge.tokens import Counter, counter

from .dialect import closed_schema
from .given import check_schema, given_schema
from .longest import Rules, longest
from .references import Schema, written
from .sizes import Found, TextMeasure

_CHARACTERS_PER_TOKEN = 4
_USUAL_FIELD_TOKENS = 200

_bounds: Table[Hashable, Bound] = Table("bounds", max_entries=256)


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
    schema: Any,
    *,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return how long an answer can be that is valid for a schema.

    `schema` is a JSON schema as it is, what a request wraps one in (a whole `response_format`, `text.format`, or tool),
    or a type that pydantic can make one of: a model, a dataclass, a TypedDict, `list[Model]`. A type, and what is
    wrapped with `strict`, is read as strict modes have it, so that objects have no properties but those that are named.
    The fields are named from `name`, or else from the name of the format or tool, the schema's title, or the class.
    Tokens are counted as those of `model` at `origin`.

    No valid value is longer by `json.dumps` with an indent of up to four, or none, and any way with non-ASCII
    characters; formats count as asserted. A text can be longer that has white space nobody needs, escapes for letters
    that need none, zeros at the end of a number, or more digits than a double has.

    With `unbounded=200` each field without a bound is given 200 tokens of four characters. A number without a range is
    taken for at most `number_characters`, which is enough for 128 bits and for any double; with None nothing is taken
    for granted, and it is a field without a bound, as are formats without a greatest length.

    The result is kept by the content of the schema. Raises ConfigurationError for what is no JSON schema, or has
    a reference that leads nowhere inside of it.
    """
    for what, text in (("model", model), ("origin", origin), ("name", name)):
        if not (isinstance(text, str) or (text is None and what != "origin")):
            raise ConfigurationError(f"bound({what}=...) takes a text, got {type(text).__name__}")
    given = given_schema(schema, "bound()")
    found = given.schema
    if not given.is_type:
        check_schema(found, "bound()")
        if given.is_strict and not isinstance(found, bool):
            found = closed_schema(found)
    return schema_bound(
        found,
        closed=given.is_type,
        model=model,
        origin=origin,
        name=name or (None if given.is_type else given.name),
        otherwise=given.name if given.is_type else None,
        unbounded=unbounded,
        number_characters=number_characters,
    )


def schema_bound(
    schema: Schema,
    *,
    closed: bool = False,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    otherwise: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return the bound of a JSON schema. What is malformed in it has no bound, and is no error.

    `closed`: objects that do not say so have no properties but those that are named. `otherwise`: the name of one that
    has neither `name` nor a title.
    """
    _check("unbounded", unbounded, "tokens of a field without a bound")
    _check("number_characters", number_characters, "characters of a number without a range")
    field = _USUAL_FIELD_TOKENS if unbounded is None else unbounded
    rules = Rules(field, field * _CHARACTERS_PER_TOKEN, number_characters, closed)
    counts = counter(model, origin=origin, wait=False)
    title = schema.get("title") if isinstance(schema, Mapping) else None
    root = name or (title if isinstance(title, str) and title else None) or otherwise or "$"
    is_bounded = unbounded is not None
    try:
        text = written(schema)
    except (TypeError, ValueError, RecursionError):
        return _bound(schema, root, rules, counts, is_bounded)
    key = (text, root, rules, counts.encoding if counts.exact else None, counts.ratio, is_bounded)
    found = _bounds.get(key)
    return found or _bounds.fetch(key, lambda: _bound(schema, root, rules, counts, is_bounded))


def _bound(schema: Schema, root: str, rules: Rules, counts: Counter, is_bounded: bool) -> Bound:
    measure = TextMeasure(counts)
    size = longest(schema, measure, rules)
    has_numbers = is_bounded or not size.gaps
    tokens = measure.whole(size)
    return Bound(
        characters=size.compact + size.white if has_numbers else None,
        compact_characters=size.compact if has_numbers else None,
        tokens=tokens if has_numbers else None,
        likely_tokens=min(size.likely, tokens),
        unbounded=_gaps(root, size.gaps),
        assumed=_gaps(root, size.assumed),
        exact=counts.exact,
    )


def _gaps(root: str, found: tuple[Found, ...]) -> tuple[Gap, ...]:
    return tuple(Gap(path=root + path, reason=reason) for path, reason in found)


def _check(name: str, value: Any, what: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigurationError(f"bound({name}=...) takes the {what}, at least 1, or None; got {value!r:.80}")
