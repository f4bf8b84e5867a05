"""Cache keys: one name for all prompts that begin alike, the same in every process, and who is talking in a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from string import punctuation
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from fastlane.protocol.prompt_marks import Placement

# Providers begin to keep a prompt at 1,024 tokens (https://developers.openai.com/api/docs/guides/prompt-caching), about
# 4,096 characters. Prompts that are alike so far are worth one key, whatever follows: retrieved documents that stand at
# the end of a system prompt must not make a key of their own for every call.
_HEAD_CHARACTERS = 4_096
# Of a longer text no more is read, so that a key costs the same for every length.
_MOST_CHARACTERS = 2 * _HEAD_CHARACTERS
# A first message as long as this (512 tokens) begins with what others may send too; behind the stable prefix that is
# enough to be kept.
_SESSION_CHARACTERS = 2_048
# More than so many are forgotten, all at once: to find them again costs microseconds.
_MOST_KNOWN = 8_192

# A word with a digit in it: times, dates, counters, UUIDs, hexadecimal and base64 values. The look-behind keeps it
# linear, since a word is tried from its beginning alone.
_WITH_DIGIT = re.compile(r"(?<![A-Za-z_+/=-])[A-Za-z_+/=-]*+\d[A-Za-z_\d+/=-]*+")
# What stands beside the digits of a date, as it is written, with and without what follows it. A set is several times
# cheaper than an expression that looks for them.
_NAMES = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "Mon", "Tue", "Tues", "Wed",
    "Thu", "Thurs", "Fri", "Sat", "Sun", "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December", "Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug",
    "Sep", "Sept", "Oct", "Nov", "Dec", "AM", "PM", "A.M.", "P.M.", "UTC", "GMT",
)  # fmt: skip
_CALENDAR = frozenset(
    written + behind
    for name in _NAMES
    for written in (name, name.lower(), name.upper())
    for behind in ("", ",", ".", ";")
)
_LONG_LINE = 512
_SENTENCES = re.compile(r"(?<=[.!?;]) ")
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")

_LEADING_ROLES = ("system", "developer")
# By these an application says itself who is talking; metadata may hold anything else, and may change with each call.
_SESSION_NAMES = ("session_id", "conversation_id", "thread_id", "chat_id")

_Line = tuple[bytes, int]

# What was seen, by the process's own hashes: no text is kept. A lost update between threads does no harm.
_keys: dict[int, str] = {}
_lines: dict[int, _Line] = {}
_tools: dict[int, bytes] = {}


def stable_key(endpoint: str, body: Mapping[str, Any], placements: Sequence[Placement | None] | None = None) -> str:
    """Return the cache key of a request: "fl-" and 20 hexadecimal digits, equal in every process.

    It is made of the model, the tools in any order, the response format and the stable segments: the messages that the
    caller declared stable, whole, or else the beginning of the leading system and developer messages. What looks
    volatile in them (words with digits, dates) is left out, so that a clock does not make a key for every call.
    """
    tools, form, texts = _stable(endpoint, body, placements)
    declared = placements is not None and "stable" in placements
    written = _dumped(tools) if tools else b""
    model = str(body.get("model"))
    seen = hash((model, declared, written, _dumped(form) if form else b"", tuple(texts)))
    key = _keys.get(seen)
    if key is None:
        digests = [
            model.encode("utf-8", "surrogatepass"),
            b"".join(sorted(map(_tool_digest, tools if isinstance(tools, list) else [tools] if tools else []))),
            _tool_digest(form) if form else b"",
            *_head(texts, None if declared else _HEAD_CHARACTERS),
        ]
        made = blake2b(digest_size=10)
        for digest in digests:
            made.update(len(digest).to_bytes(4, "big") + digest)
        key = "fl-" + made.hexdigest()
        _remember(_keys, seen, key)
    return key


def session_of(endpoint: str, body: Mapping[str, Any], placements: Sequence[Placement | None] | None = None) -> int:
    """Return a 64-bit number that is the same for all calls of one conversation, in every process.

    It is that of the conversation's id where the body names one (`conversation`, `metadata.session_id` and the like),
    else of the end user (`safety_identifier`, `user`) and the first message after the stable ones. A long first message
    counts by its beginning alone: conversations about the same document are worth the same machine.
    """
    named = body.get("conversation")
    if isinstance(named, Mapping):
        named = named.get("id")
    metadata = body.get("metadata")
    if not named and isinstance(metadata, Mapping):
        named = next((metadata[name] for name in _SESSION_NAMES if metadata.get(name)), None)
    if isinstance(named, str | int):
        return _number("named", str(named))
    user = body.get("safety_identifier") or body.get("user")
    first = None
    # A chained answer's request holds the newest message alone, which is another at every turn.
    if not body.get("previous_response_id"):
        first = next((item for item, stable in _items(endpoint, body, placements) if not stable), None)
    text = _beginning(first.get("content") if isinstance(first, Mapping) else first)
    if len(text) >= _SESSION_CHARACTERS:
        return _number("shared", text)
    return _number(str(user) if isinstance(user, str | int) else "", text)


def _stable(
    endpoint: str, body: Mapping[str, Any], placements: Sequence[Placement | None] | None
) -> tuple[Any, Any, list[str]]:
    """The tools, the response format, and the texts of the stable messages."""
    text = body.get("text")
    form = body.get("response_format") or (text.get("format") if isinstance(text, Mapping) else None)
    texts = []
    instructions = body.get("instructions")
    if isinstance(instructions, str):
        texts.append(instructions)
    for item, stable in _items(endpoint, body, placements):
        if stable:
            texts.extend(_texts(item))
        elif placements is None:
            break
    return body.get("tools"), form, texts


def _items(
    endpoint: str, body: Mapping[str, Any], placements: Sequence[Placement | None] | None
) -> Iterator[tuple[Any, bool]]:
    """The messages, and whether they are stable; volatile ones are left out."""
    items = body.get("input" if endpoint == "/responses" else "messages" if "messages" in body else "prompt")
    if not isinstance(items, list | tuple):
        items = () if items is None else (items,)
    declared = placements is not None and "stable" in placements
    leading = True
    for index, item in enumerate(items):
        placed = placements[index] if placements is not None and index < len(placements) else None
        leading = leading and isinstance(item, Mapping) and item.get("role") in _LEADING_ROLES
        if placed is None:
            yield item, leading and not declared
        elif placed != "volatile":
            yield item, placed == "stable"


def _texts(item: Any) -> Iterator[str]:
    content = item.get("content") if isinstance(item, Mapping) else item
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            yield text if isinstance(text, str) else _dumped(part).decode()
    elif isinstance(item, Mapping):
        yield _dumped(item).decode()


def _beginning(content: Any) -> str:
    """The first characters of what a message says: the same for a text as for its parts, and no more of an image."""
    if isinstance(content, list):
        left, beginning = _SESSION_CHARACTERS, ""
        for part in content:
            beginning += _beginning(part)[:left]
            left = _SESSION_CHARACTERS - len(beginning)
            if left <= 0:
                break
        return beginning
    if isinstance(content, Mapping):
        # A mark beside the text, which is there at one turn and not at the next, makes no other conversation.
        text = content.get("text")
        return _beginning(text if isinstance(text, str) else list(content.values()))
    return content[:_SESSION_CHARACTERS] if isinstance(content, str) else ""


def _head(texts: Sequence[str], characters: int | None) -> Iterator[bytes]:
    """Digests of the lines of some texts, up to so many characters of those that are not volatile."""
    left = characters
    for text in texts:
        for line in _lines_in(text if characters is None else text[:_MOST_CHARACTERS]):
            digest, size = _line(line, characters)
            if size:
                yield digest
            if left is not None:
                left -= size
                if left <= 0:
                    return


def _lines_in(text: str) -> Iterator[str]:
    """The lines of a text; of a long line its sentences, of which only the one with a clock is new in each call."""
    for line in text.splitlines():
        if len(line) > _LONG_LINE:
            yield from _SENTENCES.split(line)
        else:
            yield line


def _line(line: str, characters: int | None) -> _Line:
    """The digest of one line without what is volatile, and how many characters are left of it.

    Lines are remembered one by one: where a clock stands in a system prompt, only its own line is new in each call.
    """
    seen = hash((line, characters))
    known = _lines.get(seen)
    if known is None:
        left = _without_volatile(line)[:characters]
        known = _digest(left), len(left)
        _remember(_lines, seen, known)
    return known


def _without_volatile(text: str) -> str:
    words = text.split()
    if _DIGIT.search(text):
        # "10:04" and "1,000" leave other marks behind than "9:58:03" and "999": they go too.
        words = [
            _WITH_DIGIT.sub("", word).strip(punctuation) if not word.isalpha() and _DIGIT.search(word) else word
            for word in words
            if word not in _CALENDAR
        ]
    return " ".join(filter(None, words))


def _tool_digest(tool: Any) -> bytes:
    """The digest of a tool's or a schema's words, in whatever order its keys were written."""
    written = _dumped(tool)
    seen = hash(written)
    known = _tools.get(seen)
    if known is None:
        words = sorted(_WORD.findall(_without_volatile(written.decode())))
        known = _digest(" ".join(words))
        _remember(_tools, seen, known)
    return known


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    # What is no JSON (yet) is told apart by its type alone: its `repr` may hold an address, or a secret.
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__.encode()


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _number(*texts: str) -> int:
    return int.from_bytes(_digest("\0".join(texts)), "big")


def _remember(known: dict[int, Any], seen: int, value: Any) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[seen] = value
