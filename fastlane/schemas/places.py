"""What can stand at each place of a value, by its schema: which names, which texts, and what of them is free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .positions import ANNOTATIONS, DEFINITIONS
from .references import resolve

ANYTHING: Mapping[str, Any] = {}
"""The schema that allows everything."""

# What ties names or texts to rules that do not spell them out, or means something that depends on more than its place.
_UNREADABLE = frozenset(
    ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired",
     "dependentSchemas", "else", "if", "not", "patternProperties", "propertyNames", "then", "unevaluatedItems",
     "unevaluatedProperties")
)  # fmt: skip
_UNIONS = ("allOf", "anyOf", "oneOf")
# A type beside a union says no more than the union's members do.
_SILENT = ANNOTATIONS | DEFINITIONS | {"$id", "$ref", "$schema", "discriminator", "type", *_UNIONS}
_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_TEXT_RULES = frozenset(("format", "maxLength", "minLength", "pattern"))
_MOST_PLACES = 5_000

Key = tuple[int, ...]


class UnreadableSchemaError(Exception):
    """A schema that says what is valid in a way that places do not show."""


@dataclass(frozen=True, slots=True)
class Place:
    """All that the schemas which may hold at one place allow there, taken together."""

    properties: Mapping[str, tuple[Any, ...]]
    """By name: the schemas of what stands under it."""
    others: tuple[Any, ...]
    """The schemas of what stands under any other name; () where there are no others."""
    items: tuple[Any, ...]
    texts: tuple[str, ...]
    """The texts that are spelt out."""
    is_any_text: bool
    """Whether other texts may stand there as well, or rules for texts beside those that are spelt out."""


class Places:
    """The places of one schema's values. Objects that name properties and do not say otherwise have no others."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        """Raises UnreadableSchemaError."""
        self._root = root
        self._known: dict[Key, Place] = {}
        self.top: tuple[Any, ...] = (root,)
        for schemas in self._reachable():
            self.at(schemas)

    def all(self) -> Iterable[Place]:
        """Return every place that a value can have."""
        return self._known.values()

    def at(self, schemas: tuple[Any, ...]) -> Place:
        """Return the place where any of some schemas of the document holds."""
        key = key_of(schemas)
        if key not in self._known:
            if len(self._known) >= _MOST_PLACES:
                raise UnreadableSchemaError
            self._known[key] = self._made(schemas)
        return self._known[key]

    def _reachable(self) -> Iterator[tuple[Any, ...]]:
        waiting, seen = [self.top], {key_of(self.top)}
        while waiting:
            schemas = waiting.pop()
            yield schemas
            for below in children(self.at(schemas)):
                if key_of(below) not in seen:
                    seen.add(key_of(below))
                    waiting.append(below)

    def _made(self, schemas: tuple[Any, ...]) -> Place:
        properties: dict[str, tuple[Any, ...]] = {}
        others: tuple[Any, ...] = ()
        items: tuple[Any, ...] = ()
        texts: dict[str, None] = {}
        is_any_text = False
        for schema in self._flat(schemas):
            values = [schema["const"]] if "const" in schema else schema.get("enum")
            if isinstance(values, list):
                spelt = [value for value in values if isinstance(value, str)]
                texts.update(dict.fromkeys(spelt))
                is_any_text = is_any_text or bool(spelt and _TEXT_RULES & set(schema))
                # What is in an object or a list that is spelt out stays as it is.
                others += (ANYTHING,) if any(isinstance(value, dict) for value in values) else ()
                items += (ANYTHING,) if any(isinstance(value, list) for value in values) else ()
                continue
            kinds = _kinds(schema)
            is_any_text = is_any_text or "string" in kinds
            if "object" in kinds:
                for name, one in schema.get("properties", {}).items():
                    properties[name] = (*properties.get(name, ()), one)
                others += _others(schema)
            if "array" in kinds:
                items += _items(schema)
        return Place(properties, others, items, tuple(texts), is_any_text)

    def _flat(self, schemas: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        """The schemas that say something, with those that they refer to and are made of."""
        waiting, seen = list(schemas), set()
        while waiting:
            schema = waiting.pop()
            if id(schema) in seen or schema is False:
                continue
            seen.add(id(schema))
            if schema is True:
                schema = ANYTHING
            made_of = self._made_of(schema)
            waiting.extend(made_of)
            if not made_of or not _SILENT.issuperset(schema):
                yield schema

    def _made_of(self, schema: Any) -> list[Any]:
        """The schemas that hold for the same value."""
        if not isinstance(schema, Mapping) or not _UNREADABLE.isdisjoint(schema):
            raise UnreadableSchemaError
        made_of = [one for key in _UNIONS for one in schema.get(key, ())]
        if "$ref" in schema:
            made_of.append(self._referred(schema["$ref"]))
        # Objects that hold together would each forbid the names of the other, once they are closed.
        if (made_of and "properties" in schema) or len(schema.get("allOf", ())) > 1:
            raise UnreadableSchemaError
        if "$id" in schema and schema is not self._root:
            raise UnreadableSchemaError
        return made_of

    def _referred(self, reference: Any) -> Any:
        parts = reference.split("/") if isinstance(reference, str) else []
        is_definition = len(parts) == 3 and parts[0] == "#" and parts[1] in DEFINITIONS
        # A reference along properties would lead nowhere once these are called otherwise.
        target = resolve(self._root, reference) if is_definition or reference == "#" else None
        if target is None:
            raise UnreadableSchemaError
        return target


def key_of(schemas: tuple[Any, ...]) -> Key:
    """Return what tells places apart. Valid as long as the schema that they are of is not collected."""
    return tuple(sorted({id(schema) for schema in schemas}))


def children(place: Place) -> Iterator[tuple[Any, ...]]:
    """Yield the schemas of every place directly below one."""
    for schemas in place.properties.values():
        yield (*schemas, *place.others)
    if place.others:
        yield place.others
    if place.items:
        yield place.items


def is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether an object has no other properties than those that the schema names."""
    beside = schema.get("additionalProperties")
    return beside is False or ("additionalProperties" not in schema and "properties" in schema)


def _others(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    if is_closed(schema):
        return ()
    beside = schema.get("additionalProperties")
    return (beside if isinstance(beside, Mapping) else ANYTHING,)


def _items(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    listed = schema.get("items")
    first = tuple(schema.get("prefixItems", ())) + (tuple(listed) if isinstance(listed, list) else ())
    rest = schema.get("additionalItems") if isinstance(listed, list) else listed
    return (*first, ANYTHING if rest is None or rest is True else rest)


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset((kind,))
    return frozenset(kind) if isinstance(kind, list) else _TYPES
