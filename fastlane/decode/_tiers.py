"""The two quick ways to decode one type of answer or event: strictly from the bytes, and built from parsed JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args

import pydantic_core

from . import _types as types
from ._build import builder_of
from ._decoders import Decoder
from ._schema import validator_of
from ._strict import Repair, repair_of

_WIDE = 8
_TYPE = re.compile(rb'"type"\s*:\s*"([^"\\]*)"')
_TYPE_FIRST = b'{"type":"'


class DecoderTiers(NamedTuple):
    """How to decode documents of one type."""

    validate: Callable[..., Any] | None
    """pydantic-core's `validate_json`; None where its strict mode is not known to give what the stock client gives."""
    repair: Repair
    loose: Decoder
    """Through parsed JSON, field by field: slower, and for every document."""

    def strict(self, data: bytes) -> Any:
        """What strict validation makes of a document, or None where it does not accept it."""
        try:
            if self.validate is not None:
                found = self.validate(data, strict=True)
                if self.repair(found, data):
                    return found
        except Exception:  # noqa: BLE001 - whatever it is, the next tier has the same document before it
            pass
        return None


def parsed(data: bytes) -> Any:
    """The value of a JSON document, equal to what the `json` module makes of it; raises ValueError."""
    try:
        return pydantic_core.from_json(data)
    except ValueError:
        # Lone surrogates and deep nesting. The stock client knows what to do with a text that is not UTF-8.
        return json.loads(data.decode())


@cache
def tiers_of_model(model: Any, *, event: bool) -> DecoderTiers:
    """The tiers of an answer, or of the events of a stream, that the stock client constructs."""
    build = builder_of(model)

    def loose(data: bytes) -> Any:
        try:
            values = parsed(data)
            if values.__class__ is not dict or (event and values.get("error")):
                return None
            return build(values)
        except Exception:  # noqa: BLE001 - the stock client raises what it raises
            return None

    return _tiers(validator_of(model), repair_of(model, validated=False, event=event), loose)


def _tiers(validator: Any, repair: Repair | None, loose: Decoder) -> DecoderTiers:
    if repair is None:
        return DecoderTiers(None, lambda _found, _data: False, loose)
    return DecoderTiers(validator.validate_json, repair, loose)


class EventUnion:
    """The tiers of a union of event models that a required "type" tells apart, each made when it first occurs.

    One model at most accepts an event, so that the union's outcome is that model's.
    """

    def __init__(self, union: Any) -> None:
        found = tuple(types.members(union))
        if not all(map(types.is_model, found)) or types.told_apart(found) != "type":
            raise types.OddType(union)
        self._models: Mapping[str, Any] = {
            word: model for model in found for word in get_args(types.bare(model.model_fields["type"].annotation))
        }
        self._tiers: dict[str, DecoderTiers] = {}

    def tiers(self, name: str) -> DecoderTiers | None:
        """The tiers of the events with this "type"; None for an unknown one."""
        try:
            return self._tiers[name]
        except KeyError:
            model = self._models.get(name)
            if model is None:
                return None
            # Validating JSON against many models, one after the other, costs several times what validating parsed JSON
            # does; looking the model up would take a validator of megabytes for each event that comes once a stream.
            wide = types.widest_union(model) > _WIDE
            repair = None if wide else repair_of(model, validated=True, event=True)
            made = self._tiers[name] = _tiers(types.built(model).__pydantic_validator__, repair, self.loose)
            return made

    def loose(self, data: bytes) -> Any:
        """Decode one event through parsed JSON: validated as a whole, and constructed where that fails."""
        try:
            values = parsed(data)
            if values.__class__ is not dict or values.get("error"):
                return None
            model = self._models.get(values["type"])
            if model is None:
                return None
            try:
                return _lax(model)(values)
            except Exception:  # noqa: BLE001 - as the stock client, which then constructs
                return builder_of(model)(values)
        except Exception:  # noqa: BLE001 - the stock client raises what it raises
            return None


@cache
def _lax(model: Any) -> Callable[[Any], Any]:
    validate: Callable[[Any], Any] = types.built(model).__pydantic_validator__.validate_python
    return validate


def event_type(data: bytes) -> bytes | None:
    """The "type" that an event seems to have: a guess, which the validator of that type confirms or refuses."""
    if data.startswith(_TYPE_FIRST):
        return data[len(_TYPE_FIRST) : data.find(b'"', len(_TYPE_FIRST))]
    found = _TYPE.search(data)
    return found[1] if found else None
