"""Prompts whose parts say how long they stay as they are, laid out so that a provider's cache can keep what does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastlane.errors import ConfigurationError
from fastlane.protocol.prompt_marks import (
    DIVISIBLE_ROLES,
    LEADING_ROLES,
    Declared as Declared,
    Marked as Marked,
    Placement,
    marked,
    session as session,
    stable as stable,
    unmarked as unmarked,
    volatile as volatile,
)

if TYPE_CHECKING:
    from .volatile import VolatileKind

_ORDER: Final[tuple[Placement, ...]] = ("stable", "session", "volatile")


# Layout


def arrange(messages: Sequence[Any], declared: Sequence[Declared]) -> tuple[list[Any], tuple[Placement, ...]]:
    """Return the messages in order (stable, session, volatile), and the place of each.

    What nothing was declared of stays where it is: leading system and developer messages with what is stable, all
    others with the conversation. The result of a tool stays with its call, and an assistant's unmarked message that
    ends the list, which the model is to go on with, stays at its end. A message whose parts belong to different places
    is divided: the same role and the same parts, each once. Messages and parts are the caller's own objects; none is
    changed. `declared` says of each message what `unmarked` returns; of another number of messages it says nothing.
    """
    laid: dict[Placement, list[Any]] = {place: [] for place in _ORDER}
    for message, place in zip(messages, placed(messages, declared), strict=True):
        if isinstance(place, str):
            laid[place].append(message)
            continue
        parts = message["content"]
        for name in _ORDER:
            if name in place:
                here = [part for part, its_place in zip(parts, place, strict=True) if its_place == name]
                laid[name].append({**message, "content": here})
    arranged = [message for place in _ORDER for message in laid[place]]
    return arranged, tuple(place for place in _ORDER for _ in laid[place])


def placed(messages: Sequence[Any], declared: Sequence[Declared]) -> list[Placement | tuple[Placement, ...]]:
    """Return where each message belongs, in the order given; if its parts belong to different places, each of those."""
    places = declared if len(declared) == len(messages) else (None,) * len(messages)
    found: list[Placement | tuple[Placement, ...]] = []
    for message, place, whole in zip(messages, places, _wholes(messages, places), strict=True):
        content = _get(message, "content")
        is_divisible = isinstance(message, dict) and _get(message, "role") in DIVISIBLE_ROLES
        if isinstance(place, tuple) and is_divisible and isinstance(content, list) and len(content) == len(place) > 0:
            each = tuple(one or whole for one in place)
            found.append(each if len(set(each)) > 1 else each[0])
        else:
            found.append(whole)
    return found


def _wholes(messages: Sequence[Any], places: Sequence[Declared]) -> list[Placement]:
    """Return the place of each message as a whole."""
    wholes: list[Placement] = []
    exchange: Placement | None = None  # where the latest calls of tools belong, and so their results
    leads, previous = True, None
    for message, declared in zip(messages, places, strict=True):
        own = declared if isinstance(declared, str) else None
        role, kind = _get(message, "role"), str(_get(message, "type"))
        leads = leads and (own is not None or role in LEADING_ROLES)
        place: Placement = own or ("stable" if leads else "session")
        if role in ("tool", "function") or kind.endswith("_output"):
            place = exchange or own or "session"
        elif _is_item(message) or _get(message, "tool_calls") or _get(message, "function_call") is not None:
            # Calls that were made at once, and the reasoning before them, are one.
            if exchange is None or not (_is_item(message) and _is_item(previous)):
                exchange = own or "session"
            place = exchange
        elif role == "assistant" and _get(previous, "type") == "reasoning":
            place = wholes[-1]
        wholes.append(place)
        previous = message
    if messages and places[-1] is None and _get(previous, "role") == "assistant" and not _get(previous, "tool_calls"):
        # Also if there is nothing volatile: what is added later goes before this.
        wholes[-1] = "volatile"
    return wholes


def _is_item(message: Any) -> bool:
    """Whether this is an item of `input` that is no message, such as a call or reasoning."""
    return (
        _get(message, "role") is None and isinstance(_get(message, "type"), str) and _get(message, "type") != "message"
    )


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


# The prompt of a call


class Prompt(list[Any]):
    """A list of messages in order: what is the same in all calls, what is in this conversation, what is in this call.

    It goes wherever a list of messages goes. Each of the three takes texts and messages, one or several: a stable or
    volatile text becomes a system message, a text of the session a user's. Messages may have marked parts, which lays
    each part where it belongs. Nothing is lost, doubled or rewritten. What is appended later belongs to the session;
    `PromptCache` puts what is volatile behind it again. Raises ConfigurationError for anything else.
    """

    __slots__ = ()

    def __init__(self, *, stable: Any = (), session: Any = (), volatile: Any = ()) -> None:
        given: dict[Placement, Any] = {"stable": stable, "session": session, "volatile": volatile}
        plain, declared = unmarked([_placed(part, place) for place in _ORDER for part in _several(given[place])])
        super().__init__(
            Marked(message, place) if isinstance(message, Mapping) else message
            for message, place in zip(*arrange(plain, declared or ()), strict=True)
        )


def _several(given: Any) -> list[Any]:
    """Return what one of the three places was given, as a list."""
    if given is None:
        return []
    is_one = isinstance(given, str | bytes | Mapping) or hasattr(given, "model_dump")
    return list(given) if isinstance(given, Iterable) and not is_one else [given]


def _placed(part: Any, placement: Placement) -> Any:
    # An answer's own message is no dictionary, and what is not marked belongs to the session anyway.
    return part if placement == "session" and hasattr(part, "model_dump") else marked(part, placement)


def _objects(given: Any, taker: str, noun: str) -> list[Any]:
    """Return the messages or tools that `taker` was given. Raises ConfigurationError, which quotes nothing."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{taker} takes a list of {noun}, got {type(given).__name__}: put it into a list")
    listed = list(given)
    for number, one in enumerate(listed):
        # openai sends mappings and pydantic's objects as JSON objects.
        if not (isinstance(one, Mapping) or hasattr(one, "model_dump") or hasattr(one, "__fields__")):
            raise ConfigurationError(
                f"{taker} takes a list of {noun}, each a dictionary, got {type(one).__name__} for {noun}[{number}]"
            )
    return listed


