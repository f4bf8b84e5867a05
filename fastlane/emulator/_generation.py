"""What the model says to a prompt: its pieces, one per token, exactly or as models go wrong, and why it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from fastlane.emulator import _tokens
from fastlane.emulator._prompt import GenerationRequest, Schema
from fastlane.emulator._request import ApiError, Overrides
from fastlane.emulator._schema import Reader, value_for
from fastlane.emulator.settings import MANNERS, RUNNING_ON, Manner, ProviderModel, parse_manners

FinishReason = Literal["stop", "length", "tool_calls"]

_SUBJECTS = (
    "this function", "the retry loop", "the cache key", "the test", "the error path", "the parser", "this default",
    "the connection pool", "the docstring", "the lock", "the return type", "the second branch", "the caller",
)  # fmt: skip
_VERBS = (
    "hides", "repeats", "ignores", "depends on", "should name", "never checks", "leaks", "duplicates", "assumes",
    "handles", "rewrites", "can drop", "ought to test",
)  # fmt: skip
_OBJECTS = (
    "an empty input", "the timeout", "the caller's intent", "a closed socket", "the unit of the value",
    "a second writer", "the first failure", "the happy path", "an unused import", "the order of arguments",
    "a race", "the exit code", "the previous release",
)  # fmt: skip
_ENDS = (".", ".", "; rename it.", ", so add a test.", " when the queue is full.", "; see the comment above.")
# Ways to answer and not to go wrong: they do not end where a conversation asks again.
_HARMLESS = ("echo", "tools")
_TALKATIVE_TOKENS = 60
_ANY_OBJECT: Mapping[str, object] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "confidence": {"type": "number"}},
    "required": ["summary", "confidence"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedChoice:
    """One answer: reasoning pieces first, then the pieces of the text or of the tools' arguments."""

    index: int
    reasoning: tuple[str, ...]
    pieces: tuple[str, ...]
    finish_reason: FinishReason
    tools: tuple[str, ...] = ()
    """The tools that it calls."""
    owners: tuple[int, ...] = ()
    """Of each piece, which of the calls it belongs to."""
    manner: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return len(self.reasoning) + len(self.pieces)


def generate(
    prompt: GenerationRequest, overrides: Overrides, model: ProviderModel, *, seed: int
) -> tuple[GeneratedChoice, ...]:
    if prompt.prewarm:
        return (GeneratedChoice(index=0, reasoning=(), pieces=(), finish_reason="stop"),)
    return tuple(_choice(index, prompt, overrides, model, seed=seed) for index in range(prompt.choices))


def _choice(
    index: int, prompt: GenerationRequest, overrides: Overrides, model: ProviderModel, *, seed: int
) -> GeneratedChoice:
    digest = _tokens.fingerprint(prompt.text if prompt.asked is None else prompt.asked)
    random = Random(f"{seed}:text:{digest}:{index}")
    # Drawn apart from the text, so that an answer in any manner begins as the exact one does.
    drawn_by = digest if overrides.draw is None else f"draw:{overrides.draw}"
    manners = parse_manners(model.manner) if overrides.manner is None else overrides.manner
    habits = _Habits(manners, Random(f"{seed}:manner:{drawn_by}:{index}"), prompt.body)
    thinking = overrides.reasoning_tokens
    if thinking is None:
        thinking = model.reasoning_tokens if prompt.reasoning else 0
    named = overrides.tool_call or ""
    wanted = [name for name in re.split("[,&]", named) if name in prompt.tools]
    tool = habits.called(prompt.tools, prompt.forced_tool or next(iter(wanted), None))
    tools = tuple(wanted) if len(wanted) > 1 else () if tool is None else (tool,)
    limit = prompt.output_limit
    most = min(model.run_on_tokens if limit is None else limit, model.context_window_tokens)
    texts, cut = [], False
    for each in tools or (None,):
        text, is_cut = _written(prompt, overrides, model, each, random, habits, tokens=max(1, most - thinking))
        texts.append(text)
        cut = cut or is_cut
    finish: FinishReason = "length" if cut else "tool_calls" if tools else "stop"
    ends = [at for at in map(texts[0].find, prompt.stop) if at >= 0]
    if ends and not tools:
        texts, finish = [texts[0][: min(ends)]], "stop"
    texts[0] = texts[0].removeprefix(prompt.begun)
    reasoning = _tokens.split(review(random, tokens=thinking))
    written = [(at, owner, piece) for owner, text in enumerate(texts) for at, piece in enumerate(_tokens.split(text))]
    if "&" in named:
        written.sort()
    if limit is not None and limit < len(reasoning) + len(written):
        reasoning, finish = reasoning[:limit], "length"
        written = written[: limit - len(reasoning)]
    return GeneratedChoice(
        index=index,
        reasoning=reasoning,
        pieces=tuple(piece for _, _, piece in written),
        finish_reason=finish,
        tools=tools,
        owners=tuple(owner for _, owner, _ in written),
        manner=tuple(habits.shown),
    )


