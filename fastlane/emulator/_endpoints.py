"""The endpoints that generate, by their paths, and a whole answer of one without a connection or a delay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastlane.emulator import _prompt, _tokens
from fastlane.emulator._answer import ReplyMaker
from fastlane.emulator._chat import ChatReply, CompletionReply, compact
from fastlane.emulator._errors import ApiError
from fastlane.emulator._generation import generate
from fastlane.emulator._overrides import Overrides
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._provider import Provider
from fastlane.emulator._reply import TokenUsage
from fastlane.emulator._resources import embeddings
from fastlane.emulator._responses import ResponsesReply
from fastlane.emulator.settings import ProviderModel

Reader = Callable[[Mapping[str, Any]], GenerationRequest]

GENERATING: Mapping[str, tuple[Reader, ReplyMaker]] = {
    "chat/completions": (_prompt.read_chat, ChatReply),
    "completions": (_prompt.read_completion, CompletionReply),
    "responses": (_prompt.read_responses, ResponsesReply),
}
_NO_OVERRIDES = Overrides()
_TIER = "default"


class WholeReply(NamedTuple):
    """A whole answer: its JSON, and what it cost."""

    body: bytes
    usage: TokenUsage


def answer_whole(resource: str, body: Mapping[str, Any], provider: Provider, *, number: int) -> WholeReply:
    """Answer a request that is not streamed as a live call of its endpoint would be. Raises ApiError."""
    for field in provider.dialect.refused_fields:
        if field in body:
            raise ApiError(400, f"Unrecognized request argument supplied: {field}", param=field)
    if resource == "embeddings":
        answer, tokens = embeddings(body, provider)
        _check_model(provider.model, answer["model"])
        return WholeReply(compact(answer).encode(), TokenUsage(prompt=tokens, cached=0, output=0, reasoning=0))
    read, make_reply = GENERATING[resource]
    prompt = read(body)
    if prompt.stream:
        raise ApiError(400, "Streaming is not supported in a batch.", param="stream", code="invalid_value")
    if not provider.dialect.structured_outputs:
        prompt = dataclasses.replace(prompt, schema=None)
    prompt_tokens = _tokens.count(prompt.text)
    provider.check(prompt, prompt_tokens)
    choices = generate(prompt, _NO_OVERRIDES, provider.model, seed=provider.seed)
    usage = TokenUsage(
        prompt=prompt_tokens,
        cached=0,
        output=sum(choice.tokens for choice in choices),
        reasoning=sum(len(choice.reasoning) for choice in choices),
        cached_path=provider.dialect.cached_tokens_path,
    )
    return WholeReply(make_reply(prompt, choices, usage, number=number, tier=_TIER).whole(usage=True), usage)


def prompt_tokens(resource: str, body: Mapping[str, Any]) -> int:
    """Return the tokens of a request's prompt; none of a request that cannot be read."""
    if resource not in GENERATING:
        return _tokens.count(str(body.get("input", "")))
    try:
        return _tokens.count(GENERATING[resource][0](body).text)
    except ApiError:
        return 0


def _check_model(model: ProviderModel, name: str) -> None:
    if model.models and name not in model.models:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise ApiError(404, message, code="model_not_found")
