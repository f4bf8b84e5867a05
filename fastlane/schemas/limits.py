"""How large a JSON schema is, and whether a provider takes one so large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastlane.providers._schema import Structured

from .by_content import ByContent
from .positions import DEFINITIONS, inner, is_well_formed, without
from .references import resolve

# From so many values on, an enum's texts are counted together.
_LARGE_ENUM = 250

_sizes: ByContent[Mapping[str, int]] = ByContent()


def over_limits(schema: Mapping[str, Any], structured: Structured | None) -> str | None:
    """Return how a schema is larger than the provider takes: "Ticket has 134 properties, and the provider takes 100".

    None where it is not, or nobody knows. Where providers do not say how they count, the smaller count counts.
    """
    known = structured.limits if structured is not None else None
    if known is None or known.value is None:
        return None
    sizes = _sizes.of(schema, None, _counted)
    for limit, most in known.value.items():
        if sizes.get(limit, 0) > most:
            title = schema.get("title")
            name = title if isinstance(title, str) and title else "The schema"
            return f"{name} has {sizes[limit]:,} {_WORDS[limit]}, and the provider takes {most:,}"
    return None


def _counted(schema: Mapping[str, Any]) -> Mapping[str, int]:
    """Every size of a schema; none of what is no schema, or is nested too deeply to be read."""
    try:
        return {limit: count(schema) for limit, count in _COUNTS.items()} if is_well_formed(schema) else {}
    except RecursionError:
        return {}


def _all(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every schema as it is written down, each definition once."""
    if isinstance(schema, Mapping):
        yield schema
        for one in inner(schema):
            yield from _all(one)


def _properties(schema: Mapping[str, Any]) -> int:
    return sum(len(_names(one.get("properties"))) for one in _all(schema))


def _enum_values(schema: Mapping[str, Any]) -> int:
    return sum(len(_list(one.get("enum"))) for one in _all(schema))


def _enum_characters(schema: Mapping[str, Any]) -> int:
    """The characters of the largest of its long enums of texts."""
    long = (_texts(one.get("enum")) for one in _all(schema) if len(_list(one.get("enum"))) > _LARGE_ENUM)
    return max((sum(map(len, texts)) for texts in long), default=0)


def _name_characters(schema: Mapping[str, Any]) -> int:
    total = 0
    for one in _all(schema):
        named = [*_names(one.get("properties")), *(name for key in DEFINITIONS for name in _names(one.get(key)))]
        total += sum(map(len, (*named, *_texts(one.get("enum")), *_texts([one.get("const")]))))
    return total


def _depth(schema: Mapping[str, Any]) -> int:
    """How many objects can stand in one another; one that stands in itself counts once."""
    return _levels(schema, schema, {})


def _levels(root: Mapping[str, Any], schema: Any, known: dict[str, int]) -> int:
    """`known`: by reference, how deep what it leads to is; 0 while that is being counted."""
    if not isinstance(schema, Mapping):
        return 0
    deepest = 0
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = 0
            known[reference] = _levels(root, resolve(root, reference), known)
        deepest = known[reference]
    for one in inner(without(schema, *DEFINITIONS)):
        deepest = max(deepest, _levels(root, one, known))
    return deepest + (1 if schema.get("properties") else 0)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, Mapping) else ()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]


_COUNTS = {
    "properties": _properties,
    "depth": _depth,
    "enum_values": _enum_values,
    "enum_characters": _enum_characters,
    "name_characters": _name_characters,
}
_WORDS = {
    "properties": "properties",
    "depth": "levels of objects",
    "enum_values": "values in its enums",
    "enum_characters": "characters in one enum",
    "name_characters": "characters of names and values",
}
