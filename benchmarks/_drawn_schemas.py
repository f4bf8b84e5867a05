"""JSON schemas of draft 7 drawn at random, most of them with a longest value, and values near what they allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

_CHARACTERS = 'aZ0 é"\\/\n\x00\x7f\u2028漢😀'
# With values that they allow at their longest. The last ones bound nothing, or only with a limit beside them.
_BOLD_ZERO = "\N{MATHEMATICAL BOLD DIGIT ZERO}"
_PATTERNS: Sequence[tuple[str, Sequence[str]]] = (
    ("^[a-z]{3}$", ("abc", "abc\n")),
    (r"^\d{4}-\d{2}$", ("2026-11", "0000-00\n".replace("0", _BOLD_ZERO))),
    ("^(yes|no|perhaps)$", ("perhaps", "perhaps\n")),
    ("^a?b{0,5}(?:cd){1,2}$", ("abbbbbcdcd\n",)),
    ('^["\\\\]{2}$', ('""', "\\\\\n")),
    (r"^[\x00-\x1f]{3}\Z", ("\x00\x01\x02",)),
    ("^(?!b).{1,3}$", ("😀😀😀\n", "aaa")),
    (r"^(ab|c)\1$", ("abab\n", "cc")),
    ("^[^a]{2}$", ("😀😀\n",)),
    ("^a|b$", ("a" + "x" * 30, "x" * 30 + "b")),
    ("^[a-z]+$", ("a" * 20, "a" * 19 + "\n")),
    ("ab", ("x" * 20 + "ab",)),
)
_FORMATS = {
    "date": "2026-11-22",
    "ipv4": "255.255.255.255",
    "ipv6": "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
    "date-time": "2026-11-22T10:00:00.123456789+01:00",
}
_LIMITS = (-(10**20), -1e17, -1000, -99.5, -1, 0, 1, 10, 9.99, 1e16, 1e300, 10**25)
_SMALL = (2.2250738585072014e-308, -1.1125369292536007e-308)


class Drawn(NamedTuple):
    """A schema, and values at its limits."""

    schema: Any
    longest: Callable[[Random], Any]
    """Draws a value near the limits of what the schema allows. Not all of them are valid: conditions of one part can
    exclude what another draws."""


_Inner = Callable[[], Drawn]


def drawn_schema(random: Random, depth: int = 3) -> Drawn:
    """Draw a schema of draft 7."""
    definitions: dict[str, Drawn] = {f"d{number}": _draw(random, 1, {}) for number in range(random.randrange(3))}
    top = _draw(random, depth, definitions)
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **top.schema}
    if definitions:
        schema["definitions"] = {name: one.schema for name, one in definitions.items()}
    if "$ref" in schema:
        schema["allOf"] = [{"$ref": schema.pop("$ref")}]
    return Drawn(schema, top.longest)


def _draw(random: Random, depth: int, definitions: Mapping[str, Drawn]) -> Drawn:
    def inner() -> Drawn:
        return _draw(random, depth - 1, definitions)

    plain: list[Callable[[Random], Drawn]] = [_string, _number, _literals, _simple]
    nested = [_array, _tuple, _object, _object, _object, _map, _any_of, _all_of, _if] if depth else []
    chosen = random.randrange(len(plain) + len(nested) + bool(definitions))
    if chosen < len(plain):
        return plain[chosen](random)
    if chosen < len(plain) + len(nested):
        return nested[chosen - len(plain)](random, inner)
    name = random.choice(list(definitions))
    # What stands beside a reference counts for nothing in this draft.
    return Drawn({"$ref": f"#/definitions/{name}", "maxLength": 0, "maxItems": 0}, definitions[name].longest)


def _one_of(schema: Any, *values: Any) -> Drawn:
    return Drawn(schema, lambda random: random.choice(values))


def _text(random: Random, length: int) -> str:
    return "".join(random.choices(_CHARACTERS, k=length))


def _string(random: Random) -> Drawn:
    kind = random.randrange(5)
    if kind == 0:
        pattern, values = random.choice(_PATTERNS)
        return _one_of({"type": "string", "pattern": pattern}, *values)
    if kind == 1:
        name = random.choice(list(_FORMATS))
        return _one_of({"type": "string", "format": name}, _FORMATS[name])
    most = random.choice((0, 1, 3, 12, 40))
    if kind == 2:
        schema = {"type": "string", "maxLength": most + 1, "pattern": "^[a-z]+$"}
        return _one_of(schema, "a" * (most + 1), "a" * max(1, most) + "\n" * bool(most))
    schema = {"type": "string", "maxLength": random.choice((most, float(most)))}
    return Drawn(schema, lambda random: random.choice(("😀" * most, _text(random, most))))


def _number(random: Random) -> Drawn:
    low, high = sorted(random.choices(_LIMITS, k=2))
    schema: dict[str, Any] = {"type": random.choice(("integer", "number")), "minimum": low, "maximum": high}
    if random.random() < 0.2:
        schema["multipleOf"] = random.choice((1, 5, 0.5))
    if random.random() < 0.2:
        schema["exclusiveMaximum"] = schema.pop("maximum")
    if random.random() < 0.1:
        del schema["minimum"]

    def longest(random: Random) -> float:
        options: list[float] = [low, high, math.ceil(low), math.floor(high), float(math.floor(high)), -0.0]
        if schema["type"] == "number":
            options += [random.uniform(float(low), float(high)), *_SMALL]
        return random.choice(options)

    return Drawn(schema, longest)


def _value(random: Random, depth: int = 2) -> Any:
    options: list[Any] = [None, True, 1, 1.0, 0, -1e5, 10**22, 1e22, _text(random, 5), ""]
    if depth:
        options += [[_value(random, depth - 1) for _ in range(random.randrange(3))]]
        options += [{_text(random, 3): _value(random, depth - 1) for _ in range(random.randrange(3))}]
    return random.choice(options)


def _literals(random: Random) -> Drawn:
    values = [_value(random) for _ in range(random.randrange(1, 5))]
    if random.random() < 0.3:
        return Drawn({"const": values[0]}, lambda random: _other_form(random, values[0]))
    return Drawn({"enum": values}, lambda random: _other_form(random, random.choice(values)))


def _other_form(random: Random, value: Any) -> Any:
    """Return the same value, with its numbers written differently."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        forms = (value, float(value), int(value)) if value else (0, 0.0, -0.0)
        return random.choice([form for form in forms if form == value])
    if isinstance(value, list):
        return [_other_form(random, one) for one in value]
    if isinstance(value, dict):
        return {key: _other_form(random, one) for key, one in value.items()}
    return value


