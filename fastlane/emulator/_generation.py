"""What the model will say to a prompt: its pieces, one per token, and why it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from fastlane.emulator import _text, _tokens
from fastlane.emulator._errors import ApiError
from fastlane.emulator._model import ProviderModel
from fastlane.emulator._overrides import Overrides
from fastlane.emulator._prompt import Prompt, Schema
from fastlane.emulator._schema import value_for

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer: reasoning pieces first, then the pieces of the text or of the tool's arguments."""

    index: int
    reasoning: tuple[str, ...]
    pieces: tuple[str, ...]
    tool: str | None
    finish_reason: FinishReason

    @property
    def tokens(self) -> int:
        """How many tokens the answer costs, reasoning included."""
        return len(self.reasoning) + len(self.pieces)


def generate(prompt: Prompt, overrides: Overrides, model: ProviderModel, *, seed: int) -> tuple[Choice, ...]:
    """Return all choices; the same for the same seed and prompt."""
    if prompt.prewarm:
        return (Choice(index=0, reasoning=(), pieces=(), tool=None, finish_reason="stop"),)
    digest = _tokens.fingerprint(prompt.text)
    return tuple(
        _choice(index, prompt, overrides, model, Random(f"{seed}:text:{digest}:{index}"))
        for index in range(prompt.choices)
    )


def _choice(index: int, prompt: Prompt, overrides: Overrides, model: ProviderModel, random: Random) -> Choice:
    thinking = overrides.reasoning_tokens
    if thinking is None:
        thinking = model.reasoning_tokens if prompt.reasoning else 0
    tool = prompt.forced_tool
    if tool is None and overrides.tool_call in prompt.tools:
        tool = overrides.tool_call
    natural = _natural_text(prompt, overrides, model, tool, random)
    stopped = _cut_at_stop(natural, prompt.stop) if tool is None else natural
    reasoning = _tokens.split(_text.review(random, tokens=thinking))
    pieces = _tokens.split(stopped)
    finish: FinishReason = "stop" if tool is None else "tool_calls"
    limit = prompt.output_limit
    if limit is not None and limit < len(reasoning) + len(pieces):
        reasoning = reasoning[:limit]
        pieces = pieces[: limit - len(reasoning)]
        finish = "length"
    return Choice(index=index, reasoning=reasoning, pieces=pieces, tool=tool, finish_reason=finish)


def _natural_text(prompt: Prompt, overrides: Overrides, model: ProviderModel, tool: str | None, random: Random) -> str:
    if tool is not None:
        return _filled(_drawn(prompt.tools[tool], random), overrides.output_tokens)
    if overrides.output_text is not None:
        return overrides.output_text
    if prompt.schema is not None:
        return _filled(_drawn(_object_at_least(prompt.schema), random), overrides.output_tokens)
    wanted = model.default_output_tokens if overrides.output_tokens is None else overrides.output_tokens
    return _text.review(random, tokens=wanted)


def _object_at_least(schema: Mapping[str, object] | bool) -> Mapping[str, object]:
    if isinstance(schema, bool) or not schema:
        return {
            "type": "object",
            "properties": {"summary": {"type": "string"}, "confidence": {"type": "number"}},
            "required": ["summary", "confidence"],
        }
    return schema


def _drawn(schema: Schema, random: Random) -> str:
    try:
        return json.dumps(value_for(schema, random), separators=(",", ":"))
    # A schema that is none ("minimum": "x") can trip the drawing at any keyword; it is the request's mistake.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ApiError(400, f"Invalid schema: {error}", code="invalid_schema") from error


def _filled(text: str, tokens: int | None) -> str:
    """Stretch JSON by white space to an exact number of tokens; a longer one stays, or it would not be JSON."""
    return text if tokens is None else text.ljust(tokens * _tokens.CHARACTERS_PER_TOKEN)


def _cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    ends = [at for at in (text.find(sequence) for sequence in stop) if at >= 0]
    return text[: min(ends)] if ends else text
