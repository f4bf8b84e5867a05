r"""Search text for a schema's pattern in a time that grows with the text's length alone, wherever that is possible.

A pattern such as `^(a+)+$` keeps Python's `re` busy for years with a text of fifty characters, and nothing can
interrupt it: it lets no other thread run, and has no time-out. The engine in pydantic's core takes linear time, and
knows more of the syntax that JSON schema means (`\p{L}`). It has no look-around and no back-references: patterns with
these are left to `re`, for texts that are not long. One with look-around and nested repeats can still take for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Search = Callable[[str], bool | None]
"""Says whether a text has what the pattern asks for; None where that cannot be said."""

# What the two engines read in another way than JSON schema means it: set operations in classes, boundaries of words.
_OTHERWISE = re.compile(r"&&|--|~~|\[\[|\\[<>]|\\b\{|\(\?[a-zA-Z-]+[:)]")

# Classes that are larger in JSON schema's dialect than in the engine's. The smaller ones (`\d`) stay as they are: an
# answer is not to be invalid by one reading of a pattern if it is valid by another.
_LARGER = {"D": "[^0-9]", "W": "[^0-9A-Za-z_]", "s": r"[\s\x{FEFF}]"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

# On longer texts, a pattern for which only `re` will do is not tried: 10,000 characters squared take it about a second.
_LONGEST_FOR_BACKTRACKING = 10_000


@lru_cache(maxsize=512)
def search(pattern: str) -> Search | None:
    """Return how to look for a pattern; None where no engine here can read it."""
    linear = None if _OTHERWISE.search(pattern) else _linear(pattern)
    try:
        backtracking = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        backtracking = None
    if linear is None and backtracking is None:
        return None

    def find(text: str) -> bool | None:
        # A lone half of a surrogate pair is no character to the linear engine.
        if linear is not None and (text.isascii() or _encodes(text)):
            return linear(text)
        if backtracking is not None and len(text) <= _LONGEST_FOR_BACKTRACKING:
            return backtracking.search(text) is not None
        return None

    return find


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _linear(pattern: str) -> Callable[[str], bool] | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if "[^" not in pattern:  # in a class that is turned round, what is larger makes it smaller
        pattern = _ESCAPE.sub(lambda escape: _LARGER.get(escape[1], escape[0]), pattern)
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except (SchemaError, UnicodeEncodeError):
        return None