def _simple(random: Random) -> Drawn:
    kind = random.choice(("boolean", "null", ["boolean", "null"]))
    return _one_of({"type": kind}, None if kind == "null" else False)


def _array(random: Random, inner: _Inner) -> Drawn:
    item = inner()
    most = random.choice((0, 1, 2, 5))
    schema: dict[str, Any] = {"type": "array", "items": item.schema, "maxItems": most}
    if random.random() < 0.3:
        schema["uniqueItems"] = True
        if random.random() < 0.7:
            del schema["maxItems"]
    return Drawn(schema, lambda random: [item.longest(random) for _ in range(most)])


def _tuple(random: Random, inner: _Inner) -> Drawn:
    items = [inner() for _ in range(random.randrange(1, 4))]
    schema = {"type": "array", "items": [item.schema for item in items], "additionalItems": False}
    return Drawn(schema, lambda random: [item.longest(random) for item in items])


def _object(random: Random, inner: _Inner) -> Drawn:
    names = [random.choice(("id", "name", "a b", "é", 'q"', "😀", "\n")) + str(n) for n in range(random.randrange(5))]
    members = {name: inner() for name in names}
    required = random.sample(names, random.randint(0, len(names)))
    properties = {name: one.schema for name, one in members.items()}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    most = len(names)
    if random.random() < 0.2:
        schema["maxProperties"] = most = max(len(required), most - 1)
    kept = [*required, *(name for name in names if name not in required)][:most]
    return Drawn(schema, lambda random: {name: members[name].longest(random) for name in kept})


def _map(random: Random, inner: _Inner) -> Drawn:
    value = inner()
    most = random.choice((0, 1, 3))
    schema: dict[str, Any] = {"type": "object", "maxProperties": most}
    if random.random() < 0.5:
        schema |= {"propertyNames": {"maxLength": 4}, "additionalProperties": value.schema}
        return Drawn(schema, lambda random: {"😀" * 3 + str(n): value.longest(random) for n in range(most)})
    schema |= {"patternProperties": {"^x[0-9]$": value.schema}, "additionalProperties": False}
    return Drawn(schema, lambda random: {f"x{n}\n": value.longest(random) for n in range(most)})


def _any_of(random: Random, inner: _Inner) -> Drawn:
    branches = [inner() for _ in range(random.randrange(1, 4))]
    schema = {random.choice(("anyOf", "oneOf")): [branch.schema for branch in branches]}
    return Drawn(schema, lambda random: random.choice(branches).longest(random))


def _all_of(random: Random, inner: _Inner) -> Drawn:
    one = inner()
    return Drawn({"allOf": [one.schema, random.choice((True, {"title": "T"}))]}, one.longest)


def _if(random: Random, inner: _Inner) -> Drawn:
    then, otherwise, types = inner(), inner(), random.sample(("string", "object", "array", "null"), 2)
    schema = {"if": {"type": types}, "then": then.schema, "else": otherwise.schema}
    return Drawn(schema, lambda random: random.choice((then, otherwise)).longest(random))
