"""Decode the bytes of one JSON document to openai's typed object, or leave it to openai's own code; equal, always.

pydantic-core parses the JSON and makes the object (`_one_pass`), or a builder makes it of the parsed JSON (`_build`):
about a thirtieth of the stock client's CPU time for a streamed chunk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_args

import pydantic_core

from .._fork import no_fork
from . import probes as _seams

Decoder = Callable[[bytes], Any]
"""From the bytes of one JSON document to the typed object, or None if openai's code has to decide. Never raises."""

_decoders: dict[tuple[Any, Any], Decoder] = {}


def event_decoder(cast_to: Any) -> Decoder | None:
    """Return the decoder of the `cast_to` events of a stream; None for types that are left to the stock client.

    The decoder returns None for what is no JSON object, for an "error" that is not empty, and for an unknown event.
    """
    return _decoder(cast_to, _event_decoder)


def answer_decoder(cast_to: Any) -> Decoder | None:
    """Return the decoder of whole `cast_to` answers; None for types that are left to the stock client.

    It sets no `_request_id` and runs no parser of the caller.
    """
    return _decoder(cast_to, _answer_decoder)


def _decoder(cast_to: Any, make: Callable[[Any], Decoder | None]) -> Decoder | None:
    try:
        decoder = _decoders.get((make, cast_to))
        if decoder is None:
            with no_fork:
                decoder = make(cast_to)
                # Keep no class of an application.
                if decoder is not None:
                    decoder = _decoders.setdefault((make, cast_to), decoder)
    except TypeError:  # not hashable, so none of openai's types
        return None
    return decoder


_SERVER_EVENT = "ResponsesServerEvent"


def _event_decoder(cast_to: Any) -> Decoder | None:
    if cast_to is _type("chat.chat_completion_chunk", "ChatCompletionChunk") and _holds(cast_to, "events"):
        return decoder_of_model(cast_to, is_event=True)
    # Of streams, and of WebSockets.
    for module, name in (("response_stream_event", "ResponseStreamEvent"), ("responses_server_event", _SERVER_EVENT)):
        union = _type(f"responses.{module}", name)
        if union is not None and cast_to == union and _holds(cast_to, "union", name):
            return decoder_of_union(cast_to)
    return None


def _answer_decoder(cast_to: Any) -> Decoder | None:
    known = (
        _type("chat.chat_completion", "ChatCompletion"),
        _type("responses.response", "Response"),
        _type("create_embedding_response", "CreateEmbeddingResponse"),
    )
    if cast_to is not None and cast_to in known and _holds(cast_to, "answers"):
        return decoder_of_model(cast_to, is_event=False)
    return None


def _type(module: str, name: str) -> Any:
    """Return one of openai's types if its module is imported: otherwise no call can name it, and None will do."""
    return getattr(sys.modules.get(f"openai.types.{module}"), name, None)


def _holds(cast_to: Any, what: str, name: str | None = None) -> bool:
    def check() -> bool:
        # Imported here: a private part of openai that has gone is found by this check too.
        from . import _proof

        return _proof.holds(cast_to, what)

    return _seams.holds(f"openai's construct_type for {name or cast_to.__name__}", check)


def parsed(data: bytes) -> Any:
    """Parse a JSON document to what the `json` module makes of it. Raises ValueError."""
    try:
        return pydantic_core.from_json(data, cache_strings="keys")
    except ValueError:
        # Lone surrogates and deep nesting. The stock client knows what to do with a text that is not UTF-8.
        return json.loads(data.decode())


def decoder_of_model(model: Any, *, is_event: bool) -> Decoder:
    """Return the decoder of a model that the stock client constructs."""
    from ._build import builder_of
    from ._one_pass import one_pass_of

    def decode(data: bytes) -> Any:
        try:
            values = parsed(data)
            if values.__class__ is not dict or (is_event and values.get("error")):
                return None
            return builder_of(model)(values)
        except Exception:  # noqa: BLE001 - the stock client raises what it raises
            return None

    return one_pass_of(model, decode, is_event=is_event) or decode


def decoder_of_union(union: Any) -> Decoder:
    """Return the decoder of a union of event models that a required "type" tells apart.

    At most one model accepts an event, so the result for the union is the one for that model. Raises `OddType` for
    another union.
    """
    from . import _types as types
    from ._build import builder_of

    found = tuple(types.members(union))
    if not all(map(types.is_model, found)) or types.told_apart(found) != "type":
        raise types.OddType(union)
    models: Mapping[str, Any] = {
        word: model for model in found for word in get_args(types.bare(model.model_fields["type"].annotation))
    }

    @cache
    def validate_of(name: str) -> Callable[[Any], Any]:
        validate: Callable[[Any], Any] = types.built(models[name]).__pydantic_validator__.validate_python
        return validate

    def decode(data: bytes) -> Any:
        try:
            values = parsed(data)
            if values.__class__ is not dict or values.get("error"):
                return None
            name = values["type"]
            validate = validate_of(name)
            try:
                return validate(values)
            except Exception:  # noqa: BLE001 - as the stock client, which then constructs
                return builder_of(models[name])(values)
        except Exception:  # noqa: BLE001 - the stock client raises what it raises
            return None

    return decode
