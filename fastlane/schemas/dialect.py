"""Write a JSON schema as a provider's strict mode takes it, by the provider's facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from fastlane.knowledge.table import Table
from fastlane.providers import Fact
from fastlane.providers._schema import Structured

from .references import resolve, written

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = frozenset(
    ("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
     "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")
)  # fmt: skip
_SEVERAL = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_DEFINITIONS = frozenset(("$defs", "definitions"))
_OF_ITEMS = frozenset(("additionalItems", "contains", "items", "prefixItems", "unevaluatedItems"))
# Keywords whose schemas speak of the same value as the schema that they stand in.
_BESIDE = frozenset(("allOf", "anyOf", "dependentSchemas", "else", "oneOf", "then"))
_ANNOTATIONS = frozenset(
    ("$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly")
)
# What is dropped of these stands in the description instead: the model reads what it is not held to.
_TOLD = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
     "minLength", "minProperties", "minimum", "multipleOf", "pattern", "uniqueItems")
)  # fmt: skip
# With less said within them, these allow less and not more: they are dropped as a whole.
_CONTRARY = frozenset(("contains", "if", "not"))
# What means nothing, or more than it should, without another keyword.
_LEANS_ON = {
    "then": "if", "else": "if", "minContains": "contains", "maxContains": "contains", "items": "prefixItems",
    "unevaluatedItems": "prefixItems",
}  # fmt: skip

_MAX_INLINED = 1_000
_MAX_LISTED = 10
_MAX_TOLD_CHARACTERS = 200
_MAX_STEPS = 10


class WireSchema(NamedTuple):
    """A schema as it goes out."""

    schema: Mapping[str, Any]
    """Not to be changed: it is kept for the next call."""
    dropped: tuple[str, ...]
    """Keywords that are not in it any more."""
    changed: tuple[str, ...]
    """Sentences that say what else was changed, or could not be made as the provider wants it."""


class _Rules(NamedTuple):
    """What a strict mode asks of a schema."""

    refused: frozenset[str] = frozenset()
    closed: bool = False
    all_required: bool = False
    object_root: bool = False
    bare: bool = False


_CLOSED = _Rules(closed=True)
_AS_IT_IS: Final = WireSchema({}, (), ())
_wires: Table[Any, WireSchema] = Table("schemas on the wire", max_entries=256)


def wire_schema(schema: Mapping[str, Any], structured: Structured | None, *, strict: bool) -> WireSchema:
    """Return what a provider takes of a schema, and what was done to it; the schema itself where that is nothing.

    `strict`: whether the request asks for it to be kept to (`strict: true`). Nothing is done for a request that does
    not, unless facts say that the provider goes by the schema anyway. `schema` is never changed.

    Every answer that is valid for what goes out but for the dropped keywords is valid for the schema, so that these are
    to be checked by the reader of the answer; save that open objects in a oneOf may overlap, and closed ones not. An
    optional property is made required where the provider takes no others, and keeps its own schema. It stays optional
    where no answer would come to an end otherwise. What cannot be made acceptable is left as it is, and said: the
    provider's own error is clearer than a schema that means something else. The result is kept by content.
    """
    if structured is None or not (strict or _holds(structured.unasked)):
        return WireSchema(schema, (), ())
    refused = structured.refused_keywords
    rules = _Rules(
        refused=frozenset(refused.value or ()) if refused is not None else frozenset(),
        closed=_holds(structured.closed_objects),
        all_required=_holds(structured.all_required),
        object_root=_holds(structured.object_root),
        bare=_holds(structured.bare_references),
    )
    return _wire(schema, rules) if any(rules) else WireSchema(schema, (), ())


def closed_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema as strict mode keeps to it everywhere: no object has properties beyond those that are named."""
    return _wire(schema, _CLOSED).schema


def _wire(schema: Mapping[str, Any], rules: _Rules) -> WireSchema:
    try:
        text = written(schema)
    except (TypeError, ValueError, RecursionError):
        return WireSchema(schema, (), ())  # no JSON: it cannot be sent
    found = _wires.get((text, rules)) or _wires.fetch((text, rules), lambda: _rewritten(json.loads(text), rules))
    return WireSchema(schema, (), ()) if found is _AS_IT_IS else found


