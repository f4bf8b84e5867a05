"""What the keywords of one schema say, those that combine schemas aside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..validation._linear_patterns import search
from ._json_numbers import NumberRule

Leaf = Mapping[str, Any]
"""A schema whose `$ref`, `allOf`, `anyOf`, `oneOf` somebody else follows."""

OBJECT: Final = 1
ARRAY: Final = 2
STRING: Final = 4
INTEGER: Final = 8
FRACTION: Final = 16
TRUE: Final = 32
FALSE: Final = 64
NULL: Final = 128
NUMBER: Final = INTEGER | FRACTION
ANY: Final = 255

_KINDS: Final[Mapping[str, int]] = {
    "object": OBJECT,
    "array": ARRAY,
    "string": STRING,
    "integer": INTEGER,
    "number": NUMBER,
    "boolean": TRUE | FALSE,
    "null": NULL,
}


class StringRule(NamedTuple):
    """Which strings one alternative of a schema takes."""

    values: frozenset[str] | None
    """Only these; None: any."""
    least: int
    most: int | None
    """Characters: code points."""


def values_of(leaf: Leaf) -> list[Any] | None:
    """Return what `enum` and `const` allow; None where they say nothing."""
    # Both at once are rare: `enum` may then refuse what `const` allows, and is not looked at.
    if "const" in leaf:
        return [leaf["const"]]
    enum = leaf.get("enum")
    return enum if isinstance(enum, list) else None


def kinds_of(leaf: Leaf) -> int:
    """Return the kinds of value that a schema takes, as bits."""
    kinds = _kinds_of_type(leaf.get("type"))
    values = values_of(leaf)
    if values is not None:
        of_values = 0
        for value in values:
            of_values |= kind_of(value)
        kinds &= of_values
    return kinds


def kind_of(value: Any) -> int:
    """Return the kind of a value as a bit."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, str):
        return STRING
    if isinstance(value, int | float):
        return INTEGER if value == value // 1 else FRACTION
    return OBJECT if isinstance(value, Mapping) else ARRAY


def _kinds_of_type(given: Any) -> int:
    if isinstance(given, str):
        return _KINDS.get(given, ANY)
    if not isinstance(given, list):
        return ANY
    kinds = 0
    for name in given:
        # A kind that nobody knows is no reason to refuse anything.
        kinds |= _KINDS.get(name, ANY) if isinstance(name, str) else ANY
    return kinds


def count_of(leaf: Leaf, keyword: str) -> int | None:
    """Return what a keyword such as `maxItems` says; None where that is no number of things."""
    given = leaf.get(keyword)
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given // 1:
        return None
    return int(given)


def least_of(leaves: Iterable[Leaf], keyword: str) -> int:
    """Return the strictest of minima such as `minItems`."""
    return max([count_of(leaf, keyword) or 0 for leaf in leaves], default=0)


def most_of(leaves: Iterable[Leaf], keyword: str) -> int | None:
    """Return the strictest of maxima such as `maxItems`."""
    return min([most for leaf in leaves if (most := count_of(leaf, keyword)) is not None], default=None)


def string_rule(leaves: Iterable[Leaf]) -> StringRule:
    """Return which strings all of the schemas take."""
    leaves = list(leaves)
    least, most = least_of(leaves, "minLength"), most_of(leaves, "maxLength")
    values: frozenset[str] | None = None
    for leaf in leaves:
        given = values_of(leaf)
        if given is not None:
            strings = frozenset([value for value in given if isinstance(value, str)])
            values = strings if values is None else values & strings
    if values is not None:
        values = frozenset([value for value in values if least <= len(value) and (most is None or len(value) <= most)])
    return StringRule(values, least, most)


def number_rule(leaves: Iterable[Leaf], kinds: int) -> NumberRule:
    """Return which numbers all of the schemas take."""
    rule = NumberRule(whole=not kinds & FRACTION)
    for leaf in leaves:
        low, high = _limit(leaf, "minimum"), _limit(leaf, "maximum")
        above, below = _limit(leaf, "exclusiveMinimum"), _limit(leaf, "exclusiveMaximum")
        values = values_of(leaf)
        only = rule.values if values is None else _numbers(values)
        rule = NumberRule(
            rule.whole,
            _strictest(max, rule.low, low),
            _strictest(max, rule.above, above),
            _strictest(min, rule.high, high),
            _strictest(min, rule.below, below),
            only if only is None or rule.values is None else only & rule.values,
        )
    return rule


def _limit(leaf: Leaf, keyword: str) -> float | None:
    given = leaf.get(keyword)
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None


def _strictest(choose: Any, one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else choose(one, other)


def _numbers(values: Iterable[Any]) -> frozenset[float]:
    return frozenset([value for value in values if isinstance(value, int | float) and not isinstance(value, bool)])


def names_of(leaf: Leaf) -> frozenset[str] | None:
    """Return the only names that an object's properties may have; None where it may have any."""
    if leaf.get("additionalProperties") is not False or leaf.get("patternProperties"):
        return None
    properties = leaf.get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()


def required_of(leaf: Leaf) -> list[str]:
    """Return the names of the properties that an object must have."""
    required = leaf.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def property_schemas(leaf: Leaf, name: str) -> Iterator[Any]:
    """Yield the schemas that the value of one property has to be valid for."""
    properties, patterns = leaf.get("properties"), leaf.get("patternProperties")
    found = False
    if isinstance(properties, Mapping) and name in properties:
        found = True
        yield properties[name]
    if isinstance(patterns, Mapping):
        for pattern, schema in patterns.items():
            find = search(pattern)
            matches = None if find is None else find(name)
            # Where nobody can tell whether it matches, it may or not.
            found = found or matches is not False
            if matches:
                yield schema
    if not found and "additionalProperties" in leaf:
        yield leaf["additionalProperties"]


def is_mentioned(leaf: Leaf, name: str) -> bool:
    """Whether the schema itself names a property."""
    properties = leaf.get("properties")
    return isinstance(properties, Mapping) and name in properties


def item_schemas(leaf: Leaf, index: int) -> Iterator[Any]:
    """Yield the schemas that one item of an array has to be valid for."""
    items = leaf.get("items")
    first = _tuple(leaf)
    if index < len(first):
        yield first[index]
    elif not isinstance(items, list):
        yield items
    elif "additionalItems" in leaf:
        yield leaf["additionalItems"]


def tuple_length(leaf: Leaf) -> int:
    """Return for how many of an array's first items there is a schema of their own."""
    return len(_tuple(leaf))


def _tuple(leaf: Leaf) -> list[Any]:
    # Drafts before 2020-12 write it as `items`.
    given = leaf.get("prefixItems")
    items = leaf.get("items")
    return given if isinstance(given, list) else items if isinstance(items, list) else []
