"""Point at what is likely to differ from call to call in what should be the same in all calls; nothing is moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.protocol.prompt_marks import unmarked

from ._arrange import placed
from ._checks import format_of, messages_of, tools_of
from ._prompt import Prompt

if TYPE_CHECKING:
    from ..volatile import VolatileKind

_CALLED: Mapping[VolatileKind, str] = {
    "timestamp": "a time or date",
    "uuid": "a UUID",
    "counter": "a counter",
    "random": "a random value",
}
_REMEDY = {
    "stable": "declare this part volatile, or put it behind the conversation",
    "tools": "leave it out, or say it in a volatile message",
    "response_format": "leave it out, or say it in a volatile message",
}

# A value that a text names as an example is part of that text.
_EXAMPLE = re.compile(r"(?:such as|e\.g\.|for example|for instance|example:)[^.;()\n]*$", re.IGNORECASE)
_EXAMPLE_CHARACTERS = 120
# Base64 of pictures, sounds and files, and what a schema shows of its data.
_UNREAD = frozenset({"data", "file_data", "encrypted_content", "example", "examples"})


class Finding(NamedTuple):
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
) -> list[Finding]:
    """Find times, UUIDs, counters and random values in the stable parts of a prompt, in the order of reading.

    Stable are tools, the response format, leading system and developer messages, and what is marked stable; of a
    `Prompt`, its own tools and format unless others are given. Messages are named by their place in the list as it was
    given. By patterns: a finding may be a constant, and a name that changes is not found. Raises ConfigurationError
    where `messages` or `tools` is no list of such, and for a `response_format` that cannot be one.
    """
    messages = messages_of("fastlane.prompts.lint()", messages)
    tools = tools_of("fastlane.prompts.lint(tools=...)", tools)
    response_format = format_of("fastlane.prompts.lint(response_format=...)", response_format)
    if isinstance(messages, Prompt):
        tools = messages.tools if tools is None else tools
        response_format = messages.response_format if response_format is None else response_format
    findings: list[Finding] = []
    for number, tool in enumerate(tools or ()):
        findings += _findings(tool, f"tools[{number}]", "tools")
    findings += _findings(response_format, "response_format", "response_format")
    for path, part in _stable(messages):
        findings += _findings(part, path, "stable")
    return findings


def _stable(messages: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """What is stable of each message, by its path in the list as it was given."""
    plain, declared = unmarked(messages)
    for number, (message, place) in enumerate(zip(plain, placed(plain, declared or ()), strict=True)):
        path = f"messages[{number}].content"
        content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", None)
        if place == "stable":
            yield path, content
        elif not isinstance(place, str):
            for part_number, (part, of_part) in enumerate(zip(content or (), place, strict=True)):
                if of_part == "stable":
                    yield f"{path}[{part_number}]", part


def _findings(value: Any, path: str, where: str) -> Iterator[Finding]:
    from ..volatile import find

    for its_path, text in _texts(value, path):
        for kind, start, end in find(text):
            if _EXAMPLE.search(text, max(0, start - _EXAMPLE_CHARACTERS), start):
                continue
            message = (
                f"{_CALLED[kind]} stands at characters {start:,} to {end:,} of {its_path}: once it differs, nothing "
                f"behind it is read from the cache; {_REMEDY[where]}"
            )
            yield Finding(its_path, kind, start, end, message)


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """All texts inside a value by their paths, but those that no model reads as text, or that are data."""
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
