"""How a model writes the answers that it was asked to give in a structure: exactly, or as models go wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, NamedTuple

from fastlane.emulator import _text, _tokens
from fastlane.emulator.settings import MANNERS, RUNNING_ON, Manner

# Ways to answer and not to go wrong: they do not end where a conversation asks again.
_HARMLESS = ("echo", "tools")
_TALKATIVE_TOKENS = 60
_BRACES = ("{", "[")
_HOLDS_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_HOLDS_SCHEMAS = frozenset({"items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"})


class WrittenText(NamedTuple):
    """What the model says in the end."""

    text: str
    cut: bool
    """Whether a limit ended it, and not the model."""


class Habits:
    """The manners that one answer has, drawn by seed."""

    def __init__(self, manners: Collection[Manner], random: Random, *, asked_again: bool) -> None:
        self._random = random
        # Drawn for every kind, so that a habit does not depend on which others the model has.
        luck = {kind: random.random() for kind in MANNERS}
        self._of = {
            manner.kind: manner
            for manner in manners
            if manner.kind != "exact"
            and luck[manner.kind] < (manner.repairs if asked_again and manner.kind not in _HARMLESS else manner.share)
        }
        self._shown: dict[str, None] = {}

    def _has(self, kind: str) -> Manner | None:
        manner = self._of.get(kind)
        if manner is not None:
            self._shown[kind] = None
        return manner

    @property
    def shown(self) -> tuple[str, ...]:
        """Those that the answer shows: a schema without an enum has no wrong value."""
        return tuple(self._shown)

    def drawn_for(self, schema: Any, body: Mapping[str, Any]) -> Any:
        """Return the schema that the answer will be valid for: the given one, one misunderstood, one that echoes."""
        text = _last_text(body)
        for kind, change in (("wrong_enum", _other_values), ("echo", lambda one: _saying(one, text))):
            changed = _everywhere(schema, change) if kind in self._of else schema
            if changed != schema:
                self._has(kind)
            schema = changed
        return schema

    def echoed(self, body: Mapping[str, Any]) -> str | None:
        """Return the text of the request's last message, if it is what the answer says."""
        return (_last_text(body) or None) if self._has("echo") else None

    def called(self, body: Mapping[str, Any], tools: Collection[str], forced: str | None) -> str | None:
        """Return the tool that the answer calls: one that is `forced`, or the first whose turn it is."""
        choice = body.get("tool_choice")
        if "tools" not in self._of or not tools or choice == "none" or (forced is not None and choice != "required"):
            return forced
        before = _called_before(body)
        turn = next((name for name in tools if name not in before), None)
        if turn is None:
            # All have had theirs: one that must call some calls the last again, which ends what waits for that.
            return None if forced is None else [*tools][-1]
        self._has("tools")
        return turn

    def write(self, text: str, again: Callable[[], str], *, bound: bool, tokens: int) -> WrittenText:
        """Return the answer in its manner, of at most `tokens` tokens where it runs on.

        `bound` says whether a schema binds it; `again` draws another answer. Free text knows no manner but talkative.
        """
        cut = False
        if bound or text.startswith(_BRACES):
            text, cut = self._structured(text, again, tokens * _tokens.CHARACTERS_PER_TOKEN)
        talkative = None if bound else self._has("talkative")
        if talkative:
            wanted = talkative.tokens or _TALKATIVE_TOKENS
            text = f"{_text.thinking_aloud(self._random, tokens=wanted)}\n\n{text}"
        return WrittenText(text, cut)

    def _structured(self, text: str, again: Callable[[], str], most: int) -> WrittenText:
        if self._has("truncated"):
            # In whole tokens; at least one is said, and at least one is not.
            half = max(1, _tokens.count(text) // 2) * _tokens.CHARACTERS_PER_TOKEN
            return WrittenText(text[:half], True)
        running_on = next((self._has(kind) for kind in RUNNING_ON if kind in self._of), None)
        if self._has("fence"):
            text = f"```json\n{text}\n```"
        if running_on is None:
            return WrittenText(text, False)
        more = most - len(text)
        if running_on.tokens is not None:
            more = min(more, running_on.tokens * _tokens.CHARACTERS_PER_TOKEN)
        return WrittenText(text + self._more(running_on.kind, max(0, more), again), running_on.tokens is None)

    def _more(self, kind: str, characters: int, again: Callable[[], str]) -> str:
        if kind == "second":
            said = ""
            while len(said) < characters:
                said += f"\n{again()}"
            return said[:characters]
        if kind == "prose":
            tokens = -(-characters // _tokens.CHARACTERS_PER_TOKEN)
            return f"\n\n{_text.review(self._random, tokens=tokens)}"[:characters]
        return "\n" * characters


def _last_text(body: Mapping[str, Any]) -> str:
    given = next((body[name] for name in ("messages", "input", "prompt") if name in body), "")
    last = given[-1] if isinstance(given, list) and given else given
    # What a tool has returned stands in a response's `output`.
    content = last.get("content", last.get("output")) if isinstance(last, Mapping) else last
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages or items of a request, the last one first, as far as they are objects."""
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


def _everywhere(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Change a schema and all that are in it; what is only called like a keyword stays."""
    if isinstance(schema, list):
        return [_everywhere(each, change) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    changed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _HOLDS_SCHEMAS_BY_NAME and isinstance(value, Mapping):
            changed[keyword] = {name: _everywhere(each, change) for name, each in value.items()}
        else:
            changed[keyword] = _everywhere(value, change) if keyword in _HOLDS_SCHEMAS else value
    return change(changed)


def _saying(schema: dict[str, Any], text: str) -> dict[str, Any]:
    properties = schema.get("properties")
    named = properties.get("echo") if isinstance(properties, Mapping) else None
    if not text or not isinstance(named, Mapping) or named.get("type") != "string":
        return schema
    most = named.get("maxLength")
    said = text[:most] if isinstance(most, int) else text
    return {**schema, "properties": {**schema["properties"], "echo": {"const": said}}}


def _other_values(schema: dict[str, Any]) -> dict[str, Any]:
    allowed = schema.get("enum")
    texts = [value for value in allowed if isinstance(value, str)] if isinstance(allowed, list) else []
    return {**schema, "enum": [_unlike(text, texts) for text in texts]} if texts else schema


def _unlike(text: str, texts: Collection[str]) -> str:
    while text in texts:
        text += "_other"
    return text
