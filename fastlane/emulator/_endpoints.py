"""The endpoints that need no connection: generating ones read and answered whole, embeddings and models."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from fastlane.emulator import _prompt, _tokens
from fastlane.emulator._generation import generate
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import CREATED, ChatReply, CompletionReply, Reply, ResponsesReply, TokenUsage, compact
from fastlane.emulator._request import ApiError, Overrides

GENERATING: Mapping[str, tuple[Callable[[Mapping[str, Any]], GenerationRequest], Callable[..., Reply]]] = {
    "chat/completions": (_prompt.read_chat, ChatReply),
    "completions": (_prompt.read_completion, CompletionReply),
    "responses": (_prompt.read_responses, ResponsesReply),
}
# OpenAI's text-embedding-3-small.
_DEFAULT_DIMENSIONS = 1_536
_MAXIMUM_DIMENSIONS = 8_192
_MAXIMUM_INPUTS = 2_048


def read_request(resource: str, body: Mapping[str, Any], provider: Provider) -> GenerationRequest:
    """Read a request to a generating endpoint as this provider does. Raises ApiError (400)."""
    dialect = provider.model.dialect
    for field in dialect.refused_fields:
        if field in body:
            raise ApiError(400, f"Unrecognized request argument supplied: {field}", param=field)
    request = GENERATING[resource][0](body)
    return request if dialect.structured_outputs else dataclasses.replace(request, schema=None)


def answer_whole(resource: str, body: Mapping[str, Any], provider: Provider, *, number: int) -> bytes:
    """Return the answer to a request that is not streamed, as a live call would have it, as JSON. Raises ApiError."""
    if resource == "embeddings":
        answer, _ = embeddings(body, provider)
        provider.check_model(answer["model"])
        return compact(answer).encode()
    request = read_request(resource, body, provider)
    if request.stream:
        raise ApiError(400, "Streaming is not supported in a batch.", param="stream", code="invalid_value")
    tokens = _tokens.count(request.text)
    provider.check(request, tokens)
    choices = generate(request, Overrides(), provider.model, seed=provider.seed)
    usage = TokenUsage.of(choices, prompt=tokens, cached=0, cached_path=provider.model.dialect.cached_tokens_path)
    reply = GENERATING[resource][1](request, choices, usage, number=number, tier="default")
    return reply.whole(usage=True)


def prompt_tokens(resource: str, body: Mapping[str, Any]) -> int:
    if resource not in GENERATING:
        return _tokens.count(str(body.get("input", "")))
    try:
        return _tokens.count(GENERATING[resource][0](body).text)
    except ApiError:
        return 0


def embeddings(body: Mapping[str, Any], provider: Provider) -> tuple[dict[str, Any], int]:
    """Return the embeddings of a request's inputs, equal for equal inputs, and the tokens they cost."""
    model, given = _prompt.required_text(body, "model"), body.get("input")
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
        packed = vector(f"{provider.seed}:{model}:{text!r}", dimensions)
        value: object = list(struct.unpack(f"<{dimensions}f", packed))
        if form == "base64":
            value = base64.b64encode(packed).decode()
        data.append({"object": "embedding", "index": index, "embedding": value})
    tokens = sum(_tokens.count(text) if isinstance(text, str) else len(text) for text in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}, tokens


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, int) for each in value)


def vector(seed: str, dimensions: int) -> bytes:
    """Return a unit vector as little-endian 32-bit floats, which is what base64 carries."""
    random = Random(seed)
    values = [random.gauss(0, 1) for _ in range(dimensions)]
    length = sum(value * value for value in values) ** 0.5
    return struct.pack(f"<{dimensions}f", *(value / length for value in values))


def one_model(provider: Provider, name: str) -> dict[str, Any]:
    provider.check_model(name)
    return {"id": name, "object": "model", "created": CREATED, "owned_by": provider.model.dialect.owned_by}
