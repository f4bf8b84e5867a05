"""JSON schemas: how long a valid answer can be, against values that are valid; and no schema that hangs or raises."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from fastlane import ConfigurationError
from fastlane.providers import facts_named
from fastlane.schemas.bound import Bound, bound, schema_bound
from fastlane.schemas.dialect import wire_schema
from tests.fuzz import mutation
from tests.fuzz.drawn import Drawn, chance, json_value
from tests.fuzz.targets._target import Target, holds
from tests.schemas import small_schemas

_NAMES = (
    "type", "properties", "items", "$ref", "$defs", "#", "#/$defs/a", "enum", "const", "anyOf", "oneOf", "allOf",
    "not", "a",
    "additionalProperties", "required", "pattern", "maxLength", "minLength", "maxItems", "minItems", "prefixItems",
    "if",
    "then", "else", "maximum", "minimum", "multipleOf", "string", "object", "array", "integer", "number", "boolean",
    "null",
    "format", "date-time", "uuid", "patternProperties", "propertyNames", "contains", "unevaluatedProperties", "$id",
    "uri",
    "dependentSchemas", "$dynamicRef", "$anchor", "maxProperties", "minProperties", "uniqueItems", "title", "(a*)*b",
    "^[a-z]{1,9}$", "(?=a)", "[", "\\d{1,99999}", "(a|b){3,5}", "exclusiveMaximum", "nullable", "x",
)  # fmt: skip
_KNOWN: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"],
     "additionalProperties": False},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 2}}},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,9}$"}, {"enum": [1, "b", None]}], "title": "T"},
    {"type": "object", "properties": {"a": {"const": {"b": [1]}}, "c": {"type": "integer", "maximum": 9, "minimum": 0}},
     "patternProperties": {"^x": {"type": "null"}}, "maxProperties": 3},
    {"type": ["array", "null"], "prefixItems": [{"type": "boolean"}], "items": False},
]  # fmt: skip


def check(data: bytes) -> None:
    """By the first byte: schemas that are known, with changes; anything at all; or schemas with values."""
    kind, draw = (data[0] if data else 0) % 3, Drawn(data[1:])
    if kind == 0:
        _check_any(mutation.changed(draw.choice(_KNOWN), draw, _KNOWN))
    elif kind == 1:
        _check_any(json_value(draw, _NAMES))
    else:
        _check_values(draw)


def _check_any(schema: Any) -> None:
    if not isinstance(schema, dict | bool):
        return
    before = repr(schema)
    for closed in (False, True):
        _check_numbers(schema_bound(schema, closed=closed))
    try:
        bound(schema, unbounded=50)
    except ConfigurationError as error:
        holds(len(str(error)) < 5_000, "a refusal is longer than anybody reads", len(str(error)))
    if isinstance(schema, dict):
        for provider in ("openai", "cerebras", "unknown"):
            wire_schema(schema, facts_named(provider).structured, strict=True)
    holds(repr(schema) == before, "the schema was changed", before[:500])


def _check_numbers(found: Bound) -> None:
    holds(found.tokens is None or found.tokens >= 0, "a bound is none", found)
    holds(len(found.unbounded) <= 1_000, "a bound is none", found)


def _check_values(draw: Drawn) -> None:
    schema = small_schemas.document(draw, plain=draw.randrange(2) == 0)
    found = schema_bound(schema, assume=False)
    _check_numbers(found)
    if found.tokens is None:
        return
    valid = Draft202012Validator(schema).is_valid
    for _ in range(6):
        value = small_schemas.value(draw)
        if not valid(value):
            continue
        indented = json.dumps(value, indent=4)
        holds(len(indented) <= found.tokens, "a valid value is longer than its bound", schema, value, found)
        size = len(indented.encode("utf-8", "surrogatepass"))
        holds(size <= found.tokens, "a valid value has more tokens than its bound", schema, value, found)


def seeds() -> list[bytes]:
    """Bytes that draw schemas."""
    drawn = chance(30, 300)
    return [bytes([kind]) + one for one in drawn for kind in (0, 1, 2)]


_UNIQUE = itertools.count()
"""Bounds are remembered by content: with another text in it, it is another schema."""


def _fed(make: Callable[[int], Any]) -> Callable[[int], Callable[[], object]]:
    def work(size: int) -> Callable[[], object]:
        schema = make(size)
        return lambda: schema_bound({**schema, "description": f"{next(_UNIQUE)}"})

    return work


def _nested(levels: int, inner: Callable[[Any], Any]) -> Any:
    made: Any = {"type": "string", "maxLength": 3}
    for _ in range(levels):
        made = inner(made)
    return made


TARGET = Target(
    name="bound",
    check=check,
    seeds=seeds,
    grown={
        "many properties": _fed(lambda size: {"type": "object", "properties": {
            f"p{number}": {"type": "string", "maxLength": 5} for number in range(size // 40)}}),
        "many alternatives": _fed(lambda size: {"anyOf": [
            {"type": "string", "maxLength": number + 1} for number in range(size // 40)]}),
        "many texts": _fed(lambda size: {"enum": [f"text {number}" for number in range(size // 12)]}),
        "a long pattern": _fed(lambda size: {"type": "string", "pattern": f"^{'a?' * (size // 2)}$"}),
        "definitions that refer to each other": _fed(lambda size: {
            "$ref": "#/$defs/d0", "$defs": {
                f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 2}"}]}
                for number in range(min(size // 70, 400))} | {"d400": {"type": "null"}}}),
        "objects in objects": _fed(lambda size: _nested(
            min(size // 50, 200), lambda inner: {"type": "object", "properties": {"a": inner}})),
    },
)  # fmt: skip
