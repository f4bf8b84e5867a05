"""Strings of a JSON text that is not complete: plain text, escapes, and what may still become one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

plain: Callable[..., re.Match[str]] = re.compile(r'[^"\\\x00-\x1f]*').match  # type: ignore[assignment]
"""Match what stands for itself, which may be nothing."""

# Two escapes that are halves of one character are read together.
_ESCAPE = re.compile(
    r'\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]'
).match
_UNFINISHED = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?)?"
)
_SHORT: Mapping[str, str] = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def read_escape(text: str, at: int) -> tuple[str, int] | None:
    """Return the character that an escape stands for and where it ends; None where there is no whole escape.

    Half of a surrogate pair, which JSON allows, is a character of its own.
    """
    # At the end of a piece the first half is no answer yet: the second may follow.
    if is_unfinished(text, at):
        return None
    found = _ESCAPE(text, at)
    if found is None:
        return None
    end = found.end()
    kind = text[at + 1]
    if kind != "u":
        return _SHORT.get(kind, kind), end
    code = int(text[at + 2 : at + 6], 16)
    if end - at > 6:
        code = 0x10000 + ((code - 0xD800) << 10) + int(text[at + 8 : at + 12], 16) - 0xDC00
    return chr(code), end


def is_unfinished(text: str, at: int) -> bool:
    """Whether the rest of a text may become an escape, or a longer one, with what follows."""
    return len(text) - at < 12 and _UNFINISHED.fullmatch(text, at) is not None


def some_begins_with(ordered: Sequence[str], beginning: str) -> bool:
    """Whether one of the ordered texts begins so."""
    at = bisect_left(ordered, beginning)
    return at < len(ordered) and ordered[at].startswith(beginning)