# Finding what changes

_CALLED: Final[Mapping[VolatileKind, str]] = {
    "timestamp": "a time or date", "uuid": "a UUID", "counter": "a counter", "random": "a random value",
}  # fmt: skip
_REMEDY: Final = "leave it out, or say it in a volatile message"
# A value that a text names as an example is part of that text.
_EXAMPLE = re.compile(r"(?:such as|e\.g\.|for example|for instance|example:)[^.;()\n]*$", re.IGNORECASE)
_EXAMPLE_CHARACTERS: Final = 120
# Base64 of pictures, sounds and files, and what a schema shows of its data.
_UNREAD: Final = frozenset({"data", "file_data", "encrypted_content", "example", "examples"})


class LintFinding(NamedTuple):
    """A value in a stable part of a prompt that is likely to differ in another call."""

    path: str
    """The text that holds it: "messages[0].content", "tools[2].function.description"."""
    kind: VolatileKind
    start: int
    """Characters of that text before the value."""
    end: int
    """Characters of that text up to its end."""
    message: str
    """What it is, where, and what to do, in one sentence that quotes nothing."""


def lint(
    messages: Iterable[Any], tools: Iterable[Any] | None = None, response_format: Mapping[str, Any] | None = None
) -> list[LintFinding]:
    """Find times, UUIDs, counters and random values in the stable parts of a prompt, in the order of reading.

    Stable are tools, the response format, leading system and developer messages, and what is marked stable. Messages
    are named by their place in the list as it was given. By patterns: a finding may be a constant, and a name that
    changes is not found. Raises ConfigurationError if `messages` or `tools` is no list of such.
    """
    messages = _objects(messages, "fastlane.prompts.lint()", "messages")
    listed = [] if tools is None else _objects(tools, "fastlane.prompts.lint(tools=...)", "tools")
    findings = [found for number, tool in enumerate(listed) for found in _findings(tool, f"tools[{number}]", _REMEDY)]
    findings += _findings(response_format, "response_format", _REMEDY)
    plain, declared = unmarked(messages)
    for number, (message, place) in enumerate(zip(plain, placed(plain, declared or ()), strict=True)):
        path, content = f"messages[{number}].content", _get(message, "content")
        parts = [(path, content)] if place == "stable" else []
        if not isinstance(place, str):
            parts = [(f"{path}[{at}]", content[at]) for at, of_part in enumerate(place) if of_part == "stable"]
        for its_path, part in parts:
            findings += _findings(part, its_path, "declare this part volatile, or put it behind the conversation")
    return findings


def _findings(value: Any, path: str, remedy: str) -> Iterator[LintFinding]:
    from .volatile import find

    for its_path, text in _texts(value, path):
        for kind, start, end in find(text):
            if _EXAMPLE.search(text, max(0, start - _EXAMPLE_CHARACTERS), start):
                continue
            message = (
                f"{_CALLED[kind]} stands at characters {start:,} to {end:,} of {its_path}: once it differs, nothing "
                f"behind it is read from the cache; {remedy}"
            )
            yield LintFinding(its_path, kind, start, end, message)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all texts inside a value with their paths, but those that no model reads as text, or that are data."""
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield path, value
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if name not in _UNREAD or isinstance(member, Mapping):
                yield from _texts(member, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value):
            yield from _texts(member, f"{path}[{number}]")
