"""The longest value that a JSON schema allows, worked out keyword by keyword."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from .drafts import Draft, count_of, dialect_of, has_identifiers, number_of, type_of, types_of
from .references import resolve
from .sizes import JSON_TYPES, JsonType, Shape, TextMeasure, TextSize, both, either, largest, merged, smallest, within
from .texts import ANY_TEXT, longest_number, pattern_limit

_USUAL_ITEMS = 3
_SELF_LIKELY = 2
_USUAL_CHARACTERS = 80
# Of a long limit, about so much is used.
_USUAL_SHARE = 4
_USUAL_TOKENS = 20
# What looks at the same value, and perhaps at its items.
_IN_PLACE = frozenset(
    ("allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "contains", "not")
)
_NAMES = "names of properties without a bound"


class Rules(NamedTuple):
    """What is taken for granted."""

    field_tokens: int
    """Tokens of a field without a bound."""
    field_characters: int
    number_characters: int | None
    """Of a number without a range. None: nothing is taken for granted, of formats neither."""
    closed: bool
    """An object that does not say so has no other properties than those named."""

    def field(self, reason: str, likely: int = _USUAL_TOKENS, *, vague: bool = False) -> TextSize:
        """Return the size that a field without a bound is given."""
        likely = min(likely, self.field_tokens)
        return TextSize(self.field_characters, self.field_tokens, likely, gaps=(("", reason),), vague=vague)


def longest(root: Any, measure: TextMeasure, rules: Rules) -> TextSize:
    """Return the size of the longest value of a schema; what has no bound is named, and taken for what `rules` say."""
    dialect = dialect_of(root)
    if dialect is None:
        return rules.field("a $schema that is not known")
    try:
        shape = _Longest(root, dialect, measure, rules).of(root)
    except RecursionError:
        return rules.field("nested too deeply to be read")
    return largest(shape.values()) if shape else TextSize(0, 0, 0)


class _Longest:
    def __init__(self, root: Any, dialect: Draft, measure: TextMeasure, rules: Rules) -> None:
        self._root = root
        self._dialect = dialect
        self._get = dialect.get
        self._measure = measure
        self._rules = rules
        self._known: dict[int, Shape] = {}
        self._open: set[int] = set()
        self._own_names = has_identifiers(root, dialect)
        self._null = measure.value(None)
        self._boolean = measure.value(False)

    def of(self, schema: Any) -> Shape:
        """Return the shape of a schema."""
        if schema is True:
            return self._anything("any value", vague=True)
        if schema is False:
            return {}
        if not isinstance(schema, Mapping):
            return self._anything("no JSON schema stands here")
        key = id(schema)
        if key in self._open:
            return self._anything("refers to itself, to any depth", likely=_SELF_LIKELY)
        if key not in self._known:
            self._open.add(key)
            self._known[key] = self._schema(schema)
            self._open.discard(key)
        return self._known[key]

    def _anything(self, reason: str, *, vague: bool = False, likely: int = _USUAL_TOKENS) -> Shape:
        """The shape of a value of which nothing is known."""
        unbounded = self._rules.field(reason, likely, vague=vague)
        shape: dict[JsonType, TextSize] = dict.fromkeys(JSON_TYPES, unbounded)
        shape["null"], shape["boolean"] = self._null, self._boolean
        return shape

    def _schema(self, schema: Mapping[Any, Any]) -> Shape:
        if "$ref" in schema and self._dialect.reference_alone:
            return self._reference(schema["$ref"])
        if schema is not self._root and isinstance(schema.get("$schema"), str):
            return self._anything("a $schema of its own")
        values = schema.get("enum")
        if "const" in schema and self._dialect.draft >= 6:
            values = [schema["const"]]
        if isinstance(values, list | tuple):
            # Other keywords only narrow it.
            shape = self._literals(values, types_of(schema)[0])
        else:
            shape = self._own(schema)
            if not _IN_PLACE.isdisjoint(schema):
                shape = both(shape, self._in_place(schema))
        if schema.get("nullable") is True and "null" not in shape:
            shape = {**shape, "null": self._null}
        return shape

    def _in_place(self, schema: Mapping[Any, Any]) -> Shape:
        """What other schemas of the same value say. `not` and `if` only narrow it, and are passed over."""
        shape = self._anything("any value", vague=True)
        if "$ref" in schema:
            shape = both(shape, self._reference(schema["$ref"]))
        if any(self._get(schema, name) is not None for name in ("$dynamicRef", "$recursiveRef")):
            shape = both(shape, self._anything("a reference that depends on where it is used"))
        for one in _listed(schema.get("allOf")):
            shape = both(shape, self.of(one))
        for name in ("anyOf", "oneOf"):
            if branches := _listed(schema.get(name)):
                shape = both(shape, either([self.of(one) for one in branches]))
        return shape

    def _reference(self, reference: Any) -> Shape:
        target = None if self._own_names or not isinstance(reference, str) else resolve(self._root, reference)
        if target is None:
            return self._anything("a reference that leads nowhere inside of the schema")
        return self.of(target)

    def _literals(self, values: Any, types: tuple[JsonType, ...]) -> Shape:
        sizes: dict[JsonType, list[TextSize]] = {}
        for value in values:
            if (kind := type_of(value)) in types:
                sizes.setdefault(kind, []).append(self._measure.value(value))
        return {
            kind: largest(found)._replace(likely=math.ceil(sum(size.likely for size in found) / len(found)))
            for kind, found in sizes.items()
        }

    def _own(self, schema: Mapping[Any, Any]) -> Shape:
        """What the keywords say that are not about other schemas of the same value."""
        types, integer = types_of(schema)
        spoken = {kind for kind in types if self._dialect.speaks_of(schema, kind)}
        nothing = self._rules.field("value of any type: no type" if spoken else "any value", vague=True)
        shape: dict[JsonType, TextSize] = {}
        for kind in types:
            if kind == "null":
                shape[kind] = self._null
            elif kind == "boolean":
                shape[kind] = self._boolean
            elif types is JSON_TYPES and kind not in spoken:
                shape[kind] = nothing
            elif kind == "number":
                shape[kind] = self._number(schema, integer=integer)
            elif kind == "string":
                shape[kind] = self._string(schema)
            elif kind == "array":
                shape[kind] = self._array(schema)
            else:
                shape[kind] = self._object(schema)
        return shape

    def _number(self, schema: Mapping[Any, Any], *, integer: bool) -> TextSize:
        def limits(*names: str) -> list[float]:
            return [limit for name in names if (limit := number_of(self._get(schema, name))) is not None]

        # A multiple of a whole number is a whole number.
        integer = integer or type(schema.get("multipleOf")) is int
        lowest = max(limits("minimum", "exclusiveMinimum"), default=None)
        highest = min(limits("maximum", "exclusiveMaximum"), default=None)
        characters = longest_number(lowest, highest, integer=integer)
        if characters is not None:
            return self._measure.number(characters, integer=integer)
        reason = f"{'integer' if integer else 'number'} without minimum and maximum"
        most = self._rules.number_characters
        if most is None:
            return self._rules.field(reason, likely=2)
        reason += f", taken for at most {most} characters"
        return self._measure.number(most, integer=integer)._replace(assumed=(("", reason),))

    def _string(self, schema: Mapping[Any, Any]) -> TextSize:
        most, pattern, name = count_of(schema.get("maxLength")), schema.get("pattern"), schema.get("format")
        allowed = pattern_limit(pattern) if isinstance(pattern, str) else ANY_TEXT
        characters = allowed.within(most)
        fixed, assumed = (self._format(kind, name) for kind in ("fixed", "assumed"))
        if fixed is not None:
            characters = fixed if characters is None else min(characters, fixed)
        length = min(allowed.length, math.inf if most is None else most)
        usual = _USUAL_CHARACTERS if length == math.inf else max(_USUAL_CHARACTERS, int(length) // _USUAL_SHARE)
        usual = max(usual, count_of(schema.get("minLength")) or 0)
        if characters is not None:
            return self._measure.text(characters, usual if length == math.inf else min(usual, int(length)))
        if assumed is not None and self._rules.number_characters is not None:
            reason = f"format {name} has no greatest length, taken for at most {assumed} characters"
            return self._measure.text(assumed)._replace(assumed=(("", reason),))
        reason = "string without maxLength or pattern"
        if isinstance(pattern, str):
            reason = "string without maxLength, and with a pattern that does not limit it"
        return self._rules.field(reason, self._measure.text(usual).likely)

    def _format(self, kind: str, name: Any) -> int | None:
        """The characters of a format that the schema's draft knows."""
        found = _formats()[kind].get(name) if isinstance(name, str) else None
        return found["characters"] if found is not None and found["since"] <= self._dialect.draft else None

    def _array(self, schema: Mapping[Any, Any]) -> TextSize:
        first, rest = self._items(schema)
        most = count_of(schema.get("maxItems"))
        sizes: list[TextSize] = []
        for place, one in enumerate(first[:most]):
            shape = self.of(one)
            if not shape:  # Nothing can stand here, and nothing behind it.
                most = place
                break
            sizes.append(largest(shape.values()).below(f"[{place}]"))
        item: TextSize | None = None
        if (most is None or most > len(first)) and (shape := self.of(rest)):
            item = largest(shape.values()).below("[]")
        least = count_of(schema.get("minItems")) or 0
        usual = max(_USUAL_ITEMS, least, len(sizes)) if item is not None else len(sizes)
        usual = usual if most is None else min(usual, most)
        likely = 1 + usual + sum(size.likely for size in sizes[:usual])
        likely += item.likely * max(0, usual - len(sizes)) if item is not None else 0
        parts = [(size, 1) for size in sizes]
        if item is None:
            return within(parts, most, likely)
        if most is None:
            parts.append((item, max(1, least - len(sizes))))
            return self._filled(within(parts, None, likely), "array without maxItems")
        return within([*parts, (item, max(0, most - len(sizes)))], most, likely)

    def _items(self, schema: Mapping[Any, Any]) -> tuple[list[Any], Any]:
        """The schemas of the first items, and that of all others."""
        items = schema.get("items")
        if self._dialect.draft >= 2020:
            # A list has no meaning there.
            first, rest = _listed(schema.get("prefixItems")), True if isinstance(items, list | tuple) else items
        elif isinstance(items, list | tuple):
            first, rest = list(items), self._get(schema, "additionalItems")
        else:
            first, rest = [], items
        if rest is None and _IN_PLACE.isdisjoint(schema):
            # Where other keywords look at items too, it is not known which of them are left.
            rest = self._get(schema, "unevaluatedItems")
        return first, True if rest is None else rest

    def _object(self, schema: Mapping[Any, Any]) -> TextSize:
        most = count_of(schema.get("maxProperties"))
        names = self._get(schema, "propertyNames")
        key: TextSize | None = None
        if names is not None and (key := self.of(names).get("string")) is None:
            return within([], 0, 1)
        if most == 0:
            return within([], 0, 1)
        parts: list[tuple[TextSize, int]] = []
        for name, one in _mapping(schema.get("properties")).items():
            if shape := self.of(one):
                parts.append((largest(shape.values()).below(f".{name}").behind(self._measure.key(str(name))), 1))
        likely = 1 + sum(part.likely for part, _ in parts[:most])
        rest = self._rest(schema)
        others = self._others(schema, rest, key)
        if others is None:
            return within(parts, most, likely)
        if not parts:
            likely += others.likely * (_USUAL_ITEMS if most is None else min(most, _USUAL_ITEMS))
        if most is not None:
            return within([*parts, (others, most)], most, likely)
        what = "additionalProperties: false" if rest is True else "maxProperties"
        return self._filled(within([*parts, (others, 1)], None, likely), f"object without {what}")

    def _rest(self, schema: Mapping[Any, Any]) -> Any:
        """The schema of properties that are not named."""
        rest = schema.get("additionalProperties")
        if not isinstance(rest, Mapping | bool) and _IN_PLACE.isdisjoint(schema):
            # Beside other schemas of the same value, it is not known which properties they leave.
            rest = self._get(schema, "unevaluatedProperties")
        if isinstance(rest, Mapping | bool):
            return rest
        return not (self._rules.closed and schema.get("type") == "object")

    def _others(self, schema: Mapping[Any, Any], rest: Any, key: TextSize | None) -> TextSize | None:
        """The size of a member whose name is not among the properties; None where there can be none."""
        sizes = []
        for pattern, one in (*_mapping(schema.get("patternProperties")).items(), (None, rest)):
            if not (shape := self.of(one)):
                continue
            characters = pattern_limit(pattern).within(None) if isinstance(pattern, str) else None
            name = self._rules.field(_NAMES, 2) if characters is None else self._measure.text(characters)
            if key is not None:
                name = smallest(key, name)
            if name.gaps:
                name = name._replace(gaps=(("", _NAMES),))
            member = largest(shape.values()).below(".*").behind(self._measure.as_key(name))
            gaps, assumed = merged((name.gaps, member.gaps)), merged((name.assumed, member.assumed))
            sizes.append(member._replace(gaps=gaps, assumed=assumed))
        return largest(sizes) if sizes else None

    def _filled(self, size: TextSize, reason: str) -> TextSize:
        """A size with the room of a field without a bound."""
        gaps = merged(((("", reason),), tuple(gap for gap in size.gaps if gap != ("", _NAMES))))
        compact, tokens = size.compact + self._rules.field_characters, size.tokens + self._rules.field_tokens
        return size._replace(compact=compact, tokens=tokens, gaps=gaps, vague=False)


@cache
def _formats() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(resources.files(__package__).joinpath("formats.toml").read_text("utf-8"))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}
