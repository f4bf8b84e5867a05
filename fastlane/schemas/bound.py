"""How long an answer can be that is valid for a JSON schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastlane.errors import ConfigurationError
from fastlane.knowledge.table import Table

from .given import Schema, check_schema, given_schema, resolve, written

_INDENT = 4
_MAX_GAPS = 1_000
_MAX_PATH_CHARACTERS = 200
# The size of a field without a bound, where none is given: it only compares alternatives.
_FIELD_TOKENS = 200
# A number without a range: enough for 128 bits and for any double.
_NUMBER_CHARACTERS = 40

# The most characters of JSON that one character of a text takes, where all but ASCII is escaped.
_PAIR_WIDTH = len("\\ud83d\\ude00")
# The shortest text that gives a double back has at most 17 digits: "1.7976931348623157e+308", and a sign.
_DOUBLE = 23
# Whole doubles of so many digits are written out, with ".0" behind; longer ones with an exponent.
_WRITTEN_OUT = 16
_NEGATIVE_ZERO = len("-0.0")

_DRAFT = re.compile(r"https?://json-schema\.org/(draft-07/schema|draft/20(19-09|20-12)/schema|schema)#?").fullmatch
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_COMBINING = frozenset(("$ref", "allOf", "anyOf", "oneOf"))

# The characters of a format's longest string, by its specification.
_FORMATS = {
    "date": 10,  # RFC 3339
    "ipv4": 15,
    "ipv6": 45,  # six groups of four digits and an IPv4 address: RFC 4291
    "uuid": 36,  # RFC 4122
}
# These specifications have no longest string, or an impractical one.
_ASSUMED_FORMATS = {
    "date-time": 35,  # RFC 3339 with nanoseconds
    "time": 24,
    "duration": 40,  # seven numbers of up to four digits
    "email": 254,  # RFC 5321
    "hostname": 253,  # RFC 1123
}

_bounds: Table[Hashable, Bound] = Table("bounds", max_entries=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A field of which a schema does not say how long it can be."""

    path: str
    """From the name of the whole: "Ticket.notes", "Ticket.tags[]". One of more than 200 characters is cut off, with "…"
    for the rest."""
    reason: str
    """What is missing: "string without maxLength"."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How long an answer can be that is valid for a schema."""

    tokens: int | None
    """Characters of the longest JSON text, indented by four blanks for each level: it has no more tokens, as no token
    is shorter. None if there is no longest text."""
    unbounded: tuple[Gap, ...]
    """The fields without a bound; at most 1,000 are named."""


def bound(schema: Any, *, name: str | None = None, unbounded: int | None = None) -> Bound:
    """Return how long an answer can be that is valid for a schema.

    `schema` is a JSON schema (draft 7 or newer), or a type that pydantic can make one of: a model, a dataclass, a
    TypedDict, `list[Model]`. A type is read as in strict mode: objects have no properties but those that are named. The
    fields are named from `name`, or else from the name of the class, or the schema's title.

    What bounds a value: `enum` and `const`, `maxLength`, formats, ranges of numbers, `maxItems` and closed objects,
    also in `$ref`, `anyOf`, `oneOf` and `allOf`. No valid value is longer by `json.dumps` with an indent of up to four,
    or none, and any way with non-ASCII characters; formats count as asserted. A text can be longer that has needless
    white space, escapes for letters that need none, zeros at the end of a number, or more digits than a double has. A
    number without a range is taken for at most 40 characters, an e-mail address for 254.

    With `unbounded=200` each field without a bound is given 200 tokens. The result is kept by the content of the
    schema. Raises ConfigurationError for what is no JSON schema, or has a reference that leads nowhere inside of it.
    """
    if unbounded is not None and (isinstance(unbounded, bool) or not isinstance(unbounded, int) or unbounded < 1):
        raise ConfigurationError(
            "bound(unbounded=...) takes the tokens of a field without a bound, at least 1, or None; got "
            f"{unbounded!r:.80}"
        )
    given = given_schema(schema)
    if not given.is_type:
        check_schema(given.schema, "bound()")
    return schema_bound(given.schema, closed=given.is_type, name=name or given.name, unbounded=unbounded)