def _rewritten(schema: Mapping[str, Any], rules: _Rules) -> WireSchema:
    try:
        if not _is_well_formed(schema):
            return _AS_IT_IS
        rewriting = _Rewriting(schema, rules)
        rewritten = rewriting.run()
    except RecursionError:  # nested too deeply to be read, and to be sent
        return _AS_IT_IS
    if rewritten == schema and not rewriting.sentences:
        return _AS_IT_IS
    return WireSchema(rewritten, tuple(rewriting.dropped), rewriting.sentences)


def _holds(fact: Fact[bool] | None) -> bool:
    return fact is not None and fact.value is True


class _Rewriting:
    """One schema on its way to the wire; what was done to it stands in `dropped` and `sentences`."""

    def __init__(self, root: Mapping[str, Any], rules: _Rules) -> None:
        self._root = root
        self._rules = rules
        self._inlining: tuple[str, ...] = ()
        self._inlined = 0
        self._said: dict[str, dict[str, None]] = {}
        self.dropped: dict[str, None] = {}

    def run(self) -> dict[str, Any]:
        """Return the schema for the wire."""
        path = next((str(one["title"]) for one in self._leading(self._root) if one.get("title")), "$")
        top = self._object_root(dict(self._root), path) if self._rules.object_root else self._root
        rewritten: dict[str, Any] = self._schema(top, path)
        return rewritten

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was changed, and what could not be."""
        return tuple(f"{_listed(paths)}: {what}" for what, paths in self._said.items())

    def _say(self, path: str, what: str) -> None:
        self._said.setdefault(what, {})[path] = None

    def _leading(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """Yield a schema, and those that its references lead to, one after the other."""
        for _ in range(_MAX_STEPS):
            if not isinstance(schema, Mapping):
                return
            yield schema
            schema = resolve(self._root, schema["$ref"]) if "$ref" in schema else None

    def _object_root(self, top: dict[str, Any], path: str) -> dict[str, Any]:
        """An object where there can be one. What cannot be one stays: the provider says what it thinks of it."""
        for _ in range(_MAX_STEPS):
            step = self._step_into(top)
            if step is None:
                break
            top = step
            self._say(path, "what the root leads to was put in its place")
        if not _is_object(top) or not {"anyOf", "oneOf"}.isdisjoint(top):
            self._say(path, "left as it is, although strict mode takes one object only at the root")
        elif top.get("type") != "object":
            top = {"type": "object", **_without(top, "type")}
            self._say(path, "said to be an object")
        return top

    def _step_into(self, top: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a root that only leads elsewhere leads to, together with what stands beside it."""
        target = resolve(self._root, top["$ref"]) if "$ref" in top else None
        if isinstance(target, Mapping) and target is not self._root:
            return _joined(_without(top, "$ref"), target)
        for key in ("anyOf", "oneOf", "allOf"):
            branches = top.get(key, ())
            if len(branches) == 1 and isinstance(branches[0], Mapping):
                return _joined(_without(top, key), branches[0])
        return None

    def _schema(self, schema: Any, path: str, *, is_alone: bool = True) -> Any:
        """`is_alone`: whether no schema beside it names properties that it would forbid if it were closed."""
        if not isinstance(schema, Mapping):
            return schema
        if self._rules.bare and "$ref" in schema and set(schema) - _DEFINITIONS != {"$ref"}:
            return self._inline(schema, path, is_alone=is_alone)
        schema = self._reworded(schema, path)
        names_some = bool(schema.get("properties"))
        rewritten: dict[str, Any] = {}
        told: list[str] = []
        for key, value in schema.items():
            if self._is_dropped(key, schema):
                self.dropped[key] = None
                if key in _TOLD and (words := _told(key, value)):
                    told.append(words)
            elif key in _CONTRARY:
                rewritten[key] = value
            else:
                # One of several, or one beside named properties, would forbid the others' properties.
                alone = key not in _BESIDE or (is_alone and not names_some and not (key == "allOf" and len(value) > 1))
                rewritten[key] = _rebuilt(key, value, path, partial(self._schema, is_alone=alone))
        if told:
            said = rewritten.get("description")
            note = f"Must keep to: {', '.join(told)}."
            rewritten["description"] = f"{said} {note}" if isinstance(said, str) and said else note
        return self._object(rewritten, path, is_alone=is_alone) if _is_object(rewritten) else rewritten

    def _is_dropped(self, key: str, schema: Mapping[str, Any]) -> bool:
        refused = self._rules.refused
        if key in _LEANS_ON and _LEANS_ON[key] in schema and self._is_dropped(_LEANS_ON[key], schema):
            return True
        return key in refused or (key in _CONTRARY | {"oneOf"} and self._has_refused(schema[key]))

    def _has_refused(self, schemas: Any) -> bool:
        """Whether a refused keyword stands in one of the schemas, in one within it, or where they refer to."""
        waiting, seen = list(schemas) if isinstance(schemas, list) else [schemas], set[int]()
        while waiting:
            one = waiting.pop()
            if isinstance(one, Mapping) and id(one) not in seen:
                seen.add(id(one))
                if not self._rules.refused.isdisjoint(one):
                    return True
                waiting.extend(_inner(one))
                if "$ref" in one:
                    waiting.append(resolve(self._root, one["$ref"]))
        return False

    def _reworded(self, schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """The schema with what is refused said in other words, where there are any."""
        refused = self._rules.refused
        if "const" in refused and "const" in schema and "enum" not in schema:
            schema = {("enum" if key == "const" else key): one for key, one in schema.items()}
            schema = {**schema, "enum": [schema["enum"]]}
        is_free = "oneOf" in schema and "anyOf" not in schema and "anyOf" not in refused
        # Branches that say less may overlap, and then oneOf would forbid what is valid.
        if is_free and ("oneOf" in refused or self._has_refused(schema["oneOf"])):
            # The discriminator is OpenAPI's, and says of oneOf alone which branch is meant.
            schema = {
                ("anyOf" if key == "oneOf" else key): one for key, one in _without(schema, "discriminator").items()
            }
            self._say(path, "oneOf was sent as anyOf")
        if "allOf" in refused and "allOf" in schema:
            whole: dict[str, Any] | None = _without(schema, "allOf")
            for part in schema["allOf"]:
                for one in self._leading(part):
                    whole = _joined(whole, _without(one, "$ref")) if whole is not None else None
            if whole is not None:
                self._say(path, "allOf was sent as one schema")
                return whole
        return schema

    def _inline(self, schema: Mapping[str, Any], path: str, *, is_alone: bool) -> Any:
        """What a reference leads to, with what stands beside it in front: that goes before it."""
        reference = schema["$ref"]
        target = resolve(self._root, reference)
        leads_back = reference in self._inlining or self._inlined >= _MAX_INLINED
        if not isinstance(target, Mapping) or target is self._root or leads_back:
            # What leads back to itself has no end. Only descriptions are lost, as a rule.
            self._say(path, "what stood beside its $ref was left out")
            return {"$ref": reference, **{key: schema[key] for key in _DEFINITIONS if key in schema}}
        self._inlined += 1
        self._inlining = (*self._inlining, reference)
        try:
            beside = _without(schema, "$ref")
            return self._schema(_joined(beside, target) or {**target, **beside}, path, is_alone=is_alone)
        finally:
            self._inlining = self._inlining[:-1]

    def _object(self, rewritten: dict[str, Any], path: str, *, is_alone: bool) -> dict[str, Any]:
        properties = rewritten.get("properties", {})
        if self._rules.closed and rewritten.get("additionalProperties") is not False:
            is_whole = is_alone and _BESIDE.isdisjoint(rewritten) and "patternProperties" not in rewritten
            is_named = bool(properties) or ("properties" in rewritten and "additionalProperties" not in rewritten)
            if is_named and is_whole:
                rewritten["additionalProperties"] = False
                self._say(path, "additionalProperties was made false")
            else:
                self._say(path, "left open, although strict mode takes closed objects only")
        if self._rules.all_required:
            listed = list(rewritten.get("required", ()))
            for name, one in properties.items():
                if name in listed:
                    continue
                if one is False:
                    self._say(f"{path}.{name}", "left optional, because it can have no value")
                elif self._is_endless(one, ()):
                    self._say(f"{path}.{name}", "left optional, because it would have no end")
                else:
                    listed.append(name)
                    self._say(f"{path}.{name}", "made required")
            if listed or "required" in rewritten:
                rewritten["required"] = listed
        return rewritten

    def _is_endless(self, schema: Any, within: tuple[str, ...]) -> bool:
        """Whether every value would hold another of its kind, once every property is required.

        `within`: the references that have led there.
        """
        if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
            return False
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in within or len(within) > _MAX_STEPS:
                return reference in within
            return self._is_endless(resolve(self._root, reference), (*within, reference))
        for key in ("anyOf", "oneOf"):
            if schema.get(key) and all(self._is_endless(one, within) for one in schema[key]):
                return True
        if isinstance(schema.get("type"), list) and len(schema["type"]) > 1:
            return False
        parts = [*schema.get("allOf", ()), *schema.get("properties", {}).values()]
        if schema.get("minItems"):
            parts.append(schema.get("items"))
        return any(self._is_endless(one, within) for one in parts)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema of what is valid for both; None where no plain one says so. Its descriptions are the first's."""
    joined = dict(first)
    for key, value in second.items():
        if key in ("properties", *_DEFINITIONS) and key in joined:
            joined[key] = {**joined[key], **value}
            if any(joined[key][name] != one for name, one in first[key].items()):
                return None
        elif key == "required" and key in joined:
            joined[key] = [*joined[key], *(name for name in value if name not in joined[key])]
        elif key not in joined:
            joined[key] = value
        elif key not in _ANNOTATIONS and joined[key] != value:
            return None
    for one, other in ((first, second), (second, first)):
        # A closed one would forbid the other's properties.
        is_closed = one.get("additionalProperties", True) not in (True, {}) or "patternProperties" in one
        if is_closed and set(other.get("properties", ())) - set(one.get("properties", ())):
            return None
    return joined


def _inner(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that stand directly in a schema. References are not followed."""
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            yield from value.values()
        elif key in _SEVERAL and isinstance(value, list):
            yield from value
        elif key in _ONE:
            yield value


def _rebuilt(key: str, value: Any, path: str, change: Callable[[Any, str], Any]) -> Any:
    """Return a keyword's value with every schema directly in it as `change(schema, path)` makes it.

    `path`: of the schema that the keyword stands in, such as "Ticket"; what is changed has its own, "Ticket.tags[]".
    """
    if key in _DEFINITIONS:
        return {name: change(one, name) for name, one in value.items()}
    if key in _NAMED:
        return {name: change(one, f"{path}.{name}" if key == "properties" else path) for name, one in value.items()}
    inner_path = f"{path}[]" if key in _OF_ITEMS else path
    if key in _SEVERAL and isinstance(value, list):
        return [change(one, inner_path) for one in value]
    return change(value, inner_path) if key in _ONE else value


def _is_well_formed(schema: Any) -> bool:
    """Whether what is read of a schema, and of those within it, is of the kind that JSON schema says."""
    if not isinstance(schema, Mapping):
        return isinstance(schema, bool)
    for key, value in schema.items():
        if key in _NAMED:
            is_right = isinstance(value, Mapping)
        elif key in _SEVERAL and not (key == "items" and isinstance(value, Mapping | bool)):
            is_right = isinstance(value, list)
        elif key in ("required", "type"):
            names = [value] if key == "type" and isinstance(value, str) else value
            is_right = isinstance(names, list) and all(isinstance(name, str) for name in names)
        else:
            is_right = isinstance(value, {"$ref": str, "enum": list}.get(key, object))
        if not is_right:
            return False
    return all(map(_is_well_formed, _inner(schema)))


def _is_object(schema: Mapping[str, Any]) -> bool:
    """Whether a schema speaks of objects."""
    kind = schema.get("type")
    if kind is None:
        return "properties" in schema
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _told(key: str, value: Any) -> str:
    """A dropped keyword in the description: "maxLength 200"."""
    words = key if value is True else f"{key} {value if isinstance(value, str) else json.dumps(value)}"
    return words if value is not False and len(words) <= _MAX_TOLD_CHARACTERS else ""


def _listed(paths: Mapping[str, None]) -> str:
    named = list(paths)[:_MAX_LISTED]
    further = len(paths) - len(named)
    return ", ".join(named) + (f" and {further} more" if further else "")
