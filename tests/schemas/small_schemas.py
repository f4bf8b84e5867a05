"""Schemas and JSON values over few names and texts, drawn at random, so that many values are nearly valid."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_NAMES = ("a", "ab", "b", "", "é", "😀x")
_TEXTS = ("", "a", "ab", "abc", "b", "é", "😀", "😀x", '"\\', "\n", "\ud83d")
_NUMBERS: tuple[float, ...] = (0, 1, -1, 1.5, 2, 3.0, 10, 1e3, 0.1, -0.0, 1e-7, 123456789012345678901234567890)
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")


def value(random: Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kind = random.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return random.choice((None, True, False))
    if kind < 3:
        return random.choice(_TEXTS)
    if kind < 5:
        return random.choice(_NUMBERS)
    if kind < 7:
        return {random.choice(_NAMES): value(random, depth + 1) for _ in range(random.randrange(4))}
    return [value(random, depth + 1) for _ in range(random.randrange(4))]


def written(random: Random, value: Any) -> str:
    """Write it in one of the ways in which models write JSON."""
    style = random.choice(
        ({}, {"separators": (",", ":")}, {"separators": (" , ", " : ")}, {"indent": 2}, {"indent": "\t"})
    )
    return json.dumps(value, ensure_ascii=random.random() < 0.5, **style)


def document(random: Random, *, plain: bool) -> Any:
    """A schema with definitions; `plain`: only keywords that are looked at, and no alternatives."""
    drawn = schema(random, plain=plain, definitions="xy")
    if isinstance(drawn, dict):
        # No definition leads back to itself: a validator would not come to an end.
        drawn["$defs"] = {
            "x": schema(random, 2, plain=plain, definitions="y"),
            "y": schema(random, 2, plain=plain),
        }
    return drawn


def schema(random: Random, depth: int = 0, *, plain: bool, definitions: str = "") -> Any:
    """A schema, which may refer to definitions."""

    def some(share: float) -> bool:
        return random.random() < share

    def part() -> Any:
        if depth < 3:
            return schema(random, depth + 1, plain=plain, definitions=definitions)
        return random.choice((True, {}, {"type": "string"}, {"type": "integer"}, {"enum": ["a", "ab"]}))

    if some(0.05):
        return random.choice((True, False, {}))
    made: dict[str, Any] = {}
    if some(0.7):
        made["type"] = random.choice(_TYPES) if some(0.7) else random.sample(_TYPES, random.randrange(1, 4))
    if some(0.1):
        made["const"] = value(random, 1)
    elif some(0.15):
        made["enum"] = [value(random, 3 if plain else 1) for _ in range(random.randrange(1, 5))]
    if some(0.5):
        made["properties"] = {name: part() for name in random.sample(_NAMES, random.randrange(4))}
    if some(0.3):
        made["additionalProperties"] = False if some(0.6) else part()
    if some(0.3):
        made["required"] = random.sample(_NAMES, random.randrange(3))
    if some(0.15):
        made["patternProperties"] = {random.choice(("^a", "b$") if plain else ("^a", "b$", ".")): part()}
    if some(0.3):
        made["items"] = part()
    if some(0.15):
        made["prefixItems"] = [part() for _ in range(random.randrange(1, 3))]
    for keyword in ("Items", "Length", "Properties"):
        if some(0.1):
            made[f"min{keyword}"] = random.randrange(3)
        if some(0.1):
            made[f"max{keyword}"] = random.randrange(4)
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if some(0.07):
            made[keyword] = random.choice(_NUMBERS)
    if definitions and some(0.15):
        made["$ref"] = f"#/$defs/{random.choice(definitions)}"
    if some(0.1):
        made["allOf"] = [part() for _ in range(random.randrange(1, 3))]
    if not plain:
        for keyword, share in (("anyOf", 0.2), ("oneOf", 0.1)):
            if some(share):
                made[keyword] = [part() for _ in range(random.randrange(1, 4))]
        if some(0.05):
            made |= {"if": part(), "then": part()}
        if some(0.05):
            made["not"] = part()
        if some(0.05):
            made |= {"multipleOf": 2, "uniqueItems": True, "pattern": "a"}
    return made
