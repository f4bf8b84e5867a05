"""The longest value that a JSON schema allows, worked out keyword by keyword."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from typing import Any

from .bound_tokens import Measure
from .drafts import Dialect, count_of, dialect_of, has_identifiers, type_of, types_of
from .evaluated import Evaluated, evaluated
from .members import members_of
from .patterns import longest_match
from .references import resolve
from .scalars import Rules, number, string
from .sizes import JSON_TYPES, JsonType, Shape, Size, both, either, largest, merged, smallest, within

_USUAL_ITEMS = 3
_SELF_LIKELY = 2
# What looks at the same value, and perhaps at its items.
_IN_PLACE = frozenset(
    ("allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas", "contains", "not")
)
_NAMES = "names of properties without a bound"

Steps = Generator[Any, Shape, Shape]
"""What works out a shape: it yields each schema of which it needs the shape, and is sent that. So a schema can be
nested deeper than Python's stack."""
_SizeSteps = Generator[Any, Shape, Size]


def longest(root: Any, measure: Measure, rules: Rules) -> Size:
    """Return the size of the longest value of a schema; what has no bound is named, and taken for what `rules` say."""
    dialect = dialect_of(root)
    if dialect is None:
        return rules.field("a $schema that is not known")
    shape = _Longest(root, dialect, measure, rules).of(root)
    return largest(list(shape.values())) if shape else Size(0, 0, 0)


