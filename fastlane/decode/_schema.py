"""pydantic-core validators of openai's models in which a value that names its type is not tried against all others.

pydantic sees openai's unions of models as plain ones and tries every member, errors and all. Where a required word
tells the members apart, one at most can accept an object, so that looking it up by that word gives the same object
from the same JSON, and refuses the same.
"""

from __future__ import annotations

from typing import Any, get_args

import pydantic_core
from openai import _models
from openai._utils import is_annotated_type, strip_annotated_type
from typing_extensions import TypeAliasType

from . import _types as types

_type_adapter: Any = vars(_models)["TypeAdapter"]
# What says how to write JSON, or stands for documentation.
_NO_VALIDATION = ("serialization", "metadata", "default")


def union_validator_of(union: Any) -> Any:
    """Return openai's validator for the union of a field, with unions looked up where that is certain."""
    if not isinstance(union, TypeAliasType) and is_annotated_type(union):
        union = strip_annotated_type(union)
    adapter = _type_adapter(union)
    if not isinstance(adapter.validator, pydantic_core.SchemaValidator):
        return adapter
    try:
        rewriting = _Rewriting(adapter.core_schema)
        schema = rewriting.whole()
        if not rewriting.changed:
            return adapter.validator
        # Otherwise it takes the members' own validators, in which the unions are as they were.
        return pydantic_core.SchemaValidator(schema, None, _use_prebuilt=False)
    except Exception:  # noqa: BLE001 - another pydantic-core: its own validator gives the same, more slowly
        return adapter.validator


class _Rewriting:
    """A copy of a core schema, made once for each part of it."""

    def __init__(self, schema: Any) -> None:
        self.changed = False
        self._schema = schema
        self._definitions = (
            {one["ref"]: one for one in schema["definitions"]} if schema["type"] == "definitions" else {}
        )

    def whole(self) -> Any:
        return self._copy(self._schema)

    def _copy(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self._copy(item) for item in part]
        if isinstance(part, tuple):
            return tuple(self._copy(item) for item in part)
        if not isinstance(part, dict):
            return part
        if part.get("type") == "union" and isinstance(part.get("choices"), list):
            tagged = self._tagged(part["choices"])
            if tagged is not None:
                self.changed = True
                return tagged
        # A dictionary of fields may have one of these names too: it is a part itself then, and its "type" no word.
        kept = _NO_VALIDATION if isinstance(part.get("type"), str) else ()
        return {key: value if key in kept else self._copy(value) for key, value in part.items()}

    def _tagged(self, choices: list[Any]) -> Any:
        models = tuple(self._model_of(choice) for choice in choices)
        if len(models) < 2 or None in models:
            return None
        name = types.told_apart(models)
        if name is None:
            return None
        found = {
            word: self._copy(choice)
            for choice, model in zip(choices, models, strict=True)
            for word in get_args(types.bare(model.model_fields[name].annotation))
        }
        return {"type": "tagged-union", "discriminator": name, "choices": found}

    def _model_of(self, choice: Any) -> Any:
        while isinstance(choice, dict) and choice.get("type") == "definition-ref":
            choice = self._definitions.get(choice["schema_ref"])
        model = choice.get("cls") if isinstance(choice, dict) and choice.get("type") == "model" else None
        return model if types.is_model(model) and types.is_ordinary(model) else None
