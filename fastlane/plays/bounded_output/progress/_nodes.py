"""What a JSON schema allows at each place of a value, compiled while an answer is read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from itertools import count

from fastlane.schemas.by_content import written
from fastlane.schemas.references import Schema

from ..validation._reading_rules import kind_rule
from ._alternatives import Alternatives, Together, TooManyError
from ._json_numbers import NumberRule
from ._leaves import (
    ANY,
    ARRAY,
    NUMBER,
    OBJECT,
    STRING,
    Leaf,
    StringRule,
    is_mentioned,
    item_schemas,
    kinds_of,
    least_of,
    most_of,
    names_of,
    number_rule,
    property_schemas,
    required_of,
    string_rule,
    tuple_length,
    values_of,
)

# A schema with more places than this is watched by its syntax alone from there on.
_MOST_NODES = 10_000
# Nodes for what is left of alternatives, of which answers could choose every set there is.
_MOST_NARROWED = 10_000
_COMPILED = 256


class Node:
    """What is allowed at one place: at least all that the schema allows there, and as little more as is easily said.

    Of alternatives (`anyOf`) what one of them allows is allowed, as long as none is chosen by the text of a property.
    Keywords that are not looked at allow anything.
    """

    __slots__ = (
        "_alternatives",
        "_arrays",
        "_choices",
        "_document",
        "_items",
        "_members",
        "_narrower",
        "_objects",
        "anything",
        "kinds",
        "least_items",
        "least_length",
        "least_properties",
        "most_items",
        "most_length",
        "most_properties",
        "names",
        "numbers",
        "required",
        "values",
    )

    kinds: int
    """Which kinds of value, as bits of `_leaves`; none: no value at all."""
    values: tuple[str, ...] | None
    """The only strings, sorted; None: any."""
    names: tuple[str, ...] | None
    """The only names of properties, sorted; None: see `member`."""
    required: tuple[int, ...]
    """Of every alternative, the bits of the properties that an object must have."""

    def __init__(self, document: Document, alternatives: Iterable[tuple[Leaf, ...]]) -> None:
        self._document = document
        allowed = [(leaves, kinds) for leaves in alternatives if (kinds := _kinds(leaves))]
        self.kinds = 0
        for _, kinds in allowed:
            self.kinds |= kinds
        self.anything = any(not leaves for leaves, _ in allowed)
        self._alternatives = [leaves for leaves, _ in allowed]
        self._set_strings([string_rule(leaves) for leaves, kinds in allowed if kinds & STRING])
        numbers = [number_rule(leaves, kinds) for leaves, kinds in allowed if kinds & NUMBER]
        self.numbers: tuple[NumberRule, ...] | None = None if NumberRule() in numbers else tuple(numbers)
        self._set_objects([leaves for leaves, kinds in allowed if kinds & OBJECT])
        self._set_arrays([leaves for leaves, kinds in allowed if kinds & ARRAY])

    def _set_strings(self, rules: list[StringRule]) -> None:
        rules = [rule for rule in rules if rule.values is None or rule.values]
        if not rules:
            self.kinds &= ~STRING
        free = [rule for rule in rules if rule.values is None]
        values = [value for rule in rules for value in rule.values or ()]
        lengths = [len(value) for value in values]
        self.values = None if free else tuple(sorted(set(values)))
        self.least_length = min([*lengths, *[rule.least for rule in free]], default=0)
        self.most_length = _most([*lengths, *[rule.most for rule in free]])

    def _set_objects(self, objects: list[tuple[Leaf, ...]]) -> None:
        document = self._document
        self._objects = objects
        self._members: dict[str, tuple[Node, int, Node]] = {}
        self._narrower: dict[tuple[bool, ...], Node] = {}
        self._choices: dict[tuple[str, str], Node] = {}
        self.least_properties = min([least_of(leaves, "minProperties") for leaves in objects], default=0)
        self.most_properties = _most([most_of(leaves, "maxProperties") for leaves in objects])
        required = [[name for leaf in leaves for name in required_of(leaf)] for leaves in objects]
        self.required = tuple({document.bits(names): None for names in required})
        names: set[str] = set()
        for leaves in objects:
            closed = [only for leaf in leaves if (only := names_of(leaf)) is not None]
            if not closed:
                self.names = None
                return
            names |= {name for name in frozenset.intersection(*closed) if document.member(leaves, name) is not None}
        self.names = tuple(sorted(names))

    def _set_arrays(self, arrays: list[tuple[Leaf, ...]]) -> None:
        self._arrays = arrays
        self._items: dict[int, Node] = {}
        self.least_items = min([least_of(leaves, "minItems") for leaves in arrays], default=0)
        self.most_items = _most([self._document.most_items(leaves) for leaves in arrays])

    def member(self, name: str) -> tuple[Node, int, Node] | None:
        """Return what is allowed as the value of a property, its bit, and what is allowed of an object that has it.

        None where there may be no such property.
        """
        found = self._members.get(name)
        if found is not None:
            return found
        if self.anything:
            return self, 0, self
        document = self._document
        children = [document.member(leaves, name) for leaves in self._objects]
        having = tuple([child is not None for child in children])
        if not any(having):
            return None
        node = document.node([child for child in children if child is not None])
        found = node, document.bit(name), self._narrowed(having)
        # Names that no schema mentions are the answer's: they are not kept.
        if self.mentions(name):
            self._members[name] = found
        return found

    def chosen(self, name: str, text: str) -> Node:
        """Return what is allowed of an object in which one property is a certain text, say its class's name."""
        if len(self._objects) < 2 or self.anything:
            return self
        found = self._choices.get((name, text))
        if found is None:
            found = self._narrowed(tuple([self._document.takes(leaves, name, text) for leaves in self._objects]))
            if name in self._members:
                self._choices[name, text] = found
        return found

    def _narrowed(self, left: tuple[bool, ...]) -> Node:
        """Return what is allowed of an object for which only some of the alternatives are left."""
        if all(left):
            return self
        found = self._narrower.get(left)
        if found is None:
            alternatives = [leaves for leaves, is_left in zip(self._objects, left, strict=True) if is_left]
            found = self._document.narrowed(alternatives)
            if found is not None:
                self._narrower[left] = found
        return found or self

    def mentions(self, name: str) -> bool:
        """Whether the schema itself names a property."""
        return any(is_mentioned(leaf, name) for leaves in self._objects for leaf in leaves)

    def missing(self, seen: int) -> list[str]:
        """Return the properties that an object lacks which has those of these bits."""
        document = self._document
        wanted = [dict.fromkeys(name for leaf in leaves for name in required_of(leaf)) for leaves in self._objects]
        lacking = [[name for name in names if document.bit(name) & ~seen] for names in wanted]
        return min((names for names in lacking if names), key=lambda names: (len(names), names), default=[])

    def kind_rule(self) -> str:
        """Return the rule that a value breaks which is of none of the kinds."""
        is_listed = all(any(values_of(leaf) is not None for leaf in leaves) for leaves in self._alternatives)
        return kind_rule(self.kinds, is_listed=is_listed)

    def item(self, index: int) -> Node:
        """Return what is allowed as an item of an array; `most_items` says whether there may be one."""
        if self.anything:
            return self
        # Behind the longest tuple of all alternatives every item is like the next.
        index = min(index, max([tuple_length(leaf) for leaves in self._arrays for leaf in leaves], default=0))
        found = self._items.get(index)
        if found is None:
            document = self._document
            children = [child for leaves in self._arrays if (child := document.item(leaves, index)) is not None]
            found = self._items[index] = document.node(children)
        return found


