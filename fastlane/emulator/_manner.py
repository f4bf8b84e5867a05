"""How a model writes the answers that it was asked to give in a structure: exactly, or as models go wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from fastlane.emulator import _text, _tokens
from fastlane.emulator.settings import Settings, Share

from ..engine.settings import settings
from ..errors import ConfigurationError

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "exact": "the answer and nothing else, valid for its schema",
        "whitespace": "runs on in white space behind the answer",
        "whitespace_inside": "runs on in white space before the last brace, which never comes",
        "prose": "chats on behind the answer",
        "second": "writes one object more behind the answer, and another",
        "fence": "puts the answer into a Markdown fence",
        "talkative": "thinks aloud before an answer that no schema binds",
        "wrong_enum": "gives a value that the schema's enum does not hold",
        "overlong": "gives a string or an array that is longer than the schema allows",
        "truncated": "ends in the middle, as at a limit",
        "echo": "says the last message again; where a schema or a tool binds the answer, in its property `echo`",
        "tools": "calls the request's tools, one after the other, before it answers",
    }
)
# Ways to answer and not to go wrong: they do not end where a conversation asks again.
_HARMLESS = ("echo", "tools")
_RUNNING_ON = ("whitespace_inside", "whitespace", "prose", "second")
_TALKATIVE_TOKENS = 60
_OVER = 40
# The drawing refuses to draw longer ones.
_LONGEST_DRAWN = 9_000
_BRACES = ("{", "[")
_HOLDS_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_HOLDS_SCHEMAS = frozenset({"items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf"})


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ConfigurationError(f"unknown manner {kind!r}: the known ones are {', '.join(KINDS)}")
    return kind


@settings
class Manner(Settings):
    """One habit of a model. Raises ConfigurationError for an unknown kind or a setting that cannot work.

    `share` of the answers have it, and `repairs` of those that answer a conversation in which the model has just
    spoken, as one that asks again does. `tokens` is how far it runs on or thinks aloud: None is up to the limit of the
    request or of the model, or as many sentences as are usual.
    """

    kind: Annotated[str, AfterValidator(_known)]
    share: Share = 1.0
    repairs: Share = 0.0
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    @classmethod
    def parse(cls, text: str) -> Manner:
        """Read `kind[;setting=value…]`, e.g. `whitespace;share=0.2`."""
        kind, _, rest = text.partition(";")
        return cls(kind=kind.strip(), **cls.parsed(rest))

    def __str__(self) -> str:
        return self.kind + self.text_of_others("kind")


@lru_cache(maxsize=256)
def parse_manners(text: str) -> tuple[Manner, ...]:
    """Read a comma-separated list of manners; none is exact. Raises ConfigurationError."""
    manners = tuple(Manner.parse(part) for part in text.split(",") if part.strip())
    running_on = [manner.kind for manner in manners if manner.kind in _RUNNING_ON and manner.share == 1]
    if len(running_on) > 1:
        raise ConfigurationError(
            f"a model can run on in one way only, got {' and '.join(running_on)}: give each a share below 1"
        )
    return manners


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
        luck = {kind: random.random() for kind in KINDS if kind not in _HARMLESS}
        # Drawn last and only where there are some, so that without them all is as it was.
        for kind in _HARMLESS:
            luck[kind] = random.random() if any(manner.kind == kind for manner in manners) else 1.0
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

    def drawn_for(self, schema: Any) -> Any:
        """Return the schema that the answer will be valid for: the given one, or one that is misunderstood."""
        for kind, misunderstand in (("wrong_enum", _other_values), ("overlong", _longer)):
            if kind in self._of:
                misunderstood = _everywhere(schema, misunderstand)
                if misunderstood != schema:
                    self._shown[kind] = None
                schema = misunderstood
        return schema

    def echoing(self, schema: Any, body: Mapping[str, Any]) -> Any:
        """Return the schema with the text of the request's last message for its string properties called `echo`."""
        text = _last_text(body)
        if "echo" not in self._of or not text:
            return schema
        saying = _everywhere(schema, lambda one: _saying(one, text))
        if saying != schema:
            self._has("echo")
        return saying

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
        running_on = next((self._has(kind) for kind in _RUNNING_ON if kind in self._of), None)
        inside = running_on is not None and running_on.kind == "whitespace_inside"
        last = text[-1:] if inside else ""
        text = text.removesuffix(last)
        if self._has("fence"):
            text = f"```json\n{text}" if inside else f"```json\n{text}\n```"
        if running_on is None:
            return WrittenText(text, False)
        more = most - len(text)
        if running_on.tokens is not None:
            more = min(more, running_on.tokens * _tokens.CHARACTERS_PER_TOKEN)
        text += self._more(running_on.kind, max(0, more), again)
        if running_on.tokens is not None:
            text += last
        return WrittenText(text, running_on.tokens is None)

    def _more(self, kind: str, characters: int, again: Callable[[], str]) -> str:
        if kind == "second":
            said: list[str] = []
            length = 0
            while length < characters:
                said.append(f"\n{again()}")
                length += len(said[-1])
            return "".join(said)[:characters]
        if kind == "prose":
            tokens = -(-characters // _tokens.CHARACTERS_PER_TOKEN)
            return f"\n\n{_text.review(self._random, tokens=tokens)}"[:characters]
        return ("\n" * characters)[:characters]


def _last_text(body: Mapping[str, Any]) -> str:
    given = next((body[name] for name in ("messages", "input", "prompt") if name in body), "")
    last = given[-1] if isinstance(given, list) and given else given
    # What a tool has returned stands in a response's `output`.
    content = last.get("content", last.get("output")) if isinstance(last, Mapping) else last
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _called_before(body: Mapping[str, Any]) -> set[str]:
    """The tools that the model has called since the user's last words."""
    given = body.get("messages") or body.get("input")
    called: set[str] = set()
    for item in reversed(given if isinstance(given, list) else []):
        if not isinstance(item, Mapping) or item.get("role") == "user":
            break
        calls = [item] if item.get("type") == "function_call" else item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                called.add(str(function.get("name")))
    return called


def asks_again(body: Mapping[str, Any]) -> bool:
    """Whether the model has just spoken: behind what it said last are results of tools and one message, at most."""
    given = body.get("messages") or body.get("input")
    items: list[Any] = given if isinstance(given, list) else []
    asked = False
    for item in reversed(items):
        if not isinstance(item, Mapping):
            return False
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
    if not isinstance(properties, Mapping) or not isinstance(named, Mapping) or named.get("type") != "string":
        return schema
    most = named.get("maxLength")
    said = text[:most] if isinstance(most, int) else text
    return {**schema, "properties": {**properties, "echo": {"const": said}}}


def _other_values(schema: dict[str, Any]) -> dict[str, Any]:
    allowed = schema.get("enum")
    if not isinstance(allowed, list):
        return schema
    texts = [value for value in allowed if isinstance(value, str)]
    return {**schema, "enum": [_unlike(text, texts) for text in texts]} if texts else schema


def _unlike(text: str, texts: Collection[str]) -> str:
    while text in texts:
        text += "_other"
    return text


def _longer(schema: dict[str, Any]) -> dict[str, Any]:
    longer = dict(schema)
    for most, least in (("maxLength", "minLength"), ("maxItems", "minItems")):
        limit = schema.get(most)
        if isinstance(limit, int) and limit < _LONGEST_DRAWN:
            del longer[most]
            longer[least] = limit + _OVER
            longer.pop("format", None)
            longer.pop("uniqueItems", None)
    return longer