def schema_bound(
    schema: Schema,
    *,
    closed: bool = False,
    name: str | None = None,
    unbounded: int | None = None,
    assume: bool = True,
) -> Bound:
    """Return the bound of a JSON schema. What is malformed in it has no bound, and is no error.

    `closed`: objects have no properties but those that are named, as in strict mode. `assume`: numbers without a range
    and formats without a greatest length have a bound by convention; else they have none.
    """
    title = schema.get("title") if isinstance(schema, Mapping) else None
    root = name or (title if isinstance(title, str) and title else None) or "$"
    assumptions = _Assumptions(_FIELD_TOKENS if unbounded is None else unbounded, assume, closed)
    is_filled = unbounded is not None
    try:
        key = written(schema), root, assumptions, is_filled
    except (TypeError, ValueError, RecursionError):
        return _bound(schema, root, assumptions, is_filled)
    return _bounds.get(key) or _bounds.fetch(key, lambda: _bound(schema, root, assumptions, is_filled))


def _bound(schema: Schema, root: str, assumptions: _Assumptions, is_filled: bool) -> Bound:
    try:
        size = _Measuring(schema, assumptions).whole()
    except (RecursionError, OverflowError, ValueError):
        size = assumptions.field("nested too deeply, or with numbers too large, to be read")
    return Bound(
        tokens=size.tokens if is_filled or not size.gaps else None,
        unbounded=tuple(Gap(path=root + path, reason=reason) for path, reason in size.gaps),
    )


_Found = tuple[str, str]
"""A path, seen from the value that it is in (".notes", "[].name", ""), and what was found there."""


class _TextSize(NamedTuple):
    """The most that the text of a value can come to."""

    tokens: int
    """Characters with an indent of four, or what a field without a bound is given."""
    gaps: tuple[_Found, ...] = ()
    """What has no bound; the number then holds what was taken for it."""

    def below(self, step: str) -> _TextSize:
        """Return the same size of a value that is one step down in another."""
        if not self.gaps:
            return self
        paths = [(step + path, reason) for path, reason in self.gaps]
        return self._replace(
            gaps=tuple(
                (path if len(path) <= _MAX_PATH_CHARACTERS else f"{path[: _MAX_PATH_CHARACTERS - 1]}…", reason)
                for path, reason in paths
            )
        )


class _Assumptions(NamedTuple):
    """What is taken for granted."""

    field_tokens: int
    """Tokens of a field without a bound."""
    assume: bool
    """Whether numbers without a range, and formats without a greatest length, have a bound by convention."""
    closed: bool
    """Objects that do not say so have no other properties than those named."""

    def field(self, reason: str) -> _TextSize:
        """Return the size that a field without a bound is given."""
        return _TextSize(self.field_tokens, (("", reason),))


