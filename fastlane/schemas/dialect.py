"""Write a JSON schema as a provider's strict mode takes it, by the provider's facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastlane.compat.parsing import strict_json_schema
from fastlane.knowledge.table import Table
from fastlane.providers import Fact
from fastlane.providers.facts import Structured

from .given import written

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = frozenset(("additionalItems", "additionalProperties", "items"))
_SEVERAL = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
_NAMED = frozenset(("$defs", "definitions", "patternProperties", "properties"))
# What is dropped of these stands in the description instead: the model reads what it is not held to.
_DESCRIBED = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
     "minLength", "minProperties", "minimum", "multipleOf", "pattern", "uniqueItems")
)  # fmt: skip
_MAX_DESCRIBED_CHARACTERS = 200
# These allow less, not more, once keywords within them are dropped.
_CONTRARY = frozenset(("contains", "if", "not"))
# What means nothing, or more than it should, without another keyword.
_NEEDS = {
    "then": "if", "else": "if", "minContains": "contains", "maxContains": "contains", "items": "prefixItems",
    "unevaluatedItems": "prefixItems",
}  # fmt: skip


class WireSchema(NamedTuple):
    """A schema as it goes out."""

    schema: Mapping[str, Any]
    """Not to be changed: it is kept for the next call."""
    dropped: tuple[str, ...] = ()
    """Keywords that are not in it any more."""
    changes: tuple[str, ...] = ()
    """What else was changed."""


_UNCHANGED: Mapping[str, Any] = {}
_wires: Table[tuple[bytes, bool, frozenset[str]], WireSchema] = Table("schemas on the wire", max_entries=256)


def wire_schema(schema: Mapping[str, Any], structured: Structured | None, *, strict: bool) -> WireSchema:
    """Return what a provider takes of a schema, and what was done to it; the schema itself where that is nothing.

    Where the provider's strict mode has rules of its own, openai's helper for pydantic models closes objects, makes
    properties required and resolves references with something beside them. Then the keywords that the provider refuses
    are dropped; limits among them are put into the description. `strict`: whether the request says `strict: true`.
    Nothing is done for a request that does not, unless facts say that the provider goes by the schema anyway. `schema`
    is never changed, and the result is kept by its content.

    Every answer that is valid for what goes out but for the dropped keywords is valid for the schema, so that these are
    to be checked by the reader of the answer. What cannot be made acceptable is left as it is: the provider's own error
    is clearer than a schema that means something else.
    """
    if structured is None or not (strict or _holds(structured.unasked)):
        return WireSchema(schema)
    refused = structured.refused_keywords
    keywords = frozenset(refused.value or ()) if refused is not None else frozenset[str]()
    rules = (structured.closed_objects, structured.all_required, structured.bare_references)
    closes = any(map(_holds, rules))
    if not (keywords or closes):
        return WireSchema(schema)
    try:
        text = written(schema)
        found = _wires.get((text, closes, keywords)) or _wires.fetch(
            (text, closes, keywords), lambda: _rewritten(json.loads(text), closes, keywords)
        )
    except (TypeError, ValueError, AttributeError, RecursionError):
        return WireSchema(schema)  # malformed, or nested too deeply to be sent
    return WireSchema(schema) if found.schema is _UNCHANGED else found


def _holds(fact: Fact[bool] | None) -> bool:
    return fact is not None and fact.value is True


def _rewritten(schema: dict[str, Any], closes: bool, refused: frozenset[str]) -> WireSchema:
    """Return the schema for the wire; an empty one where it can go out as it is."""
    changes = []
    wire = schema
    strict = strict_json_schema(schema) if closes else None
    if strict is not None and strict != schema:
        changes.append("the schema was made strict: objects closed, properties required")
        wire = strict
    dropping = _Dropping(refused)
    if refused:
        wire = dropping.schema(wire)
    if dropping.has_any_of:
        changes.append("oneOf was sent as anyOf")
    return WireSchema(_UNCHANGED if wire == schema else wire, tuple(dropping.dropped), tuple(changes))


class _Dropping:
    """Drops refused keywords of a schema; what was done to it stands in the attributes."""

    def __init__(self, refused: frozenset[str]) -> None:
        self._refused = refused - {"allOf"}
        self.dropped: dict[str, None] = {}
        self.has_any_of = False

    def schema(self, schema: Any) -> Any:
        """Return a schema without the refused keywords."""
        if not isinstance(schema, dict):
            return schema
        kept: dict[str, Any] = {}
        described: list[str] = []
        for key, value in self._reworded(schema).items():
            if self._is_dropped(key, schema):
                self.dropped[key] = None
                words = key if value is True else f"{key} {value if isinstance(value, str) else json.dumps(value)}"
                if key in _DESCRIBED and value is not False and len(words) <= _MAX_DESCRIBED_CHARACTERS:
                    described.append(words)
            elif key in _NAMED:
                kept[key] = {name: self.schema(one) for name, one in value.items()}
            elif key in _SEVERAL and isinstance(value, list):
                kept[key] = [self.schema(one) for one in value]
            else:
                kept[key] = self.schema(value) if key in _ONE else value
        if described:
            description, note = kept.get("description"), f"Must keep to: {', '.join(described)}."
            kept["description"] = f"{description} {note}" if isinstance(description, str) and description else note
        return kept

    def _is_dropped(self, key: str, schema: Mapping[str, Any]) -> bool:
        needed = _NEEDS.get(key)
        if needed is not None and needed in schema and self._is_dropped(needed, schema):
            return True
        # A reference within them may lead to a definition that says less than it did.
        return key in self._refused or (key in _CONTRARY and bool(self._refused))

    def _reworded(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with refused keywords replaced by equivalent ones, where there are any."""
        renamed = {}
        if "const" in self._refused and "const" in schema and "enum" not in schema:
            schema = {**schema, "const": [schema["const"]]}
            renamed["const"] = "enum"
        if "oneOf" in schema and "anyOf" not in schema:
            # Branches that say less may overlap. The discriminator is OpenAPI's, for oneOf alone.
            schema = {key: value for key, value in schema.items() if key != "discriminator"}
            renamed["oneOf"] = "anyOf"
            self.has_any_of = True
        return {renamed.get(key, key): value for key, value in schema.items()}
