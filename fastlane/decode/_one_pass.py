"""Parse JSON and make openai's models in one pass, inside pydantic-core.

A model's own core schema checks every field. Here those that the stock client constructs check none, so that the
result is the one of `construct` (`_build`), at half the CPU time. What the stock client validates is validated by the
schema of openai's model. A document that does not pass is left to the builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_origin

import pydantic_core
from openai._compat import field_get_default
from pydantic_core import core_schema as core

from . import _types as types
from ._build import Source, is_copied

# What pydantic-core makes of JSON is what it makes of the parsed JSON: unions that choose the best member may differ.
_SAME_FROM_JSON = frozenset({
    "any", "bool", "default", "definition-ref", "dict", "float", "int", "list", "literal", "model", "model-field",
    "model-fields", "none", "nullable", "str",
})  # fmt: skip


def one_pass_of(model: Any, fallback: Callable[[bytes], Any], *, is_event: bool) -> Callable[[bytes], Any] | None:
    """Return a decoder of a model, which gives `fallback` what does not pass; None if the model allows none."""
    try:
        schema = types.built(model).__pydantic_core_schema__
        definitions = schema["definitions"] if schema["type"] == "definitions" else []
        source = Source("def made(data):")
        source.names |= {"control": types.CONTROL_NAMES, "fallback": fallback}
        with source.block("try:"):
            source.line("found = validate(data)")
            # An error beside the fields of an event is seen by its name.
            writer = _SchemaWriter(source, {one["ref"]: one for one in definitions}, {"error"} if is_event else set())
            root = writer.constructed(model, schema["schema"] if definitions else schema, "found", ())
            source.line("return found")
        source.line("except Exception: return fallback(data)")
        config = core.CoreConfig(cache_strings="keys", allow_inf_nan=True)
        if definitions:
            root = core.definitions_schema(root, definitions)
        # Without `_use_prebuilt` it would take the models' own validators.
        source.names["validate"] = pydantic_core.SchemaValidator(root, config, _use_prebuilt=False).validate_json
        made: Callable[[bytes], Any] = source.compiled(f"builder of {model.__name__}")
    except Exception:  # noqa: BLE001 - another pydantic: builders give the same, more slowly
        return None
    return made


class _SchemaWriter:
    """The schema of a model that checks nothing, and the lines that take extra keys out of the set of fields."""

    def __init__(self, source: Source, definitions: dict[str, Any], left_out: set[str]) -> None:
        """`left_out`: further keys, beside the fields of the outermost model, that are left to the fallback."""
        self._source = source
        self._definitions = definitions
        source.names["left_out"] = types.CONTROL_NAMES | left_out

    def constructed(self, model: Any, node: Any, found: str, outer: tuple[Any, ...]) -> Any:
        """Return the schema of a constructed model. `found`: the variable that holds it."""
        if model in outer or not types.is_constructible(model):
            raise types.OddType(model)
        node = self._definitions[node["schema_ref"]] if node["type"] == "definition-ref" else node
        source, extra = self._source, self._source.name("extra")
        source.line(f"{extra} = {found}.__pydantic_extra__")
        with source.block(f"if {extra}:"):
            source.line(f"if not {'control' if outer else 'left_out'}.isdisjoint({extra}): return fallback(data)")
            source.line(f"{found}.__pydantic_fields_set__.difference_update({extra})")
        fields = {}
        for name, field in model.model_fields.items():
            if field_get_default(field) is not None or not name.isidentifier():  # which stands in the lines as it is
                raise types.OddType(model)
            own = node["schema"]["fields"][name]["schema"]
            own = own["schema"] if own["type"] == "default" else own
            value = self._value(field.annotation, own, f"{found}.{name}", (*outer, model))
            fields[name] = core.model_field(core.with_default_schema(value, default=None))
        return core.model_schema(
            model, core.model_fields_schema(fields, model_name=model.__name__), config=node["config"]
        )

    def _value(self, annotation: Any, node: Any, value: str, outer: tuple[Any, ...]) -> Any:
        if is_copied(annotation):
            return core.any_schema()
        plain = types.bare(annotation)
        if types.is_union(plain):
            return node if _is_same_from_json(node) else core.none_schema()
        if types.is_model(plain):
            found = self._source.name("found")
            self._source.line(f"{found} = {value}")
            with self._source.block(f"if {found} is not None:"):
                return self.constructed(plain, node, found, outer)
        if get_origin(plain) is list:
            (member,) = get_args(plain)
            item = self._source.name("item")
            with self._source.block(f"for {item} in {value} or ():"):
                return core.list_schema(self._value(member, node["items_schema"], item, outer))
        raise types.OddType(annotation)


def _is_same_from_json(node: Any) -> bool:
    if isinstance(node, dict):
        kind = node.get("type")
        return (not isinstance(kind, str) or kind in _SAME_FROM_JSON) and all(map(_is_same_from_json, node.values()))
    return not isinstance(node, list) or all(map(_is_same_from_json, node))