class _Measuring:
    """Measures the longest value of one schema, from the root down.

    A keyword that is not looked at can only narrow what is valid, so that passing over it never makes a bound too low.
    """

    def __init__(self, root: Schema, assumptions: _Assumptions) -> None:
        self._root = root
        self._assumptions = assumptions
        self._known: dict[tuple[int, int, bool], _TextSize | None] = {}
        self._open: set[int] = set()
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        self._is_draft_7 = isinstance(draft, str) and "draft-07" in draft
        self._is_unknown = isinstance(draft, str) and _DRAFT(draft) is None

    def whole(self) -> _TextSize:
        """Return the size of the whole."""
        if self._is_unknown:
            return self._assumptions.field("a $schema that is not known")
        return self._of(self._root, 0, self._assumptions.closed) or _TextSize(0)

    def _of(self, schema: Any, depth: int, closed: bool) -> _TextSize | None:
        """Return the size of a schema's longest value at a depth; None if no value is valid."""
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            return self._assumptions.field("any value" if schema is True else "no JSON schema stands here")
        if id(schema) in self._open:
            return self._assumptions.field("refers to itself, to any depth")
        key = id(schema), depth, closed
        if key not in self._known:
            self._open.add(id(schema))
            self._known[key] = self._schema(schema, depth, closed)
            self._open.discard(id(schema))
        return self._known[key]

    def _schema(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize | None:
        if schema is not self._root and ("$id" in schema or "$schema" in schema):
            return self._assumptions.field("an $id or a $schema of its own")
        if "$ref" in schema and self._is_draft_7:
            return self._reference(schema["$ref"], depth, closed)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list | tuple):
            return _largest(_value(value, depth) for value in values)
        is_combined = not _COMBINING.isdisjoint(schema)
        sizes: list[_TextSize | None] = []
        if "type" in schema or not is_combined:
            # Beside other schemas of the same value, it is not known which properties they add.
            sizes.append(self._own(schema, depth, closed and not is_combined))
        every = _listed(schema.get("allOf"))
        closed = closed and not schema.get("properties") and len(every) < 2
        if "$ref" in schema:
            sizes.append(self._reference(schema["$ref"], depth, closed))
        sizes += [self._of(one, depth, closed) for one in every]
        for branches in filter(None, (_listed(schema.get(name)) for name in ("anyOf", "oneOf"))):
            sizes.append(_largest(self._of(one, depth, closed) for one in branches))
        found = [size for size in sizes if size is not None]
        if len(found) < len(sizes):
            return None
        return min(found, key=lambda size: (bool(size.gaps), size.tokens), default=self._assumptions.field("any value"))

    def _reference(self, reference: Any, depth: int, closed: bool) -> _TextSize | None:
        target = resolve(self._root, reference) if isinstance(reference, str) else None
        if target is None:
            return self._assumptions.field("a reference that leads nowhere inside of the schema")
        return self._of(target, depth, closed)

    def _own(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize | None:
        """Return what a schema's own type says."""
        named: Any = schema.get("type")
        types: list[str] = _listed(named) or [named]
        if not all(isinstance(name, str) and name in _TYPES for name in types):
            return self._assumptions.field("any value")
        return _largest(self._of_type(name, schema, depth, closed) for name in types)

    def _of_type(self, name: str, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize:
        if name in ("null", "boolean"):
            return _TextSize(len("null" if name == "null" else "false"))
        if name in ("integer", "number"):
            return self._number(schema, integer=name == "integer")
        if name == "string":
            return self._string(schema)
        return self._array(schema, depth, closed) if name == "array" else self._object(schema, depth, closed)

    def _number(self, schema: Mapping[Any, Any], *, integer: bool) -> _TextSize:
        lowest = max(_numbers(schema, "minimum", "exclusiveMinimum"), default=None)
        highest = min(_numbers(schema, "maximum", "exclusiveMaximum"), default=None)
        if lowest is not None and highest is not None:
            return _TextSize(_longest_number(lowest, highest, integer=integer))
        if self._assumptions.assume:
            return _TextSize(_NUMBER_CHARACTERS)
        return self._assumptions.field(f"{'integer' if integer else 'number'} without minimum and maximum")

    def _string(self, schema: Mapping[Any, Any]) -> _TextSize:
        most = _limit(schema, "maxLength")
        format_ = schema.get("format")
        characters = None if most is None else most * _PAIR_WIDTH
        if isinstance(format_, str) and format_ in _FORMATS:
            known = _FORMATS[format_]
            characters = known if characters is None else min(known, characters)
        if characters is None and isinstance(format_, str) and self._assumptions.assume:
            characters = _ASSUMED_FORMATS.get(format_)
        if characters is None:
            return self._assumptions.field("string without maxLength")
        return _TextSize(characters + 2)

    def _array(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize:
        items = schema.get("items")
        first, rest = _listed(schema.get("prefixItems")), items
        if isinstance(items, list | tuple):  # draft 7
            first, rest = list(items), schema.get("additionalItems")
        most = _limit(schema, "maxItems")
        parts: list[tuple[_TextSize, int]] = []
        for place, one in enumerate(first[:most]):
            size = self._of(one, depth + 1, closed)
            if size is None:  # Nothing can stand here, and nothing behind it.
                most = place
                break
            parts.append((size.below(f"[{place}]"), 1))
        item = None
        if most is None or most > len(first):
            item = self._of(True if rest is None else rest, depth + 1, closed)
        if item is None:
            return _within(parts, depth)
        item = item.below("[]")
        if most is not None:
            return _within([*parts, (item, most - len(parts))], depth)
        least = _limit(schema, "minItems") or 0
        size = _within([*parts, (item, max(1, least - len(parts)))], depth)
        return self._filled(size, "array without maxItems")

    def _object(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize:
        properties = schema.get("properties")
        parts: list[tuple[_TextSize, int]] = []
        for name, one in properties.items() if isinstance(properties, Mapping) else ():
            size = self._of(one, depth + 1, closed)
            if size is not None:
                parts.append((_member(str(name), size.below(f".{name}")), 1))
        size = _within(parts, depth)
        others = schema.get("additionalProperties", not closed)
        if others is False and not schema.get("patternProperties"):
            return size
        return self._filled(size, "object without additionalProperties: false")

    def _filled(self, size: _TextSize, reason: str) -> _TextSize:
        """Return a size with the room of a field without a bound."""
        more = self._assumptions.field(reason)
        return _TextSize(size.tokens + more.tokens, _merged((more.gaps, size.gaps)))


def _value(value: Any, depth: int) -> _TextSize:
    """Return the size of a value that is written out in the schema."""
    if isinstance(value, Mapping):
        return _within([(_member(str(key), _value(one, depth + 1)), 1) for key, one in value.items()], depth)
    if isinstance(value, list | tuple):
        return _within([(_value(one, depth + 1), 1) for one in value], depth)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _TextSize(_number_length(value))
    return _TextSize(len(json.dumps(value if value is None or isinstance(value, bool) else str(value))))


def _member(name: str, value: _TextSize) -> _TextSize:
    """Return the size of a member of an object: its key, the colon and the blank behind it, and its value."""
    return value._replace(tokens=len(json.dumps(name)) + 2 + value.tokens)


def _within(parts: Sequence[tuple[_TextSize, int]], depth: int) -> _TextSize:
    """Return the size of an array or object of these elements, each as often as it says."""
    count = sum(times for _, times in parts)
    if not count:
        return _TextSize(2)
    # A line for each element and one for the closing bracket.
    inner, outer = 1 + _INDENT * (depth + 1), 1 + _INDENT * depth
    tokens = sum(size.tokens * times for size, times in parts) + count * (1 + inner) + 1 + outer
    return _TextSize(tokens, _merged(size.gaps for size, _ in parts))


def _largest(sizes: Iterable[_TextSize | None]) -> _TextSize | None:
    """Return what is enough for any of the values; None if no value is valid."""
    found = [size for size in sizes if size is not None]
    if len(found) < 2:
        return found[0] if found else None
    return _TextSize(max(size.tokens for size in found), _merged(size.gaps for size in found))


def _merged(parts: Iterable[tuple[_Found, ...]]) -> tuple[_Found, ...]:
    return tuple(dict.fromkeys(one for part in parts for one in part))[:_MAX_GAPS]


def _numbers(schema: Mapping[Any, Any], *names: str) -> list[float]:
    """Return those of a schema's keywords that are finite numbers."""
    values = [schema.get(name) for name in names]
    return [value for value in values if type(value) is int or (type(value) is float and math.isfinite(value))]


def _limit(schema: Mapping[Any, Any], name: str) -> int | None:
    """Return a limit such as `maxItems`; None if it is none. 5.0 is 5."""
    return next((int(value) for value in _numbers(schema, name) if value >= 0), None)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _number_length(value: float) -> int:
    """Return the characters of the longest text of a number: 1 and 1.0 are the same number to JSON schema.

    Raises ValueError for an integer of more than 4,300 digits.
    """
    forms = [value]
    if isinstance(value, int):
        try:
            forms.append(float(value))
        except OverflowError:
            pass
    elif value.is_integer():
        forms.append(int(value))
    return max(len(json.dumps(form)) for form in forms) if value else _NEGATIVE_ZERO


def _longest_number(minimum: float, maximum: float, *, integer: bool) -> int:
    """Return the characters of the longest number of a range.

    A number that is not whole is taken for a double. 2.0 is an integer to JSON schema. Raises ValueError for limits of
    more than 4,300 digits.
    """
    low, high, sign = math.floor(minimum), math.ceil(maximum), minimum < 0
    longest = max(_NEGATIVE_ZERO, _whole_length(high), _whole_length(low) + sign)
    return longest if integer else max(longest, _DOUBLE + sign)


def _whole_length(number: int) -> int:
    """Return the characters of the longest whole number from 0 to this one, written as an integer or as a double."""
    digits = len(str(abs(number)))
    return digits + len(".0") if digits <= _WRITTEN_OUT else max(digits, _DOUBLE)
