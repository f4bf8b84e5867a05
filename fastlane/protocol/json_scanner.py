"""Scan a text while it is streamed, and say when its stream can be closed."""

from __future__ import annotations

import re

from fastlane.records.plays import StopReason

# White space behind a value that says nothing yet: models end with a line feed or two.
_WHITESPACE_BEHIND = 8
# Inside of a value so much white space in a row is a run, unless it is an indent.
_WHITESPACE_RUN = 128
_INDENT = 8
# The depth of a number or a word, which ends where something else begins.
_SCALAR = -1

_BEGINNING = re.compile(r'[ \t\r\n]*(?:```[\w+-]{0,32}[ \t]{0,8}\r?\n[ \t\r\n]*)?(?=[{\["\-0-9tfn])').match
# What may still become such a beginning with the text to come.
_PART_OF_BEGINNING = re.compile(r"[ \t\r\n]*(?:`{0,2}|```[\w+-]{0,32}[ \t]{0,8}\r?(?:\n[ \t\r\n]*)?)").fullmatch
_IN_STRING = re.compile(r'["\\]').search
_OUTSIDE = re.compile(r'["{}\[\]]').search
_END_OF_SCALAR = re.compile(r"[^-+.0-9a-zA-Z]").search


class JsonScanner:
    """Finds the end of one JSON value, and what runs on behind it. It does not say whether the value is valid.

    It has all text of one channel of an answer. It begins behind white space and a fence. The reason "complete" may
    become "whitespace", "prose" or "fence" later.
    """

    __slots__ = ("_depth", "_is_escaped", "_is_in_string", "_parts", "_run", "_size", "end", "reason", "start")

    def __init__(self) -> None:
        self.start = -1
        """Where the value begins in all text fed, in characters; -1: it has not."""
        self.end: int | None = None
        """Where it ends; None if it has not."""
        self.reason: StopReason | None = None
        """Why the stream can be closed; None as long as it cannot."""
        self._parts: list[str] = []
        self._size = 0
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False
        self._run = 0

    @property
    def text(self) -> str:
        """All text fed."""
        if len(self._parts) != 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    def inside(self, piece: str) -> str:
        """Return what of the piece that was fed last belongs to the part that counts."""
        length = len(self.text)
        before = length - len(piece)
        first = self.start if self.start >= 0 else length
        last = length if self.end is None else self.end
        return piece[max(0, first - before) : max(0, last - before)]

    @property
    def value(self) -> str:
        """The text of the value, as far as it has come."""
        return self.text[max(0, self.start) : self.end]

    def feed(self, text: str) -> StopReason | None:
        """Read on; return why the stream can be closed, None as long as it cannot."""
        self._parts.append(text)
        before = self._size
        self._size += len(text)
        if self.end is not None:
            if self.reason == "complete":
                self._look_behind()
        elif self.start >= 0:
            if not self._is_in_string or self._is_escaped or '"' in text or "\\" in text:
                self._scan(text, 0, before)
        elif self.reason is None:
            self._begin()
        return self.reason

    def _begin(self) -> None:
        text = self.text
        found = _BEGINNING(text)
        if found is not None:
            self.start = found.end()
            self._depth = 0 if text[self.start] in '{["' else _SCALAR
            self._scan(text, self.start, 0)
        elif len(text) - len(text.rstrip()) > _WHITESPACE_RUN:
            self.reason = "whitespace"
        elif not _PART_OF_BEGINNING(text):
            self.reason = "prose"

    def _scan(self, text: str, at: int, before: int) -> None:
        """Read the value on from `at`. `before`: characters of all text in front of `text`."""
        if self._depth == _SCALAR:
            found = _END_OF_SCALAR(text, at)
            if found is not None:
                self._end(before + found.start())
            return
        if not self._is_in_string and self._count_white_space(text):
            return
        size = len(text)
        while at < size:
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_IN_STRING if self._is_in_string else _OUTSIDE)(text, at)
            if found is None:
                return
            at = found.end()
            char = found[0]
            if char == "\\":
                self._is_escaped = True
                continue
            if char == '"':
                self._is_in_string = not self._is_in_string
                self._run = 0
            elif char in "{[":
                self._depth += 1
            else:
                self._depth -= 1
            if not self._depth and not self._is_in_string:
                self._end(before + at)
                return

    def _count_white_space(self, text: str) -> bool:
        """Whether a text between two tokens is all white space."""
        if not text.isspace():
            self._run = len(text) - len(text.rstrip())
            return False
        self._run += len(text)
        if self._run > _WHITESPACE_RUN and self._run > _INDENT * self._depth:
            self.reason = "whitespace"
        return True

    def _end(self, end: int) -> None:
        self.end = end
        self.reason = "complete"
        if end < self._size:
            self._look_behind()

    def _look_behind(self) -> None:
        behind = self.text[self.end :]
        text = behind.lstrip()
        if len(behind) - len(text) > _WHITESPACE_BEHIND:
            self.reason = "whitespace"
        elif text:
            self.reason = "fence" if text[0] == "`" else "prose"