class Document:
    """A schema with all of its places, those that were looked at so far."""

    def __init__(self, root: Schema) -> None:
        self._alternatives = Alternatives(root)
        self._nodes: dict[frozenset[Together], Node] = {}
        self._bits: dict[str, int] = {}
        self._next_bit = count()
        self._narrowed = 0
        self._anything = Node(self, [()])
        together = self._alternatives.together([root])
        self.root = self.node([] if together is None else [together])

    def node(self, choices: Iterable[Together]) -> Node:
        """Return what is allowed where one of the choices holds."""
        key = frozenset(choices)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = self._made(key)
        return found

    def _made(self, key: frozenset[Together]) -> Node:
        if frozenset() in key or len(self._nodes) > _MOST_NODES:
            return self._anything
        try:
            return Node(self, [leaves for together in key for leaves in self._alternatives.leaves(together)])
        except TooManyError:
            return self._anything

    def narrowed(self, alternatives: Iterable[tuple[Leaf, ...]]) -> Node | None:
        """Return what some alternatives of a node allow; None where so many were made that no more are."""
        if self._narrowed >= _MOST_NARROWED:
            return None
        self._narrowed += 1
        return Node(self, alternatives)

    def member(self, leaves: Iterable[Leaf], name: str) -> Together | None:
        """Return what the value of a property has to be valid for; None where it can be nothing."""
        return self._alternatives.together([schema for leaf in leaves for schema in property_schemas(leaf, name)])

    def item(self, leaves: Iterable[Leaf], index: int) -> Together | None:
        """Return what an item has to be valid for; None where it can be nothing."""
        return self._alternatives.together([schema for leaf in leaves for schema in item_schemas(leaf, index)])

    def most_items(self, leaves: tuple[Leaf, ...]) -> int | None:
        """Return how many items an array can have: as many as are said, and not where none is valid."""
        most = most_of(leaves, "maxItems")
        for index in range(max(map(tuple_length, leaves), default=0) + 1):
            if most is not None and index >= most:
                break
            if self.item(leaves, index) is None:
                return index
        return most

    def takes(self, leaves: Iterable[Leaf], name: str, text: str) -> bool:
        """Whether a property can be a text."""
        member = self.member(leaves, name)
        if member is None:
            return False
        node = self.node([member])
        return bool(node.kinds & STRING) and (node.values is None or text in node.values)

    def bit(self, name: str) -> int:
        """Return the bit of a property that some object must have; 0 for any other."""
        return self._bits.get(name, 0)

    def bits(self, names: Iterable[str]) -> int:
        """Return the bits of properties that an object must have."""
        bits = 0
        for name in names:
            if name not in self._bits:
                # Threads read answers by one document: no two names may have one bit.
                self._bits.setdefault(name, 1 << next(self._next_bit))
            bits |= self._bits[name]
        return bits


def compile_schema(schema: Schema | None) -> Node:
    """Return what a schema allows; None, and what is no JSON, allow anything. The same content is compiled once."""
    if schema is None or isinstance(schema, bool):
        return _ANYTHING if schema is not False else _NOTHING
    try:
        return _compiled(written(schema))
    except (TypeError, ValueError, RecursionError):
        # What cannot be written or read as JSON cannot have been sent either.
        return _ANYTHING


@lru_cache(maxsize=_COMPILED)
def _compiled(text: bytes) -> Node:
    # A copy: the application may go on to change its own.
    return Document(json.loads(text)).root


def _kinds(leaves: Iterable[Leaf]) -> int:
    kinds = ANY
    for leaf in leaves:
        kinds &= kinds_of(leaf)
    return kinds


def _most(given: list[int | None]) -> int | None:
    """Return the largest; None where one of them is any, or there is none."""
    numbers = [number for number in given if number is not None]
    return max(numbers) if numbers and len(numbers) == len(given) else None


_ANYTHING = Document(True).root
_NOTHING = Document(False).root
