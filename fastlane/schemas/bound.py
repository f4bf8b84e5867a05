"""How long an answer can be that is valid for a JSON schema, in characters and in tokens."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastlane.errors import ConfigurationError
from fastlane.knowledge.table import Table
from fastlane.knowledge.tokens import Counter, counter

from .given import Schema, check_schema, given_schema, resolve, written
from .texts import PAIR_WIDTH, longest_number, number_length, pattern_limit

_CHARACTERS_PER_TOKEN = 4
_INDENT = 4
_MAX_GAPS = 1_000
_MAX_PATH_CHARACTERS = 200
# What usual values come to, for `likely_tokens`.
_USUAL_FIELD_TOKENS = 200
_USUAL_TOKENS = 20
_USUAL_CHARACTERS = 80
_USUAL_SHARE = 4
_USUAL_ITEMS = 3
_USUAL_NUMBER_TOKENS = 3
# A word's tokens depend on its neighbours: on its quotes, which are counted apart, and on a merge across them.
_QUOTES = 2
_SLACK = 1

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
    """What is missing: "string without maxLength or pattern"."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How long an answer can be that is valid for a schema."""

    characters: int | None
    """Of the longest JSON text, indented by four blanks for each level; None where there is no longest."""
    tokens: int | None
    """The most tokens that any of these texts can have: of free text, one for each character of its JSON, as no token
    is shorter."""
    likely_tokens: int
    """What an answer of usual texts comes to, without white space, estimated."""
    unbounded: tuple[Gap, ...]
    """The fields without a bound; at most 1,000 are named."""
    assumed: tuple[Gap, ...]
    """The fields whose bound rests on a convention: numbers without a range, and formats without a greatest length."""
    exact: bool
    """Whether names, literals and white space are counted by the model's own tokenizer; else by their characters."""