class _Longest:
    def __init__(self, root: Any, dialect: Dialect, measure: Measure, rules: Rules) -> None:
        self._root = root
        self._dialect = dialect
        self._get = dialect.get
        self._measure = measure
        self._rules = rules
        self._known: dict[int, Shape] = {}
        self._open: set[int] = set()
        self._own_names = has_identifiers(root, dialect)
        self._null = measure.word("null")
        self._boolean = measure.word("false")

    def of(self, schema: Any) -> Shape:
        """Return the shape of a schema. The steps in progress stand in a list of our own."""
        running: list[tuple[int, Steps]] = []
        while True:
            shape = self._at_once(schema)
            if shape is None:
                self._open.add(id(schema))
                running.append((id(schema), self._schema(schema)))
            while running:
                key, steps = running[-1]
                try:
                    # None is how a generator is started.
                    schema = steps.send(shape)  # type: ignore[arg-type]
                    break
                except StopIteration as done:
                    running.pop()
                    self._open.discard(key)
                    shape = self._known[key] = done.value
            else:
                assert shape is not None
                return shape

    def _at_once(self, schema: Any) -> Shape | None:
        """The shape of a schema that needs no steps, or None."""
        if schema is True:
            return self._anything("any value", vague=True)
        if schema is False:
            return {}
        if not isinstance(schema, Mapping):
            return self._anything("no JSON schema stands here")
        if id(schema) in self._open:
            return self._anything("refers to itself, to any depth", likely=_SELF_LIKELY)
        return self._known.get(id(schema))

    def _anything(self, reason: str, *, vague: bool = False, likely: int | None = None) -> Shape:
        """The shape of a value of which nothing is known."""
        unbounded = self._rules.field(reason, vague=vague)
        if likely is not None:
            unbounded = unbounded._replace(likely=likely)
        shape: dict[JsonType, Size] = dict.fromkeys(JSON_TYPES, unbounded)
        shape["null"], shape["boolean"] = self._null, self._boolean
        return shape

    def _target(self, reference: Any) -> Any:
        """What a reference leads to; None where that is not known."""
        return None if self._own_names or not isinstance(reference, str) else resolve(self._root, reference)

    def _schema(self, schema: Mapping[Any, Any]) -> Steps:
        if "$ref" in schema and self._dialect.reference_alone:
            return (yield from self._reference(schema["$ref"]))
        if schema is not self._root and isinstance(schema.get("$schema"), str):
            return self._anything("a $schema of its own")
        listed = [schema.get("enum"), [schema["const"]] if self._dialect.knows("const") and "const" in schema else None]
        literals = [values for values in listed if isinstance(values, list | tuple)]
        if literals:
            # What else is said only makes it less.
            shape = self._literals(min(literals, key=len), types_of(schema)[0])
        else:
            shape = yield from self._own(schema)
            if not _IN_PLACE.isdisjoint(schema):
                shape = both(shape, (yield from self._in_place(schema)))
        if schema.get("nullable") is True and "null" not in shape:
            shape = {**shape, "null": self._null}
        return shape

    def _in_place(self, schema: Mapping[Any, Any]) -> Steps:
        """What the keywords say that are about other schemas of the same value."""
        get = self._get
        shape = self._anything("any value", vague=True)
        if get(schema, "not") == {}:
            return {}
        if "$ref" in schema:
            shape = both(shape, (yield from self._reference(schema["$ref"])))
        if any(get(schema, name) is not None for name in ("$dynamicRef", "$recursiveRef")):
            shape = both(shape, self._anything("a reference that depends on where it is used"))
        for one in _listed(get(schema, "allOf")):
            shape = both(shape, (yield one))
        for name in ("anyOf", "oneOf"):
            if branches := _listed(get(schema, name)):
                shape = both(shape, (yield from self._any_of(branches)))
        if get(schema, "if") is not None:
            condition = both((yield schema["if"]), (yield schema.get("then", True)))
            shape = both(shape, either([condition, (yield schema.get("else", True))]))
        return shape

    def _any_of(self, branches: list[Any]) -> Steps:
        shapes: list[Shape] = []
        while len(shapes) < len(branches):
            shapes.append((yield branches[len(shapes)]))
        return either(shapes)

    def _reference(self, reference: Any) -> Steps:
        target = self._target(reference)
        if target is None:
            return self._anything("a reference that leads nowhere inside of the schema")
        return (yield target)

    def _literals(self, values: Any, types: tuple[JsonType, ...]) -> Shape:
        sizes: dict[JsonType, list[Size]] = {}
        for value in values:
            if (kind := type_of(value)) in types:
                sizes.setdefault(kind, []).append(self._measure.value(value))
        return {
            kind: largest(found)._replace(likely=math.ceil(sum(size.likely for size in found) / len(found)))
            for kind, found in sizes.items()
        }

    def _own(self, schema: Mapping[Any, Any]) -> Steps:
        """What the keywords say that are not about other schemas of the same value."""
        types, integer = types_of(schema)
        spoken = {kind for kind in types if self._dialect.speaks_of(schema, kind)}
        nothing = self._rules.field("value of any type: no type" if spoken else "any value", vague=True)
        shape: dict[JsonType, Size] = {}
        for kind in types:
            if kind == "null":
                shape[kind] = self._null
            elif kind == "boolean":
                shape[kind] = self._boolean
            elif types is JSON_TYPES and kind not in spoken:
                shape[kind] = nothing
            elif kind == "number":
                shape[kind] = number(schema, self._dialect, self._measure, self._rules, integer=integer)
            elif kind == "string":
                shape[kind] = string(schema, self._dialect, self._measure, self._rules)
            elif kind == "array":
                shape[kind] = yield from self._array(schema)
            else:
                shape[kind] = yield from self._object(schema)
        return shape

    def _array(self, schema: Mapping[Any, Any]) -> _SizeSteps:
        first, rest = self._items(schema)
        most = count_of(schema.get("maxItems"))
        sizes: list[Size] = []
        for place, one in enumerate(first[:most]):
            shape = yield one
            if not shape:  # Nothing can stand here, and nothing behind it.
                most = place
                break
            sizes.append(largest(list(shape.values())).below(f"[{place}]"))
        item: Size | None = None
        if (most is None or most > len(first)) and (shape := (yield rest)):
            item = largest(list(shape.values())).below("[]")
        if item is not None and schema.get("uniqueItems") is True:
            different = members_of(rest, self._dialect, self._target)
            if different is not None:
                most = len(sizes) + different if most is None else min(most, len(sizes) + different)
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
        get = self._get
        items = schema.get("items")
        if self._dialect.draft >= 2020:
            # A list has no meaning there any more.
            first, rest = _listed(get(schema, "prefixItems")), True if isinstance(items, list | tuple) else items
        elif isinstance(items, list | tuple):
            first, rest = list(items), get(schema, "additionalItems")
        else:
            first, rest = [], items
        if rest is None and _IN_PLACE.isdisjoint(schema):
            # Where other keywords look at items too, nobody knows which of them are left.
            rest = get(schema, "unevaluatedItems")
        return first, True if rest is None else rest

    def _object(self, schema: Mapping[Any, Any]) -> _SizeSteps:
        found = evaluated(schema, self._dialect, self._target, closed=self._rules.closed)
        most = count_of(self._get(schema, "maxProperties"))
        names = self._get(schema, "propertyNames")
        key: Size | None = None
        if names is not None and (key := (yield names).get("string")) is None:
            return within([], 0, 1)
        parts: list[tuple[Size, int]] = []
        for name, schemas in found.properties.items() if most != 0 else ():
            shape = yield from self._any_of(schemas)
            if shape:
                parts.append((largest(list(shape.values())).below(f".{name}").behind(self._measure.key(name)), 1))
        likely = 1 + sum(part.likely for part, _ in parts[:most])
        others = (yield from self._others(found, key)) if most != 0 else None
        if others is None:
            return within(parts, most, likely)
        times = most
        if names is not None:
            different = members_of(names, self._dialect, self._target)
            times = different if times is None else times if different is None else min(times, different)
        if not parts:
            likely += others.likely * (_USUAL_ITEMS if times is None else min(times, _USUAL_ITEMS))
        if times is not None:
            return within([*parts, (others, times)], most, likely)
        what = "additionalProperties: false" if found.others is True else "maxProperties"
        return self._filled(within([*parts, (others, 1)], None, likely), f"object without {what}")

    def _others(self, found: Evaluated, key: Size | None) -> Generator[Any, Shape, Size | None]:
        """The size of a member whose name is not among the properties; None where there can be none."""
        sizes = []
        for pattern, one in (*found.patterns, (None, found.others)):
            if not (shape := (yield one)):
                continue
            matched = longest_match(pattern) if pattern is not None else None
            characters = matched.within(None) if matched is not None else None
            name = self._rules.field(_NAMES, 2) if characters is None else self._measure.text(characters)
            if key is not None:
                name = smallest(key, name)
            if name.gaps:
                name = name._replace(gaps=(("", _NAMES),))
            member = largest(list(shape.values())).below(".*").behind(self._measure.as_key(name))
            gaps, assumed = merged((name.gaps, member.gaps)), merged((name.assumed, member.assumed))
            sizes.append(member._replace(gaps=gaps, assumed=assumed))
        return largest(sizes) if sizes else None

    def _filled(self, size: Size, reason: str) -> Size:
        """A size with the room of a field without a bound, as there can be more in it than anybody knows."""
        rules = self._rules
        gaps = merged(((("", reason),), tuple(gap for gap in size.gaps if gap != ("", _NAMES))))
        compact, tokens = size.compact + rules.field_characters, size.tokens + rules.field_tokens
        return size._replace(compact=compact, tokens=tokens, gaps=gaps, vague=False)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
