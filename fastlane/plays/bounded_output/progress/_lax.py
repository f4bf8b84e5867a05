"""What a class of pydantic's takes beyond its JSON schema: numbers in quotes, more properties, some missing."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from ._nodes import Node, compile_schema

# What pydantic reads as its JSON schema says, or as `_lax` knows. Anything else may read whatever it likes.
_KNOWN = frozenset({
    "any", "bool", "bytes", "dataclass", "dataclass-args", "dataclass-field", "date", "datetime", "decimal", "default",
    "definition-ref", "definitions", "dict", "enum", "float", "frozenset", "function-after", "int", "json",
    "json-or-python", "lax-or-strict", "list", "literal", "model", "model-field", "model-fields", "multi-host-url",
    "nullable", "no-info", "none", "set", "str", "tagged-union", "time", "timedelta", "tuple", "typed-dict",
    "typed-dict-field", "union", "url", "uuid", "with-info",
})  # fmt: skip
_CHANGES_TEXTS = (
    "strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str", "str_strip_whitespace", "str_to_lower",
    "str_to_upper", "custom_init", "missing",
)  # fmt: skip
_NO_PART_OF_READING = frozenset({
    "default", "expected", "function", "members", "metadata", "python_schema", "serialization", "strict_schema",
})  # fmt: skip
_BY_OWN_NAMES = frozenset({"fields", "choices"})

_NUMBERS = ["number", "string", "boolean"]
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTS = frozenset({"anyOf", "allOf", "prefixItems"})
_KEPT = frozenset({"$ref", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_OF_TEXT = frozenset({"minLength", "maxLength"})
_OF_LISTS = frozenset({"minItems", "maxItems"})


@lru_cache(maxsize=256)
def is_plain(kind: Any) -> bool:
    """Whether a class takes nothing but what `lax_node` of its JSON schema allows: it has no code of its own for that.

    A validator that runs before or around pydantic's own may make anything of anything; one that runs after it can only
    refuse more.
    """
    from pydantic import BaseModel, TypeAdapter

    try:
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        core: Any = kind.__pydantic_core_schema__ if is_model else TypeAdapter(kind).core_schema
        return _is_plain(core)
    except Exception:  # noqa: BLE001 - a class that pydantic cannot tell of is not plain
        return False


def _is_plain(core: Any) -> bool:
    if not isinstance(core, Mapping):
        return False  # not built yet
    waiting, seen = [core], set()
    while waiting:
        at = waiting.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, Mapping):
            kind = at.get("type")
            if isinstance(kind, str) and kind not in _KNOWN:
                return False
            if kind == "enum" and _finds_others(at.get("cls")):
                return False
            if any(at.get(name) for name in _CHANGES_TEXTS) or at.get("on_error", "raise") != "raise":
                return False
            for name, value in at.items():
                if name in _BY_OWN_NAMES and isinstance(value, Mapping):
                    waiting += value.values()
                elif name not in _NO_PART_OF_READING:
                    waiting.append(value)
        elif isinstance(at, list | tuple):
            waiting += at
    return True


def _finds_others(kind: Any) -> bool:
    """Whether an enumeration takes values that it does not list."""
    return getattr(getattr(kind, "_missing_", None), "__func__", None) is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def lax_node(schema: Any) -> Node:
    """Return what to watch JSON by that a plain class reads; kept by content."""
    if not isinstance(schema, Mapping):
        return compile_schema(schema)
    try:
        return _compiled(orjson.dumps(schema))
    except TypeError:
        return compile_schema(_lax(schema))


@lru_cache(maxsize=256)
def _compiled(written: bytes) -> Node:
    return compile_schema(_lax(orjson.loads(written)))


def _lax(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
    if kinds:
        found["type"] = sorted({one for name in kinds for one in _lax_kinds(name, schema)})
    of_text = kinds == ["string"] and "format" not in schema
    of_lists = schema.get("uniqueItems") is not True  # a set counts what is left of them
    for name, value in schema.items():
        if name in _KEPT or (name in _OF_TEXT and of_text) or (name in _OF_LISTS and of_lists):
            found[name] = value
        elif name in _BY_NAME and isinstance(value, Mapping):
            found[name] = {key: _lax(inner) for key, inner in value.items()}
        elif name in _LISTS and isinstance(value, list):
            found[name] = [_lax(inner) for inner in value]
        elif name == "oneOf" and isinstance(value, list):
            # What is laxer may be read in more than one way.
            found.setdefault("allOf", []).append({"anyOf": [_lax(inner) for inner in value]})
        elif name == "items" or (name == "additionalProperties" and isinstance(value, Mapping)):
            found[name] = _lax(value)
        elif name in ("enum", "const") and _are_texts(value if isinstance(value, list) else [value]):
            found[name] = value
    return found


def _lax_kinds(name: str, schema: Mapping[str, Any]) -> list[str]:
    if name in ("number", "integer", "boolean"):
        return _NUMBERS
    if name == "string" and "format" in schema:
        return ["string", "number"]  # a moment may be told in seconds
    return [name]


def _are_texts(values: list[Any]) -> bool:
    return all(value is None or isinstance(value, str) for value in values)
