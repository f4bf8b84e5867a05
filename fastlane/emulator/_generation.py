"""What the model will say to a prompt: its pieces, one per token, and why it ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from fastlane.emulator import _text, _tokens
from fastlane.emulator._manner import Habits, WrittenText, asks_again
from fastlane.emulator._prompt import GenerationRequest, Schema
from fastlane.emulator._request import ApiError, Overrides
from fastlane.emulator._schema import value_for
from fastlane.emulator.settings import ProviderModel, parse_manners

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedChoice:
    """One answer: reasoning pieces first, then the pieces of the text or of the tool's arguments."""

    index: int
    reasoning: tuple[str, ...]
    pieces: tuple[str, ...]
    tool: str | None
    finish_reason: FinishReason
    manner: tuple[str, ...] = ()
    """The habits that the answer has; none of an exact one."""

    @property
    def tokens(self) -> int:
        """How many tokens the answer costs, reasoning included."""
        return len(self.reasoning) + len(self.pieces)


def generate(
    prompt: GenerationRequest, overrides: Overrides, model: ProviderModel, *, seed: int
) -> tuple[GeneratedChoice, ...]:
    """Return all choices; the same for the same seed and prompt."""
    if prompt.prewarm:
        return (GeneratedChoice(index=0, reasoning=(), pieces=(), tool=None, finish_reason="stop"),)
    return tuple(_choice(index, prompt, overrides, model, seed=seed) for index in range(prompt.choices))


def _choice(
    index: int, prompt: GenerationRequest, overrides: Overrides, model: ProviderModel, *, seed: int
) -> GeneratedChoice:
    digest = _tokens.fingerprint(prompt.text)
    random = Random(f"{seed}:text:{digest}:{index}")
    # Drawn apart from the text, so that an answer in any manner begins as the exact one does.
    drawn_by = digest if overrides.draw is None else f"draw:{overrides.draw}"
    manners = parse_manners(model.manner) if overrides.manner is None else overrides.manner
    habits = Habits(manners, Random(f"{seed}:manner:{drawn_by}:{index}"), asked_again=asks_again(prompt.body))
    thinking = overrides.reasoning_tokens
    if thinking is None:
        thinking = model.reasoning_tokens if prompt.reasoning else 0
    tool = prompt.forced_tool
    if tool is None and overrides.tool_call in prompt.tools:
        tool = overrides.tool_call
    tool = habits.called(prompt.body, prompt.tools, tool)
    limit = prompt.output_limit
    most = min(model.run_on_tokens if limit is None else limit, model.context_window_tokens)
    written = _written(prompt, overrides, model, tool, random, habits, tokens=max(1, most - thinking))
    stopped = _cut_at_stop(written.text, prompt.stop) if tool is None else written.text
    reasoning = _tokens.split(_text.review(random, tokens=thinking))
    pieces = _tokens.split(stopped)
    finish: FinishReason = "stop" if tool is None else "tool_calls"
    if written.cut and stopped == written.text:
        finish = "length"
    if limit is not None and limit < len(reasoning) + len(pieces):
        reasoning = reasoning[:limit]
        pieces = pieces[: limit - len(reasoning)]
        finish = "length"
    return GeneratedChoice(
        index=index, reasoning=reasoning, pieces=pieces, tool=tool, finish_reason=finish, manner=habits.shown
    )


def _written(
    prompt: GenerationRequest,
    overrides: Overrides,
    model: ProviderModel,
    tool: str | None,
    random: Random,
    habits: Habits,
    *,
    tokens: int,
) -> WrittenText:
    """Return what the model says; `tokens` is how many it has where it runs on."""
    schema = prompt.tools[tool] if tool is not None else prompt.schema
    given = overrides.output_text
    if tool is None and given is not None:
        return habits.write(given, lambda: given, bound=schema is not None, tokens=tokens)
    if schema is None:
        echoed = habits.echoed(prompt.body)
        if echoed is not None:
            return WrittenText(echoed, False)
        wanted = model.default_output_tokens if overrides.output_tokens is None else overrides.output_tokens
        return habits.write(_text.review(random, tokens=wanted), str, bound=False, tokens=tokens)
    if tool is None and (isinstance(schema, bool) or not schema):
        schema = _ANY_OBJECT
    text = _drawn(habits.drawn_for(schema, prompt.body), random)
    if overrides.output_tokens is not None:
        # Stretched by white space to an exact number of tokens; a longer one stays, or it would not be JSON.
        text = text.ljust(overrides.output_tokens * _tokens.CHARACTERS_PER_TOKEN)
    return habits.write(text, lambda: _drawn(schema, random), bound=True, tokens=tokens)


_ANY_OBJECT: Mapping[str, object] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "confidence": {"type": "number"}},
    "required": ["summary", "confidence"],
}


def _drawn(schema: Schema, random: Random) -> str:
    try:
        return json.dumps(value_for(schema, random), separators=(",", ":"))
    # A schema that is none ("minimum": "x") can trip the drawing at any keyword; it is the request's mistake.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ApiError(400, f"Invalid schema: {error}", code="invalid_schema") from error


def _cut_at_stop(text: str, stop: tuple[str, ...]) -> str:
    ends = [at for at in (text.find(sequence) for sequence in stop) if at >= 0]
    return text[: min(ends)] if ends else text
