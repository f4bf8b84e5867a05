"""Write a JSON schema as a strict mode takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .endings import Endings
from .joining import joined
from .positions import BESIDE, DEFINITIONS, is_object, rebuilt, uses, without
from .references import resolve


class Rules(NamedTuple):
    """What a strict mode asks of a schema."""

    refused: frozenset[str] = frozenset()
    closed: bool = False
    all_required: bool = False
    object_root: bool = False
    bare: bool = False


# What is dropped of these stands in the description instead: the model at least reads what it is not held to.
_TOLD = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
     "minLength", "minProperties", "minimum", "multipleOf", "pattern", "uniqueItems")
)  # fmt: skip
# With less said within them, these allow less and not more, so that they are dropped as a whole.
_CONTRARY = frozenset(("contains", "if", "not"))
# What means nothing, or more than it should, without another keyword.
_LEANS_ON = {
    "then": "if", "else": "if", "minContains": "contains", "maxContains": "contains", "items": "prefixItems",
    "unevaluatedItems": "prefixItems",
}  # fmt: skip

_MOST_INLINED = 1_000
_MOST_LISTED = 10
_LONGEST_TOLD = 200
_MOST_STEPS = 10


class Rewriting:
    """One schema on its way to the wire; what was done to it stands in `dropped` and `sentences`."""

    def __init__(self, root: Mapping[str, Any], rules: Rules) -> None:
        self._root = root
        self._rules = rules
        self._inlining: tuple[str, ...] = ()
        self._inlined = 0
        self._endings = Endings(root)
        self._said: dict[str, dict[str, None]] = {}
        self.dropped: dict[str, None] = {}

    def run(self) -> dict[str, Any]:
        """Return the schema for the wire."""
        path = _named(self._root) or _named(self._followed(self._root)) or "$"
        top = self._top(dict(self._root), path) if self._rules.object_root else self._root
        written: dict[str, Any] = self._schema(top, path)
        return written

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was changed, and what could not be."""
        return tuple(f"{_listed(paths)}: {what}" for what, paths in self._said.items())

    def _say(self, path: str, what: str) -> None:
        self._said.setdefault(what, {})[path] = None

    def _top(self, top: dict[str, Any], path: str) -> dict[str, Any]:
        """An object where there can be one. What cannot be one stays: the provider says what it thinks of it."""
        for _ in range(_MOST_STEPS):
            step = self._step_into(top)
            if step is None:
                break
            top = step
            self._say(path, "what the root leads to was put in its place")
        if not is_object(top) or not {"anyOf", "oneOf"}.isdisjoint(top):
            self._say(path, "left as it is, although strict mode takes one object only at the root")
        elif top.get("type") != "object":
            top = {"type": "object", **without(top, "type")}
            self._say(path, "said to be an object")
        return top

    def _step_into(self, top: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a root that only leads elsewhere leads to, together with what stands beside it."""
        target = resolve(self._root, top["$ref"]) if isinstance(top.get("$ref"), str) else None
        if isinstance(target, Mapping) and target is not self._root:
            return joined(without(top, "$ref"), target)
        for key in ("anyOf", "oneOf", "allOf"):
            branches = top.get(key)
            if isinstance(branches, list) and len(branches) == 1 and isinstance(branches[0], Mapping):
                return joined(without(top, key), branches[0])
        return None

    def _schema(self, schema: Any, path: str, *, is_alone: bool = True) -> Any:
        """`is_alone`: whether no schema beside it names properties that it would forbid if it were closed."""
        if not isinstance(schema, Mapping):
            return schema
        if self._rules.bare and isinstance(schema.get("$ref"), str) and set(schema) - DEFINITIONS != {"$ref"}:
            return self._inline(schema, path, is_alone=is_alone)
        schema = self._reworded(schema, path)
        names_some = bool(schema.get("properties"))
        written: dict[str, Any] = {}
        told: list[str] = []
        for key, value in schema.items():
            if self._is_dropped(key, schema):
                self.dropped[key] = None
                if key in _TOLD and (words := _told(key, value)):
                    told.append(words)
            elif key in BESIDE:
                alone = is_alone and not names_some and not (key == "allOf" and len(value) > 1)
                written[key] = rebuilt(key, value, path, lambda one, at, a=alone: self._schema(one, at, is_alone=a))  # type: ignore[misc]
            elif key in _CONTRARY:
                written[key] = value
            else:
                written[key] = rebuilt(key, value, path, self._schema)
        if told:
            said = written.get("description")
            note = f"Must keep to: {', '.join(told)}."
            written["description"] = f"{said} {note}" if isinstance(said, str) and said else note
        return self._object(written, path, is_alone=is_alone) if is_object(written) else written

    def _is_dropped(self, key: str, schema: Mapping[str, Any]) -> bool:
        refused = self._rules.refused
        if key in _LEANS_ON and _LEANS_ON[key] in schema and self._is_dropped(_LEANS_ON[key], schema):
            return True
        if key == "oneOf":  # beside an anyOf, so that it could not become one
            return key in refused or any(uses(one, refused, self._root) for one in _schemas(schema[key]))
        return key in refused or (key in _CONTRARY and uses(schema[key], refused, self._root))

    def _reworded(self, schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """The schema with what is refused said in other words, where there are any."""
        refused = self._rules.refused
        if "const" in refused and "const" in schema and "enum" not in schema:
            schema = {("enum" if key == "const" else key): value for key, value in schema.items()}
            schema = {**schema, "enum": [schema["enum"]]}
        branches = schema.get("oneOf")
        is_free = isinstance(branches, list) and "anyOf" not in schema and "anyOf" not in refused
        # Branches that say less may overlap, and then oneOf would forbid what is valid.
        if is_free and ("oneOf" in refused or any(uses(one, refused, self._root) for one in _schemas(branches))):
            # The discriminator is OpenAPI's, and says of oneOf alone which branch is meant.
            schema = {
                ("anyOf" if key == "oneOf" else key): one for key, one in without(schema, "discriminator").items()
            }
            self._say(path, "oneOf was sent as anyOf")
        if "allOf" in refused and isinstance(schema.get("allOf"), list):
            return self._without_all_of(schema, path)
        return schema

    def _without_all_of(self, schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        whole: dict[str, Any] | None = without(schema, "allOf")
        for part in schema["allOf"]:
            target = self._followed(part)
            whole = joined(whole, target) if whole is not None and target is not None else None
        if whole is None:
            return schema
        self._say(path, "allOf was sent as one schema")
        return self._reworded(whole, path)

    def _followed(self, part: Any) -> Mapping[str, Any] | None:
        for _ in range(_MOST_STEPS):
            if not isinstance(part, Mapping):
                return None
            if not isinstance(part.get("$ref"), str):
                return part
            beside = without(part, "$ref")
            target = resolve(self._root, part["$ref"])
            part = joined(beside, target) if isinstance(target, Mapping) else None
        return None

    def _inline(self, schema: Mapping[str, Any], path: str, *, is_alone: bool) -> Any:
        """What a reference leads to, with what stands beside it in front: that goes before it."""
        reference = schema["$ref"]
        target = resolve(self._root, reference)
        leads_back = reference in self._inlining or self._inlined >= _MOST_INLINED
        if not isinstance(target, Mapping) or target is self._root or leads_back:
            # What leads back to itself has no end. Only descriptions are lost, as a rule.
            self._say(path, "what stood beside its $ref was left out")
            definitions = {key: schema[key] for key in DEFINITIONS if key in schema}
            return {"$ref": reference, **definitions}
        self._inlined += 1
        self._inlining = (*self._inlining, reference)
        try:
            beside = without(schema, "$ref")
            return self._schema(joined(beside, target) or {**target, **beside}, path, is_alone=is_alone)
        finally:
            self._inlining = self._inlining[:-1]

    def _object(self, written: dict[str, Any], path: str, *, is_alone: bool) -> dict[str, Any]:
        properties = written.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        if self._rules.closed and written.get("additionalProperties") is not False:
            is_whole = is_alone and BESIDE.isdisjoint(written) and "patternProperties" not in written
            is_named = bool(properties) or ("properties" in written and "additionalProperties" not in written)
            if is_named and is_whole:
                written["additionalProperties"] = False
                self._say(path, "additionalProperties was made false")
            else:
                self._say(path, "left open, although strict mode takes closed objects only")
        if self._rules.all_required:
            required = written.get("required")
            listed = list(required) if isinstance(required, list) else []
            for name, one in properties.items():
                if name in listed:
                    continue
                if one is False:
                    self._say(f"{path}.{name}", "left optional, because it can have no value")
                elif self._endings.is_endless(one):
                    self._say(f"{path}.{name}", "left optional, because it would have no end")
                else:
                    listed.append(name)
                    self._say(f"{path}.{name}", "made required")
            if listed or isinstance(required, list):
                written["required"] = listed
        return written


def _named(schema: Mapping[str, Any] | None) -> str:
    title = schema.get("title") if schema is not None else None
    return title if isinstance(title, str) else ""


def _schemas(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _told(key: str, value: Any) -> str:
    """A dropped keyword in the description: "maxLength 200"."""
    words = key if value is True else f"{key} {value if isinstance(value, str) else json.dumps(value)}"
    return words if value is not False and len(words) <= _LONGEST_TOLD else ""


def _listed(paths: Mapping[str, None]) -> str:
    named = list(paths)[:_MOST_LISTED]
    further = len(paths) - len(named)
    return ", ".join(named) + (f" and {further} more" if further else "")