def _written(
    prompt: GenerationRequest,
    overrides: Overrides,
    model: ProviderModel,
    tool: str | None,
    random: Random,
    habits: _Habits,
    *,
    tokens: int,
) -> tuple[str, bool]:
    """Return what the model says, and whether a limit ended it; `tokens` is how many it has where it runs on."""
    schema = prompt.tools[tool] if tool is not None else prompt.schema
    given = overrides.output_text
    if tool is None and given is not None:
        return habits.write(given, lambda: given, bound=schema is not None, tokens=tokens)
    if schema is None:
        if habits.last_text and habits.has("echo"):
            return habits.last_text, False
        wanted = model.default_output_tokens if overrides.output_tokens is None else overrides.output_tokens
        return habits.write(review(random, tokens=wanted), str, bound=False, tokens=tokens)
    if tool is None and (isinstance(schema, bool) or not schema):
        schema = _ANY_OBJECT
    text = _drawn(schema, random, habits.misread)
    if overrides.output_tokens is not None:
        # Stretched by white space to an exact number of tokens; a longer one stays, or it would not be JSON.
        text = text.ljust(overrides.output_tokens * _tokens.CHARACTERS_PER_TOKEN)
    return habits.write(text, lambda: _drawn(schema, random), bound=True, tokens=tokens)


def _drawn(schema: Schema, random: Random, read: Reader = lambda schema: schema) -> str:
    try:
        return json.dumps(value_for(schema, random, read), separators=(",", ":"))
    # A schema that is none ("minimum": "x") can trip the drawing at any keyword; it is the request's mistake.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ApiError(400, f"Invalid schema: {error}", code="invalid_schema") from error


def review(random: Random, *, tokens: int) -> str:
    wanted = tokens * _tokens.CHARACTERS_PER_TOKEN
    sentences: list[str] = []
    length = 0
    while length < wanted:
        subject = random.choice(_SUBJECTS)
        words = f"{subject[0].upper()}{subject[1:]} {random.choice(_VERBS)} {random.choice(_OBJECTS)}"
        sentence = f"{words}{random.choice(_ENDS)} "
        sentences.append(sentence)
        length += len(sentence)
    return "".join(sentences)[:wanted]


