"""Follow the keywords that combine schemas: what is left are alternatives, each of schemas that hold together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from fastlane.schemas.drafts import NEWEST, Dialect, dialect_of, has_identifiers
from fastlane.schemas.references import Schema, resolve

from ._leaves import Leaf, values_of

Together = frozenset[int]
"""Schemas that hold together, by number; none: anything is allowed."""

# A place with more alternatives is taken for one of any: a union of so many classes is no shape to hold an answer to.
_MOST = 256

_LOOKED_AT = frozenset(
    (
        "type",
        "enum",
        "const",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
        "items",
        "prefixItems",
        "additionalItems",
        "minItems",
        "maxItems",
    )
)


class _Choice(tuple[Any, ...]):
    """Schemas of which one holds."""

    __slots__ = ()


class TooManyError(Exception):
    """A place has more alternatives than are looked at."""


class Alternatives:
    """The schemas of one document."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._numbers: dict[int, int] = {}
        self._next_number = count()
        self._schemas: dict[int, Mapping[str, Any]] = {}
        self._made: dict[int, tuple[Leaf, tuple[Any, ...]]] = {}
        # jsonschema takes a draft that it does not know for the newest.
        self._dialect = dialect_of(root) or Dialect(NEWEST)
        # Lists of `items`, and what stands beside them, are written without a draft's name as well.
        self._read = frozenset(name for name in _LOOKED_AT if self._dialect.knows(name) or name == "additionalItems")
        # What lies in a part with a name of its own is found from there, and not from the document's root.
        self._follows = not has_identifiers(root, self._dialect)

    def together(self, schemas: Iterable[Any]) -> Together | None:
        """Return the number of what holds together; None where nothing is valid for all of them."""
        numbers: set[int] = set()
        for schema in schemas:
            if schema is False:
                return None
            if isinstance(schema, Mapping):
                numbers.add(self._number(schema))
        return frozenset(numbers)

    def leaves(self, together: Together) -> list[tuple[Leaf, ...]]:
        """Return the alternatives of what holds together.

        Raises TooManyError where there are too many to look at.
        """
        done: list[tuple[Leaf, ...]] = []
        # Of each: schemas and choices that are still to be looked at; those that were; the leaves.
        first = tuple([self._schemas[number] for number in sorted(together)])
        open_: list[tuple[tuple[Any, ...], Together, tuple[Leaf, ...]]] = [(first, frozenset(), ())]
        while open_:
            pending, seen, leaves = open_.pop()
            if not pending:
                done.append(leaves)
                if len(done) > _MOST:
                    raise TooManyError
                continue
            schema, pending = pending[0], pending[1:]
            if isinstance(schema, _Choice):
                open_ += [((option, *pending), seen, leaves) for option in schema]
                if len(open_) > 2 * _MOST:
                    raise TooManyError
                continue
            if not isinstance(schema, Mapping):
                # What is no schema at all allows anything.
                if schema is not False:
                    open_.append((pending, seen, leaves))
                continue
            number = self._number(schema)
            if number in seen:
                open_.append((pending, seen, leaves))
                continue
            leaf, more = self._split(number, schema)
            open_.append(((*more, *pending), seen | {number}, (*leaves, leaf) if leaf else leaves))
        return done

    def _number(self, schema: Mapping[str, Any]) -> int:
        number = self._numbers.get(id(schema))
        if number is None:
            # Threads read answers by one document: a number stands for a schema before anybody is told of it.
            number = next(self._next_number)
            self._schemas[number] = schema
            number = self._numbers.setdefault(id(schema), number)
        return number

    def _split(self, number: int, schema: Mapping[str, Any]) -> tuple[Leaf, tuple[Any, ...]]:
        """Return a schema without what combines others, and those: a list is a choice."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._parted(schema)
        return made

    def _parted(self, schema: Mapping[str, Any]) -> tuple[Leaf, tuple[Any, ...]]:
        more: list[Any] = []
        reference = schema.get("$ref")
        if isinstance(reference, str):
            more.append(resolve(self._root, reference) if self._follows else None)
            if self._dialect.reference_alone:
                return {}, tuple(more)
        if isinstance(all_of := schema.get("allOf"), list):
            more += all_of
        more += [_Choice(any_of) for name in ("anyOf", "oneOf") if isinstance(any_of := schema.get(name), list)]
        leaf = {name: value for name, value in schema.items() if name in self._read}
        for name, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            # Draft 4 says whether the limit itself is excluded, later ones give one.
            if isinstance(schema.get(name), bool):
                leaf.pop(name, None)
                if schema[name] and limit in leaf and not self._dialect.knows(name):
                    leaf[name] = leaf.pop(limit)
        values = values_of(leaf)
        if values is not None and any(isinstance(value, Mapping | list) for value in values):
            leaf.pop("const", None)
            leaf.pop("enum", None)
            more.append(_Choice([_schema_of(value) for value in values]))
        return leaf, tuple(more)


def _schema_of(value: Any) -> Leaf:
    """Return the schema for which one value alone is valid; what is in it is looked at when it is come to."""
    if isinstance(value, Mapping):
        return {
            "type": "object",
            "properties": {name: {"enum": [member]} for name, member in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    if isinstance(value, list):
        return {
            "type": "array",
            "prefixItems": [{"enum": [item]} for item in value],
            "minItems": len(value),
            "maxItems": len(value),
        }
    return {"enum": [value]}
