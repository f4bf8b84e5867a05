"""Where a JSON schema has schemas in it, and which of its keywords only describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .references import resolve

ONE = frozenset(
    ("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
     "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")
)  # fmt: skip
"""Keywords whose value is a schema."""

SEVERAL = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""

NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
"""Keywords whose value has schemas by name."""

DEFINITIONS = frozenset(("$defs", "definitions"))
"""Keywords under which schemas stand that hold only where they are referred to."""

BESIDE = frozenset(("allOf", "anyOf", "dependentSchemas", "else", "oneOf", "then"))
"""Keywords whose schemas speak of the same value as the schema that they stand in."""

ANNOTATIONS = frozenset(
    ("$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly")
)
"""Keywords that say nothing of what is valid."""

_KINDS: Mapping[str, type] = {"$ref": str, "enum": list}
_OF_ITEMS = frozenset(("additionalItems", "contains", "items", "prefixItems", "unevaluatedItems"))


def inner(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that stand directly in a schema. References are not followed."""
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            yield from value.values()
        elif key in SEVERAL and isinstance(value, list):
            yield from value
        elif key in ONE:
            yield value


def rebuilt(key: str, value: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    """Return a keyword's value with every schema directly in it as `change(schema, path)` makes it.

    `path`: of the schema that the keyword stands in, such as "Ticket"; what is changed has its own, "Ticket.tags[]".
    """
    if key in NAMED and isinstance(value, Mapping):
        if key in DEFINITIONS:
            return {name: change(one, name) for name, one in value.items()}
        return {name: change(one, f"{path}.{name}" if key == "properties" else path) for name, one in value.items()}
    inner_path = f"{path}[]" if key in _OF_ITEMS else path
    if key in SEVERAL and isinstance(value, list):
        return [change(one, inner_path) for one in value]
    return change(value, inner_path) if key in ONE else value


def reachable(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema, those within it, and those that their references lead to, each once."""
    waiting, seen = [schema], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting.extend(inner(one))
            if isinstance(one.get("$ref"), str):
                waiting.append(resolve(root, one["$ref"]))


def uses(schema: Any, keywords: frozenset[str], root: Any = None) -> bool:
    """Whether any of the keywords stands in a schema, in one within it, or in one that these refer to in `root`."""
    return any(not keywords.isdisjoint(one) for one in reachable(schema, root))


def is_well_formed(schema: Any) -> bool:
    """Whether what is read of a schema, and of those within it, is of the kind that JSON schema says."""
    if not isinstance(schema, Mapping):
        return isinstance(schema, bool)
    for key, value in schema.items():
        if key in NAMED:
            is_right = isinstance(value, Mapping)
        elif key in SEVERAL and not (key == "items" and isinstance(value, Mapping | bool)):
            is_right = isinstance(value, list)
        elif key in ("required", "type"):
            names = [value] if key == "type" and isinstance(value, str) else value
            is_right = isinstance(names, list) and all(isinstance(name, str) for name in names)
        else:
            is_right = isinstance(value, _KINDS.get(key, object))
        if not is_right:
            return False
    return all(map(is_well_formed, inner(schema)))


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether a schema speaks of objects."""
    kind = schema.get("type")
    if kind is None:
        return isinstance(schema.get("properties"), Mapping)
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a schema without some of its keywords."""
    return {key: value for key, value in schema.items() if key not in keys}
