"""A prompt as a row of segments in the order in which a provider reads it, each known by a number instead of its text.

The numbers are Python's own hashes: keyed per process, cached in every string, and so nearly free for a history that is
sent again. They never leave the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

_LEADING_ROLES = ("system", "developer")
# What stands in a body by itself, and not in a row.
_SINGLE = frozenset({"response_format", "text.format", "instructions", "prompt"})
# Beyond this, what orjson refused is not looked at: it may contain itself.
_MAX_DEPTH = 64


class Outline:
    """The segments of one prompt: their order, their digests and their sizes, and nothing of their text."""

    __slots__ = ("digests", "leading", "sections", "single_input", "sizes")

    sections: tuple[tuple[str, int], ...]
    """Where segments come from and how many: (("tools", 14), ("response_format", 1), ("messages", 37))."""
    digests: tuple[int, ...]
    """64 bits for each segment. Equal segments have equal digests in this process."""
    sizes: tuple[int, ...]
    """Characters of each segment, roughly as the model is shown it."""
    leading: int
    """Segments before the first that is neither a tool nor a format nor a system or developer message at the front."""
    single_input: bool
    """Whether `input` is a text and not a list of items."""

    def __init__(
        self,
        sections: tuple[tuple[str, int], ...],
        digests: tuple[int, ...],
        sizes: tuple[int, ...],
        leading: int,
        single_input: bool = False,
    ) -> None:
        self.sections = sections
        self.digests = digests
        self.sizes = sizes
        self.leading = leading
        self.single_input = single_input

    def __len__(self) -> int:
        return len(self.digests)

    def without_last(self, count: int) -> Outline:
        """The outline without so many segments at its end."""
        kept = max(0, len(self.digests) - count)
        sections: list[tuple[str, int]] = []
        start = 0
        for name, members in self.sections:
            sections.append((name, max(0, min(members, kept - start))))
            start += members
        leading = min(self.leading, kept)
        return Outline(tuple(sections), self.digests[:kept], self.sizes[:kept], leading, self.single_input)

    def path(self, index: int) -> str:
        """Where a segment stands in the body: "tools[3]", "response_format", "messages[5]", "input[2]".

        One past the last is where the next message would stand.
        """
        start, path = 0, ""
        for name, count in self.sections:
            single = name in _SINGLE or (name == "input" and self.single_input)
            path = name if single else f"{name}[{index - start}]"
            if index < start + count:
                break
            start += count
        return path

    def span(self, name: str) -> tuple[int, int]:
        """The first segment of a section and the one behind its last; where there is no such section, (0, 0)."""
        start = 0
        for section, count in self.sections:
            if section == name:
                return start, start + count
            start += count
        return 0, 0


# Digests and sizes of lists of tools, by the hash of their bytes: an application has few, and sends them every time.
_listed: dict[int, tuple[list[int], list[int]]] = {}
_MOST_LISTED = 256


def outline(endpoint: str, body: Mapping[str, Any], tools_written: bytes | None = None) -> tuple[Outline, list[Any]]:
    """The outline of a request's prompt, and its segments: the caller's own objects, not to be kept or changed.

    About 0.3 us for a message of role and content whose text has been hashed before, and 1 us for one with tool calls.
    Odd bodies never raise: what is no list or mapping is one segment. `tools_written` are the body's tools as JSON,
    where they were written already: tools that were seen before need not be looked at again then.
    """
    sections: list[tuple[str, int]] = []
    values: list[Any] = []
    digests: list[int] = []
    sizes: list[int] = []

    tools = body.get("tools")
    if tools and tools_written and type(tools) is list:
        _add_listed(tools, tools_written, sections, values, digests, sizes)
    elif tools:
        _add("tools", tools, sections, values, digests, sizes)
    if endpoint.endswith("responses") or ("messages" not in body and "input" in body):
        text = body.get("text")
        form = text.get("format") if isinstance(text, Mapping) else None
        if form is not None:
            _add_single("text.format", form, sections, values, digests, sizes)
        leading = len(digests)
        instructions = body.get("instructions")
        if instructions is not None:
            _add_single("instructions", instructions, sections, values, digests, sizes)
            leading += 1
        rest, name = body.get("input"), "input"
    else:
        functions = body.get("functions")
        if functions:
            _add("functions", functions, sections, values, digests, sizes)
        form = body.get("response_format")
        if form is not None:
            _add_single("response_format", form, sections, values, digests, sizes)
        leading = len(digests)
        rest, name = body.get("messages"), "messages"
        if rest is None:
            rest, name = body.get("prompt"), "prompt"
    if isinstance(rest, list | tuple) and name != "prompt":
        if rest:
            _add(name, rest, sections, values, digests, sizes)
            leading += _leading(rest)
    elif rest is not None:
        _add_single(name, rest, sections, values, digests, sizes)
    single_input = name == "input" and type(rest) is str
    return Outline(tuple(sections), tuple(digests), tuple(sizes), leading, single_input), values


def digest(value: Any) -> int:
    """64 bits that tell a segment from others in this process; the order of its keys counts."""
    return _structured(value)[0] if type(value) is not str else hash(value)


def _leading(messages: Sequence[Any]) -> int:
    count = 0
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in _LEADING_ROLES:
            break
        count += 1
    return count


def _add_single(
    name: str,
    value: Any,
    sections: list[tuple[str, int]],
    values: list[Any],
    digests: list[int],
    sizes: list[int],
) -> None:
    sections.append((name, 1))
    values.append(value)
    number, size = (hash(value), len(value)) if type(value) is str else _structured(value)
    digests.append(number)
    sizes.append(size)


def _add_listed(
    tools: list[Any],
    written: bytes,
    sections: list[tuple[str, int]],
    values: list[Any],
    digests: list[int],
    sizes: list[int],
) -> None:
    seen = hash(written)
    known = _listed.get(seen)
    if known is None:
        known = ([], [])
        _add("tools", tools, [], [], *known)
        if len(_listed) >= _MOST_LISTED:
            _listed.clear()
        _listed[seen] = known
    sections.append(("tools", len(tools)))
    values += tools
    digests += known[0]
    sizes += known[1]


def _add(
    name: str,
    items: Any,
    sections: list[tuple[str, int]],
    values: list[Any],
    digests: list[int],
    sizes: list[int],
) -> None:
    if not isinstance(items, list | tuple):
        _add_single(name, items, sections, values, digests, sizes)
        return
    sections.append((name, len(items)))
    values += items
    add_digest, add_size = digests.append, sizes.append
    for item in items:
        # Messages whose strings keep their hashes: orjson would read every character again. The order of their keys
        # counts here as well. Where a value has no hash, it is a list or a mapping.
        if type(item) is dict and type(content := item.get("content")) is str:
            try:
                add_digest(hash((*item, *item.values())))
            except TypeError:
                pass
            else:
                add_size(len(content) + 8)
                continue
        number, size = (hash(item), len(item)) if type(item) is str else _structured(item)
        add_digest(number)
        add_size(size)


def _structured(value: Any) -> tuple[int, int]:
    """The digest of any value, and its characters as JSON."""
    try:
        text = orjson.dumps(value)
    except Exception:  # noqa: BLE001 - surrogates, integers beyond 64 bits, a caller's own classes
        return _recursive(value, 0)
    return hash(text), len(text)


def _recursive(value: Any, depth: int) -> tuple[int, int]:
    """What orjson refuses, by its members; an object of a class that is not JSON's counts by its class and its hash."""
    if depth > _MAX_DEPTH:
        return 0, 0
    if isinstance(value, Mapping):
        parts = [("{", 2)]
        for key, member in value.items():
            number, size = _recursive(member, depth + 1)
            parts.append((f"{key}:{number}", size + len(str(key)) + 4))
        return hash(tuple(part for part, _ in parts)), sum(size for _, size in parts)
    if isinstance(value, list | tuple):
        members = [_recursive(member, depth + 1) for member in value]
        return hash(("[", *(number for number, _ in members))), sum(size for _, size in members) + 2
    if isinstance(value, str):
        return hash(("s", value)), len(value)
    try:
        return hash((type(value).__name__, value)), 8
    except Exception:  # noqa: BLE001 - what has no hash counts by its class
        return hash(type(value).__name__), 8