def bound(
    schema: Any,
    *,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return how long an answer can be that is valid for a schema.

    `schema` is a JSON schema (draft 7 or newer), what a request wraps one in (a whole `response_format`, `text.format`,
    or tool), or a type that pydantic can make one of: a model, a dataclass, a TypedDict, `list[Model]`. A type, and
    what is wrapped with `strict`, is read as in strict mode: objects have no properties but those that are named. The
    fields are named from `name`, or else from the name of the format or tool, the schema's title, or the class. Tokens
    are counted as those of `model` at `origin`.

    What bounds a value: `enum` and `const`, `maxLength`, simple patterns, formats, ranges of numbers, `maxItems` and
    closed objects, also in `$ref`, `anyOf`, `oneOf` and `allOf`. No valid value is longer by `json.dumps` with an
    indent of up to four, or none, and any way with non-ASCII characters; formats count as asserted. A text can be
    longer that has needless white space, escapes for letters that need none, zeros at the end of a number, or more
    digits than a double has.

    With `unbounded=200` each field without a bound is given 200 tokens of four characters. A number without a range is
    taken for at most `number_characters`, which is enough for 128 bits and for any double; with None nothing is taken
    for granted, and it is a field without a bound, as are formats without a greatest length.

    The result is kept by the content of the schema. Raises ConfigurationError for what is no JSON schema, or has
    a reference that leads nowhere inside of it.
    """
    for what, text in (("model", model), ("origin", origin), ("name", name)):
        if not (isinstance(text, str) or (text is None and what != "origin")):
            raise ConfigurationError(f"bound({what}=...) takes a text, got {type(text).__name__}")
    given = given_schema(schema, "bound()")
    if not given.is_type:
        check_schema(given.schema, "bound()")
    return schema_bound(
        given.schema,
        closed=given.is_type or given.is_strict,
        model=model,
        origin=origin,
        name=name or (None if given.is_type else given.name),
        otherwise=given.name if given.is_type else None,
        unbounded=unbounded,
        number_characters=number_characters,
    )


def schema_bound(
    schema: Schema,
    *,
    closed: bool = False,
    model: str | None = None,
    origin: str = "",
    name: str | None = None,
    otherwise: str | None = None,
    unbounded: int | None = None,
    number_characters: int | None = 40,
) -> Bound:
    """Return the bound of a JSON schema. What is malformed in it has no bound, and is no error.

    `closed`: objects have no properties but those that are named, as in strict mode. `otherwise`: the name of one that
    has neither `name` nor a title.
    """
    _check("unbounded", unbounded, "tokens of a field without a bound")
    _check("number_characters", number_characters, "characters of a number without a range")
    assumptions = _Assumptions(_USUAL_FIELD_TOKENS if unbounded is None else unbounded, number_characters, closed)
    counts = counter(model, origin=origin, wait=False)
    title = schema.get("title") if isinstance(schema, Mapping) else None
    root = name or (title if isinstance(title, str) and title else None) or otherwise or "$"
    is_filled = unbounded is not None
    try:
        text = written(schema)
    except (TypeError, ValueError, RecursionError):
        return _bound(schema, root, assumptions, counts, is_filled)
    key = (text, root, assumptions, counts.encoding if counts.exact else None, counts.ratio, is_filled)
    found = _bounds.get(key)
    return found or _bounds.fetch(key, lambda: _bound(schema, root, assumptions, counts, is_filled))


def _check(name: str, value: Any, what: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigurationError(f"bound({name}=...) takes the {what}, at least 1, or None; got {value!r:.80}")


def _bound(schema: Schema, root: str, assumptions: _Assumptions, counts: Counter, is_filled: bool) -> Bound:
    try:
        size = _Measuring(schema, assumptions, counts).whole()
    except (RecursionError, OverflowError, ValueError):
        size = assumptions.field("nested too deeply, or with numbers too large, to be read")
    has_numbers = is_filled or not size.gaps
    return Bound(
        characters=size.characters if has_numbers else None,
        tokens=size.tokens if has_numbers else None,
        likely_tokens=min(size.likely, size.tokens),
        unbounded=tuple(Gap(path=root + path, reason=reason) for path, reason in size.gaps),
        assumed=tuple(Gap(path=root + path, reason=reason) for path, reason in size.assumed),
        exact=counts.exact,
    )


_Found = tuple[str, str]
"""A path, seen from the value that it is in (".notes", "[].name", ""), and what was found there."""


class _TextSize(NamedTuple):
    """The most that the text of a value can come to, in each respect by itself."""

    characters: int
    """With an indent of four."""
    tokens: int
    """With any white space that `json.dumps` writes."""
    likely: int
    """Tokens of a usual value."""
    gaps: tuple[_Found, ...] = ()
    """What has no bound; the numbers then hold what was taken for it."""
    assumed: tuple[_Found, ...] = ()
    """What has a bound by a convention alone."""

    def below(self, step: str) -> _TextSize:
        """Return the same size of a value that is one step down in another."""
        if not (self.gaps or self.assumed):
            return self
        return self._replace(gaps=_stepped(step, self.gaps), assumed=_stepped(step, self.assumed))


class _Assumptions(NamedTuple):
    """What is taken for granted."""

    field_tokens: int
    """Tokens of a field without a bound."""
    number_characters: int | None
    """Of a number without a range. None: nothing is taken for granted, of formats neither."""
    closed: bool
    """Objects that do not say so have no other properties than those named."""

    def field(self, reason: str, likely: int = _USUAL_TOKENS) -> _TextSize:
        """Return the size that a field without a bound is given."""
        characters = self.field_tokens * _CHARACTERS_PER_TOKEN
        return _TextSize(characters, self.field_tokens, min(likely, self.field_tokens), (("", reason),))


class _Measuring:
    """Measures the longest value of one schema, from the root down.

    A keyword that is not looked at can only narrow what is valid, so that passing over it never makes a bound too low.
    """

    def __init__(self, root: Schema, assumptions: _Assumptions, counts: Counter) -> None:
        self._root = root
        self._assumptions = assumptions
        self._count = counts.text
        self._exact = counts.exact
        self._known: dict[tuple[int, int, bool], _TextSize | None] = {}
        self._open: set[int] = set()
        self._lines: dict[int, int] = {}
        draft = root.get("$schema") if isinstance(root, Mapping) else None
        self._is_draft_7 = isinstance(draft, str) and "draft-07" in draft
        self._is_unknown = isinstance(draft, str) and _DRAFT(draft) is None

    def whole(self) -> _TextSize:
        """Return the size of the whole."""
        if self._is_unknown:
            return self._assumptions.field("a $schema that is not known")
        return self._of(self._root, 0, self._assumptions.closed) or _TextSize(0, 0, 0)

    def _of(self, schema: Any, depth: int, closed: bool) -> _TextSize | None:
        """Return the size of a schema's longest value at a depth; None where no value is valid."""
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            return self._assumptions.field("any value" if schema is True else "no JSON schema stands here")
        if id(schema) in self._open:
            return self._assumptions.field("refers to itself, to any depth", 2)
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
            return self._literals(values, depth)
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
        return min(
            found, key=lambda size: (bool(size.gaps), size.characters), default=self._assumptions.field("any value")
        )

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
            return self._word("null" if name == "null" else "false")
        if name in ("integer", "number"):
            return self._number(schema, integer=name == "integer")
        if name == "string":
            return self._string(schema)
        return self._array(schema, depth, closed) if name == "array" else self._object(schema, depth, closed)

    def _number(self, schema: Mapping[Any, Any], *, integer: bool) -> _TextSize:
        lowest = max(_numbers(schema, "minimum", "exclusiveMinimum"), default=None)
        highest = min(_numbers(schema, "maximum", "exclusiveMaximum"), default=None)
        if lowest is not None and highest is not None:
            return _number_size(longest_number(lowest, highest, integer=integer))
        reason = f"{'integer' if integer else 'number'} without minimum and maximum"
        most = self._assumptions.number_characters
        if most is None:
            return self._assumptions.field(reason, 2)
        return _number_size(most)._replace(assumed=(("", f"{reason}, taken for at most {most} characters"),))

    def _string(self, schema: Mapping[Any, Any]) -> _TextSize:
        most = _limit(schema, "maxLength")
        pattern, format_ = schema.get("pattern"), schema.get("format")
        characters = pattern_limit(pattern).within(most) if isinstance(pattern, str) else None
        if characters is None and most is not None:
            characters = most * PAIR_WIDTH
        if isinstance(format_, str) and format_ in _FORMATS:
            known = _FORMATS[format_]
            characters = known if characters is None else min(known, characters)
        usual = _USUAL_CHARACTERS if most is None else min(most, max(_USUAL_CHARACTERS, most // _USUAL_SHARE))
        usual = max(usual, _limit(schema, "minLength") or 0)
        likely = max(1, -(-usual // _CHARACTERS_PER_TOKEN))
        if characters is not None:
            size = characters + 2
            return _TextSize(size, size, min(likely, size))
        if isinstance(format_, str) and format_ in _ASSUMED_FORMATS and self._assumptions.number_characters is not None:
            size = _ASSUMED_FORMATS[format_] + 2
            reason = f"format {format_} has no greatest length, taken for at most {size - 2} characters"
            return _TextSize(size, size, min(likely, size), (), (("", reason),))
        reason = "string without maxLength or pattern"
        if isinstance(pattern, str):
            reason = "string without maxLength, and with a pattern that does not limit it"
        return self._assumptions.field(reason, likely)

    def _array(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize:
        items = schema.get("items")
        first, rest = _listed(schema.get("prefixItems")), items
        if isinstance(items, list | tuple):  # draft 7
            first, rest = list(items), schema.get("additionalItems")
        most = _limit(schema, "maxItems")
        sizes: list[_TextSize] = []
        for place, one in enumerate(first[:most]):
            size = self._of(one, depth + 1, closed)
            if size is None:  # Nothing can stand here, and nothing behind it.
                most = place
                break
            sizes.append(size.below(f"[{place}]"))
        item = None
        if most is None or most > len(first):
            item = self._of(True if rest is None else rest, depth + 1, closed)
        parts = [(size, 1) for size in sizes]
        likely = 1 + sum(size.likely for size in sizes)
        if item is None:
            return self._within(parts, depth, likely)
        item = item.below("[]")
        least = _limit(schema, "minItems") or 0
        usual = max(_USUAL_ITEMS, least) if most is None else min(most, max(_USUAL_ITEMS, least))
        likely += max(0, usual - len(sizes)) * (item.likely + 1)
        if most is not None:
            return self._within([*parts, (item, most - len(sizes))], depth, likely)
        return self._filled(
            self._within([*parts, (item, max(1, least - len(sizes)))], depth, likely), "array without maxItems"
        )

    def _object(self, schema: Mapping[Any, Any], depth: int, closed: bool) -> _TextSize:
        properties = schema.get("properties")
        parts: list[tuple[_TextSize, int]] = []
        for name, one in properties.items() if isinstance(properties, Mapping) else ():
            size = self._of(one, depth + 1, closed)
            if size is not None:
                parts.append((_joined(self._key(str(name)), size.below(f".{name}")), 1))
        size = self._within(parts, depth, 1 + sum(part.likely for part, _ in parts))
        others = schema.get("additionalProperties", not closed)
        if others is False and not schema.get("patternProperties"):
            return size
        return self._filled(size, "object without additionalProperties: false")

    def _filled(self, size: _TextSize, reason: str) -> _TextSize:
        """Return a size with the room of a field without a bound."""
        more = self._assumptions.field(reason, 0)
        return _TextSize(
            size.characters + more.characters, size.tokens + more.tokens, size.likely,
            _merged((more.gaps, size.gaps)), size.assumed,
        )  # fmt: skip

    def _within(self, parts: Sequence[tuple[_TextSize, int]], depth: int, likely: int) -> _TextSize:
        """Return the size of an array or object of these elements, each as often as it says."""
        count = sum(times for _, times in parts)
        if not count:
            return _TextSize(2, 2, likely)
        # A line for each element and one for the closing bracket.
        inner, outer = 1 + _INDENT * (depth + 1), 1 + _INDENT * depth
        return _TextSize(
            characters=sum(size.characters * times for size, times in parts) + count * (1 + inner) + 1 + outer,
            tokens=sum(size.tokens * times for size, times in parts)
            + count * (1 + self._line_tokens(depth + 1)) + 1 + self._line_tokens(depth),
            likely=likely,
            gaps=_merged(size.gaps for size, _ in parts),
            assumed=_merged(size.assumed for size, _ in parts),
        )  # fmt: skip

    def _line_tokens(self, depth: int) -> int:
        """Return the most tokens of a line break and the indent behind it."""
        if depth not in self._lines:
            lines = ["\n" + " " * (blanks * depth) for blanks in range(_INDENT + 1)]
            self._lines[depth] = max(map(self._count, lines)) + _SLACK if self._exact else len(lines[-1])
        return self._lines[depth]

    def _literals(self, values: Sequence[Any], depth: int) -> _TextSize | None:
        sizes = [self._value(value, depth) for value in values]
        largest = _largest(sizes)
        return largest and largest._replace(likely=math.ceil(sum(size.likely for size in sizes) / len(sizes)))

    def _value(self, value: Any, depth: int) -> _TextSize:
        """Return the size of a value that is written out in the schema."""
        if isinstance(value, Mapping | list | tuple):
            if isinstance(value, Mapping):
                parts = [_joined(self._key(str(key)), self._value(one, depth + 1)) for key, one in value.items()]
            else:
                parts = [self._value(one, depth + 1) for one in value]
            return self._within([(part, 1) for part in parts], depth, 1 + sum(part.likely + 1 for part in parts))
        if value is None or isinstance(value, bool):
            return self._word(json.dumps(value))
        return _number_size(number_length(value)) if isinstance(value, int | float) else self._text(str(value))

    def _word(self, word: str) -> _TextSize:
        tokens = min(len(word), self._count(word) + _SLACK) if self._exact else len(word)
        return _TextSize(len(word), tokens, 1)

    def _key(self, name: str) -> _TextSize:
        """Return the size of a key, the colon and the blank behind it."""
        size = self._text(name)
        return size._replace(characters=size.characters + 2, tokens=size.tokens + 2, likely=size.likely + 2)

    def _text(self, text: str) -> _TextSize:
        escaped = json.dumps(text)
        likely = self._count(text) or 1
        tokens = len(escaped)
        if self._exact:
            forms = {escaped, json.dumps(text, ensure_ascii=False)}
            counted = [self._count(form[1:-1]) + _QUOTES for form in forms]
            counted += [self._count(before + form) for form in forms for before in ("", " ", "\n")]
            tokens = min(tokens, max(likely + _QUOTES, *counted) + _SLACK)
        return _TextSize(len(escaped), tokens, likely)


def _number_size(characters: int) -> _TextSize:
    return _TextSize(characters, characters, min(_USUAL_NUMBER_TOKENS, math.ceil(characters / _CHARACTERS_PER_TOKEN)))


def _joined(key: _TextSize, value: _TextSize) -> _TextSize:
    """Return the size of a member of an object."""
    return _TextSize(
        key.characters + value.characters, key.tokens + value.tokens, key.likely + value.likely, value.gaps,
        value.assumed,
    )  # fmt: skip


def _largest(sizes: Iterable[_TextSize | None]) -> _TextSize | None:
    """Return what is enough for any of the values; None where no value is valid."""
    found = [size for size in sizes if size is not None]
    if len(found) < 2:
        return found[0] if found else None
    characters, tokens, likely, gaps, assumed = zip(*found, strict=True)
    return _TextSize(max(characters), max(tokens), max(likely), _merged(gaps), _merged(assumed))


def _merged(parts: Iterable[tuple[_Found, ...]]) -> tuple[_Found, ...]:
    return tuple(dict.fromkeys(one for part in parts for one in part))[:_MAX_GAPS]


def _stepped(step: str, found: tuple[_Found, ...]) -> tuple[_Found, ...]:
    paths = [(step + path, reason) for path, reason in found]
    return tuple(
        (path if len(path) <= _MAX_PATH_CHARACTERS else f"{path[: _MAX_PATH_CHARACTERS - 1]}…", reason)
        for path, reason in paths
    )


def _numbers(schema: Mapping[Any, Any], *names: str) -> list[float]:
    """Return those of a schema's keywords that are finite numbers."""
    values = [schema.get(name) for name in names]
    return [value for value in values if type(value) is int or (type(value) is float and math.isfinite(value))]


def _limit(schema: Mapping[Any, Any], name: str) -> int | None:
    """Return a limit such as `maxItems`; None where it is none. 5.0 is 5."""
    return next((int(value) for value in _numbers(schema, name) if value >= 0), None)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
