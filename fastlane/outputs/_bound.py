"""`bound()`: how long an answer can be that is valid for a JSON schema, in characters and in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from .._exceptions import ConfigurationError
from .._tokens import Counter, counter
from ._bound_tokens import Measure
from ._by_content import ByContent
from ._longest import longest
from ._references import Schema
from ._scalars import Rules
from ._sizes import Found

_CHARACTERS_PER_TOKEN = 4
_USUAL_FIELD_TOKENS = 200

_remembered: ByContent[Bound] = ByContent()
_schemas: WeakKeyDictionary[type, Mapping[str, Any]] = WeakKeyDictionary()


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
    schema: Schema | type,
    *,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return how long an answer can be that is valid for a schema.

    `schema` is a JSON schema as it is, or a class that pydantic can make one of: a model, a dataclass, a TypedDict.
    That is read as strict modes have it, so that objects have no properties but those that are named. The fields are
    named from `name`, or else from the schema's title. Tokens are counted as those of `model` at `origin`.

    No valid value is longer by `json.dumps` with an indent of up to four, or none, and any way with non-ASCII
    characters; formats count as asserted. A text can be longer that has white space nobody needs, escapes for letters
    that need none, zeros at the end of a number, or more digits than a double has.

    With `unbounded=200` each field without a bound is given 200 tokens of four characters. A number without a range is
    taken for at most `number_characters`, which is enough for 128 bits and for any double; with None nothing is taken
    for granted, and it is a field without a bound, as are formats without a greatest length.

    The outcome is remembered by the content of the schema. Raises ConfigurationError for what is no schema.
    """
    if isinstance(schema, type):
        closed = True
        schema = _schema_of(schema)
    else:
        closed = False
    for what, given in (("model", model), ("origin", origin), ("name", name)):
        if not (isinstance(given, str) or (given is None and what != "origin")):
            raise ConfigurationError(f"bound({what}=...) takes a text, got {type(given).__name__}")
    counts = counter(model, origin=origin, wait=False)
    beside = (closed, counts.encoding if counts.exact else None, counts.ratio, name, unbounded, number_characters)
    # Its outcome holds nothing of the schema, and is made of it as it is: copies have no NaN.
    return _remembered.of(
        schema, beside, lambda _copy: _made(schema, counts, closed, name, unbounded, number_characters)
    )


def _made(
    schema: Schema,
    counts: Counter,
    closed: bool,
    name: str | None,
    unbounded: int | None,
    number_characters: int | None,
) -> Bound:
    if not isinstance(schema, Mapping | bool):
        raise ConfigurationError(
            f"bound() takes a JSON schema (a mapping, or True or False) or a class, got {type(schema).__name__}: pass "
            "what the answer has to be valid for"
        )
    _check("unbounded", unbounded, "tokens of a field without a bound")
    _check("number_characters", number_characters, "characters of a number without a range")
    field = _USUAL_FIELD_TOKENS if unbounded is None else unbounded
    rules = Rules(field, field * _CHARACTERS_PER_TOKEN, number_characters, closed)
    measure = Measure(counts)
    size = longest(schema, measure, rules)
    numbers = not size.gaps or unbounded is not None
    root = name or _title(schema) or "$"
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


def _schema_of(model: type) -> Mapping[str, Any]:
    """The JSON schema of a class, made once."""
    known = _schemas.get(model)
    if known is None:
        from pydantic import BaseModel, TypeAdapter
        from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

        try:
            known = model.model_json_schema() if issubclass(model, BaseModel) else TypeAdapter(model).json_schema()
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise ConfigurationError(
                f"bound() takes a JSON schema or a class that pydantic can make one of, got {model.__name__}: pass a "
                f"model, a dataclass, or the schema itself ({error.__class__.__name__}: {str(error).splitlines()[0]})"
            ) from error
        _schemas[model] = known
    return known
