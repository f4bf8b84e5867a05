"""Which keywords a JSON schema's own draft knows, and how one is read that is malformed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .sizes import JSON_TYPES, JsonType

_NEWEST = 2020
_DRAFTS = {
    "json-schema.org/schema": _NEWEST,
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": _NEWEST,
}
# The first draft that has a keyword; those that are not named are in all of them.
_SINCE = {
    "const": 6, "propertyNames": 6, "exclusiveMinimum": 6, "exclusiveMaximum": 6, "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019, "$recursiveRef": 2019, "prefixItems": 2020, "$dynamicRef": 2020,
}  # fmt: skip
_UNTIL = {"additionalItems": 2019, "$recursiveRef": 2019}
# What says something of a value of one type alone.
_OF_TYPE: dict[JsonType, tuple[str, ...]] = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "string": ("maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "additionalItems", "unevaluatedItems", "maxItems"),
    "object": (
        "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
        "maxProperties",
    ),
}  # fmt: skip


class Draft:
    """One draft of JSON schema."""

    def __init__(self, draft: int) -> None:
        self.draft = draft
        unknown = {name for name, since in _SINCE.items() if since > draft}
        self._unknown = frozenset(unknown | {name for name, until in _UNTIL.items() if until < draft})

    @property
    def reference_alone(self) -> bool:
        """Whether what stands beside a `$ref` counts for nothing."""
        return self.draft <= 7

    def get(self, schema: Mapping[Any, Any], name: str) -> Any:
        """Return what a keyword says; None where it is absent, or not in this draft."""
        return None if name in self._unknown else schema.get(name)

    def speaks_of(self, schema: Mapping[Any, Any], kind: JsonType) -> bool:
        """Whether there is a keyword that says something of values of this type alone."""
        return any(self.get(schema, name) is not None for name in _OF_TYPE.get(kind, ()))


def dialect_of(schema: Any) -> Draft | None:
    """Return the dialect that a schema says it is written in: the newest where it says none, None where unknown."""
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    if not isinstance(named, str):
        return Draft(_NEWEST)
    draft = _DRAFTS.get(named.rstrip("#").removeprefix("https://").removeprefix("http://"))
    return None if draft is None else Draft(draft)


def types_of(schema: Mapping[Any, Any]) -> tuple[tuple[JsonType, ...], bool]:
    """Return the types that `type` allows, all of them where it says nothing known; and whether only integers."""
    named = schema.get("type")
    names = named if isinstance(named, list | tuple) else [named]
    if not names or not all(isinstance(name, str) and (name in JSON_TYPES or name == "integer") for name in names):
        return JSON_TYPES, False
    integer = "integer" in names and "number" not in names
    return tuple(kind for kind in JSON_TYPES if kind in names or (kind == "number" and integer)), integer


def type_of(value: Any) -> JsonType:
    """Return the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list | tuple) else "string"


def count_of(value: Any) -> int | None:
    """Return a limit such as `maxItems`; None where it is none. 5.0 is 5."""
    number = number_of(value)
    return None if number is None or number < 0 else int(number)


def number_of(value: Any) -> float | None:
    """Return a limit such as `minimum`; None where it is none."""
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    return value if isinstance(value, float) and math.isfinite(value) else None


def has_identifiers(document: Any, dialect: Draft) -> bool:
    """Whether a part of a document has a name of its own, from which the references in it start."""
    name = "$id" if dialect.draft > 4 else "id"
    return any(isinstance(one.get(name), str) for one in _parts(document) if one is not document)


def _parts(document: Any) -> Iterator[Mapping[Any, Any]]:
    seen: set[int] = set()
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) or not isinstance(one, Mapping | list | tuple) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            yield one
            waiting.extend(one.values())
        else:
            waiting.extend(one)
