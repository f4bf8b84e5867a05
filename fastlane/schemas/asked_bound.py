"""`fastlane.bound()`: how long an answer can be that is valid for what an application gives as its schema."""

from __future__ import annotations

from typing import Any

from fastlane.errors import ConfigurationError

from .bound import Bound, bound_of
from .given_schema import given_schema


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

    The outcome is remembered by the content of the schema. Raises ConfigurationError for what is no JSON schema, or has
    a reference that leads nowhere inside of it.
    """
    for what, text in (("model", model), ("origin", origin), ("name", name)):
        if not (isinstance(text, str) or (text is None and what != "origin")):
            raise ConfigurationError(f"bound({what}=...) takes a text, got {type(text).__name__}")
    given = given_schema(schema, "bound()")
    if given.is_strict and not isinstance(given.schema, bool):
        from .dialect import closed_schema

        given = given._replace(schema=closed_schema(given.schema))
    return bound_of(
        given.schema,
        closed=given.is_type,
        checked=not given.is_type,
        model=model,
        origin=origin,
        name=name if given.is_type else name or given.name,
        otherwise=given.name if given.is_type else None,
        unbounded=unbounded,
        number_characters=number_characters,
    )
