"""The endpoints that generate nothing and keep nothing: embeddings and models."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from random import Random
from typing import Any

from fastlane.emulator import _tokens
from fastlane.emulator._errors import ApiError
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import CREATED

# OpenAI's text-embedding-3-small.
_DEFAULT_DIMENSIONS = 1_536
_MAXIMUM_DIMENSIONS = 8_192
_MAXIMUM_INPUTS = 2_048


def embeddings(body: Mapping[str, Any], provider: Provider) -> tuple[dict[str, Any], int]:
    """Return the embeddings of a request's inputs, equal for equal inputs, and the tokens they cost."""
    model, given = body.get("model"), body.get("input")
    if not isinstance(model, str):
        raise ApiError(400, "Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    inputs: list[Any] = given if isinstance(given, list) and not _is_tokens(given) else [given]
    if not inputs or len(inputs) > _MAXIMUM_INPUTS or not all(isinstance(x, str) or _is_tokens(x) for x in inputs):
        message = f"Invalid 'input': expected a string, tokens, or an array of up to {_MAXIMUM_INPUTS} of them."
        raise ApiError(400, message, param="input", code="invalid_type")
    form = body.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise ApiError(400, "Invalid 'encoding_format': expected 'float' or 'base64'.", param="encoding_format")
    dimensions = body.get("dimensions") or _DEFAULT_DIMENSIONS
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _MAXIMUM_DIMENSIONS:
        raise ApiError(400, f"Invalid 'dimensions': expected 1 to {_MAXIMUM_DIMENSIONS}.", param="dimensions")
    data = []
    for index, text in enumerate(inputs):
        packed = _vector(f"{provider.seed}:{model}:{text!r}", dimensions)
        value: object = list(struct.unpack(f"<{dimensions}f", packed))
        if form == "base64":
            value = base64.b64encode(packed).decode()
        data.append({"object": "embedding", "index": index, "embedding": value})
    tokens = sum(map(_token_count, inputs))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}, tokens


def _token_count(value: str | list[int]) -> int:
    return _tokens.count(value) if isinstance(value, str) else len(value)


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, int) for each in value)


def _vector(seed: str, dimensions: int) -> bytes:
    """Return a unit vector as little-endian 32-bit floats, which is what base64 carries."""
    random = Random(seed)
    values = [random.gauss(0, 1) for _ in range(dimensions)]
    length = sum(value * value for value in values) ** 0.5
    return struct.pack(f"<{dimensions}f", *(value / length for value in values))


def list_models(provider: Provider) -> dict[str, Any]:
    """Return the models served; a provider that serves every name lists its own."""
    return {"object": "list", "data": [_model(provider, name) for name in provider.model.served]}


def one_model(provider: Provider, name: str) -> dict[str, Any]:
    """Return one model. Raises ApiError (404)."""
    if provider.model.models and name not in provider.model.models:
        raise ApiError(404, f"The model '{name}' does not exist", param="model", code="model_not_found")
    return _model(provider, name)


def _model(provider: Provider, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": provider.dialect.owned_by}
