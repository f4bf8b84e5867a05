"""A value that is valid for a JSON schema, drawn with a seeded random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

_WORDS = ("billing", "refund", "latency", "shipping", "login", "invoice", "delay", "token", "socket", "cache")
_FORMATS = {
    "date-time": "2026-06-13T12:00:00Z",
    "date": "2026-06-13",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "reader@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
# Deeper than this only what must be is drawn, so that a schema that refers to itself comes to an end.
_SPARSE_DEPTH = 6
_MAXIMUM_DEPTH = 40
_MAXIMUM_SIZE = 10_000

Reader = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def value_for(schema: Mapping[str, Any] | bool, random: Random, read: Reader = lambda schema: schema) -> Any:
    """Return a value valid for `schema`, or for what `read` makes of it and of each schema in it.

    Knows type, enum, const, properties, required, items, prefixItems, min/max bounds, $ref, anyOf, oneOf and allOf.
    A `pattern` or a keyword beyond these is not looked at.
    """
    return _Drawing(schema if isinstance(schema, Mapping) else {}, random, read).draw(schema, 0)


class _Drawing:
    def __init__(self, root: Mapping[str, Any], random: Random, read: Reader) -> None:
        self._root = root
        self._read = read
        self._random = random

    def draw(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > _MAXIMUM_DEPTH:
            return None
        schema = self._read(self._flat(schema))
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._random.choice(schema["enum"])
        for name in ("anyOf", "oneOf"):
            if schema.get(name):
                rest = {key: value for key, value in schema.items() if key != name}
                return self.draw(_merged(rest, self._flat(self._simplest(schema[name], depth))), depth + 1)
        kind = self._kind(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        return self._random.random() < 0.5 if kind == "boolean" else None

    def _flat(self, schema: Any) -> Mapping[str, Any]:
        for _ in range(_MAXIMUM_DEPTH):
            if not isinstance(schema, Mapping):
                return {}
            if isinstance(schema.get("$ref"), str):
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merged(self._resolve(schema["$ref"]), rest)
            elif schema.get("allOf"):
                parts = schema["allOf"]
                schema = {key: value for key, value in schema.items() if key != "allOf"}
                for part in parts:
                    schema = _merged(schema, self._flat(part))
            else:
                return schema
        return {}

    def _resolve(self, reference: str) -> Mapping[str, Any]:
        at: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            step = step.replace("~1", "/").replace("~0", "~")
            at = at.get(step) if isinstance(at, Mapping) else None
        return at if isinstance(at, Mapping) else {}

    def _simplest(self, options: list[Any], depth: int) -> Any:
        if depth < _SPARSE_DEPTH:
            return self._random.choice(options)
        flat = [self._flat(option) for option in options]
        return min(flat, key=lambda option: len(option.get("properties", ())) + 2 * ("items" in option))

    def _kind(self, schema: Mapping[str, Any], depth: int) -> str | None:
        kind = schema.get("type")
        if isinstance(kind, list):
            if depth >= _SPARSE_DEPTH and "null" in kind:
                return "null"
            return str(self._random.choice([each for each in kind if each != "null"] or ["null"]))
        if isinstance(kind, str):
            return kind
        if "properties" in schema:
            return "object"
        return "array" if "items" in schema or "prefixItems" in schema else "string"

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        wanted = properties if depth < _SPARSE_DEPTH // 2 else required
        drawn = {
            name: self.draw(properties.get(name, {}), depth + 1)
            for name in [*properties, *(name for name in required if name not in properties)]
            if name in wanted or name in required
        }
        extra = schema.get("additionalProperties")
        while len(drawn) < _size(schema, "minProperties"):
            drawn[f"key_{len(drawn)}"] = self.draw(extra if isinstance(extra, Mapping) else {}, depth + 1)
        return drawn

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = [self.draw(item, depth + 1) for item in schema.get("prefixItems") or ()]
        items = schema.get("items", {})
        least = _size(schema, "minItems")
        usual = least if depth >= _SPARSE_DEPTH or items is False else self._random.randint(1, 3)
        length = min(max(least, usual, len(first)), schema.get("maxItems", 1_000_000))
        drawn = first[:length]
        for _ in range(8 * length):
            if len(drawn) >= length:
                break
            value = self.draw(items, depth + 1)
            if not schema.get("uniqueItems") or value not in drawn:
                drawn.append(value)
        return drawn

    def _string(self, schema: Mapping[str, Any]) -> str:
        given = _FORMATS.get(schema.get("format", ""))
        if given is not None:
            return given
        text = " ".join(self._random.choice(_WORDS) for _ in range(self._random.randint(1, 4)))
        least, most = _size(schema, "minLength"), schema.get("maxLength")
        while len(text) < least:
            text += f" {self._random.choice(_WORDS)}"
        return text if most is None else text[: int(most)]

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        least = schema.get("minimum", schema.get("exclusiveMinimum"))
        most = schema.get("maximum", schema.get("exclusiveMaximum"))
        low = least if least is not None else (most - 100 if most is not None else 0)
        high = most if most is not None else low + 100
        step = schema.get("multipleOf") or (1 if whole else None)
        if step is None:
            # Strictly inside, so that exclusive bounds hold as well.
            return float(low + (high - low) * self._random.uniform(0.01, 0.99)) if high > low else float(low)
        first = -(-low // step) + ("exclusiveMinimum" in schema and low % step == 0)
        last = high // step - ("exclusiveMaximum" in schema and high % step == 0)
        value = self._random.randint(int(first), max(int(first), int(last))) * step
        return int(value) if whole else value


def _size(schema: Mapping[str, Any], name: str) -> int:
    size = int(schema.get(name, 0))
    if size > _MAXIMUM_SIZE:
        raise ValueError(f"{name} must be at most {_MAXIMUM_SIZE} here, got {size}")
    return size


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**one, **other}
    if "properties" in one and "properties" in other:
        joined["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        joined["required"] = [*one["required"], *other["required"]]
    return joined