class _Habits:
    """The manners that one answer has, drawn by seed."""

    def __init__(self, manners: Collection[Manner], random: Random, body: Mapping[str, Any]) -> None:
        self._random = random
        self._body = body
        self.last_text = _last_text(body)
        self.shown: dict[str, None] = {}
        """Those that the answer shows: a schema without an enum has no wrong value."""
        again = asks_again(body)
        # Drawn for every kind, so that a habit does not depend on which others the model has.
        luck = {kind: random.random() for kind in MANNERS}
        self._of = {
            manner.kind: manner
            for manner in manners
            if manner.kind != "exact"
            and luck[manner.kind] < (manner.repairs if again and manner.kind not in _HARMLESS else manner.share)
        }

    def has(self, kind: str) -> Manner | None:
        """Return a habit, which the answer then shows."""
        manner = self._of.get(kind)
        if manner is not None:
            self.shown[kind] = None
        return manner

    def misread(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema that a value is drawn for: the given one, one misunderstood, or one that echoes."""
        texts = [value for value in schema.get("enum") or () if isinstance(value, str)]
        if texts and self.has("wrong_enum"):
            # Longer than every right one.
            schema = {**schema, "enum": [f"{max(texts, key=len)}_other"] * len(texts)}
        echo = (schema.get("properties") or {}).get("echo")
        if self.last_text and isinstance(echo, Mapping) and echo.get("type") == "string" and self.has("echo"):
            properties = {**schema["properties"], "echo": {"const": self.last_text[: echo.get("maxLength")]}}
            schema = {**schema, "properties": properties}
        return schema

    def called(self, tools: Collection[str], forced: str | None) -> str | None:
        """Return the tool that the answer calls: one that is `forced`, or the first whose turn it is."""
        choice = self._body.get("tool_choice")
        if "tools" not in self._of or not tools or choice == "none" or (forced is not None and choice != "required"):
            return forced
        before = _called_before(self._body)
        turn = next((name for name in tools if name not in before), None)
        if turn is None:
            # All were called: one that must call some calls the last again, which ends what waits for that.
            return None if forced is None else [*tools][-1]
        self.has("tools")
        return turn

    def write(self, text: str, again: Callable[[], str], *, bound: bool, tokens: int) -> tuple[str, bool]:
        """Return the answer in its manner, at most `tokens` long where it runs on, and whether a limit ended it."""
        cut = False
        if bound or text.startswith(("{", "[")):
            text, cut = self._structured(text, again, tokens * _tokens.CHARACTERS_PER_TOKEN)
        talkative = None if bound else self.has("talkative")
        if talkative:
            wanted = talkative.tokens or _TALKATIVE_TOKENS
            text = f"After careful consideration: {review(self._random, tokens=wanted)}\n\n{text}"
        return text, cut

    def _structured(self, text: str, again: Callable[[], str], most: int) -> tuple[str, bool]:
        if self.has("truncated"):
            # In whole tokens; at least one is said, and at least one is not.
            return text[: max(1, _tokens.count(text) // 2) * _tokens.CHARACTERS_PER_TOKEN], True
        running_on = next((self.has(kind) for kind in RUNNING_ON if kind in self._of), None)
        if self.has("fence"):
            text = f"```json\n{text}\n```"
        if running_on is None:
            return text, False
        if running_on.tokens is not None:
            most = min(most, len(text) + running_on.tokens * _tokens.CHARACTERS_PER_TOKEN)
        most = max(most, len(text))
        if running_on.kind == "prose":
            text += f"\n\n{review(self._random, tokens=-(-(most - len(text)) // _tokens.CHARACTERS_PER_TOKEN))}"
        while len(text) < most:
            text += "\n" * (most - len(text)) if running_on.kind == "whitespace" else f"\n{again()}"
        return text[:most], running_on.tokens is None


def _last_text(body: Mapping[str, Any]) -> str:
    given = next((body[name] for name in ("messages", "input", "prompt") if name in body), "")
    last = given[-1] if isinstance(given, list) and given else given
    # What a tool has returned stands in a response's `output`.
    content = last.get("content", last.get("output")) if isinstance(last, Mapping) else last
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = body.get("messages") or body.get("input")
    items = given if isinstance(given, list) else []
    return [item for item in reversed(items) if isinstance(item, Mapping)]


def _called_before(body: Mapping[str, Any]) -> set[str]:
    """Return the tools that the model has called since the user's last words."""
    called: set[str] = set()
    for item in _items(body):
        if item.get("role") == "user":
            break
        calls = [item] if item.get("type") == "function_call" else item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                called.add(str(function.get("name")))
    return called


def asks_again(body: Mapping[str, Any]) -> bool:
    """Return whether the model has just spoken: what follows is results of tools and one message, at most."""
    asked = False
    for item in _items(body):
        role, kind = item.get("role"), str(item.get("type", ""))
        if role == "assistant" or kind.endswith("_call"):
            return True
        if role == "user" and not asked:
            asked = True
        elif role not in ("tool", "function") and not kind.endswith("_call_output"):
            return False
    return False
