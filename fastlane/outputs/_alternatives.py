"""Follow the keywords that combine schemas: what is left are alternatives, each of schemas that hold together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._leaves import Leaf, values_of
from ._references import Schema, resolve

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
_OLD = ("/draft-03/", "/draft-04/", "/draft-06/", "/draft-07/")
_OLDEST = ("/draft-03/", "/draft-04/")
_WITHOUT_PREFIX_ITEMS = (*_OLD, "/draft/2019-09/")


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
        self._schemas: list[Mapping[str, Any]] = []
        self._made: dict[int, tuple[Leaf, tuple[Any, ...]]] = {}
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        draft = draft if isinstance(draft, str) else ""
        self._reference_stands_alone = any(old in draft for old in _OLD)
        self._excludes_limits = any(oldest in draft for oldest in _OLDEST)
        ignored = ["const"] if self._excludes_limits else []
        if any(old in draft for old in _WITHOUT_PREFIX_ITEMS):
            ignored.append("prefixItems")
        self._ignored = frozenset(ignored)
        # What lies in a part with a name of its own is found from there, and not from the document's root.
        named = "id" if self._excludes_limits else "$id"
        self._follows = not any(named in part for part in _parts(root) if part is not root)

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
            number = self._numbers[id(schema)] = len(self._schemas)
            self._schemas.append(schema)
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
            if self._reference_stands_alone:
                return {}, tuple(more)
        if isinstance(all_of := schema.get("allOf"), list):
            more += all_of
        more += [_Choice(any_of) for name in ("anyOf", "oneOf") if isinstance(any_of := schema.get(name), list)]
        leaf = {name: value for name, value in schema.items() if name in _LOOKED_AT and name not in self._ignored}
        for name, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            # Draft 4 says whether the limit itself is excluded, later ones give one.
            excluded = leaf.get(name)
            if self._excludes_limits and excluded is True and limit in leaf:
                leaf[name] = leaf.pop(limit)
            elif self._excludes_limits or isinstance(excluded, bool):
                leaf.pop(name, None)
        values = values_of(leaf)
        if values is not None and any(isinstance(value, Mapping | list) for value in values):
            leaf.pop("const", None)
            leaf.pop("enum", None)
            more.append(_Choice([_schema_of(value) for value in values]))
        return leaf, tuple(more)


def _schema_of(value: Any) -> Leaf:
    """Return the schema for which one value alone is valid."""
    if isinstance(value, Mapping):
        return {
            "type": "object",
            "properties": {name: _schema_of(member) for name, member in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    if isinstance(value, list):
        return {
            "type": "array",
            "prefixItems": [_schema_of(item) for item in value],
            "minItems": len(value),
            "maxItems": len(value),
        }
    return {"enum": [value]}


def _parts(root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a document."""
    open_ = [root]
    while open_:
        part = open_.pop()
        if isinstance(part, Mapping):
            yield part
            open_ += part.values()
        elif isinstance(part, list):
            open_ += part
