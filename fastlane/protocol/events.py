"""Parse the server-sent events of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

INVALID_JSON: Any = object()
"""What `parse_event` returns for data that is not JSON."""

_LINE_ENDS = re.compile(rb"\r\n|\n|\r")
_LINE_END, _BLOCK_END, _CARRIAGE_RETURN = b"\n", b"\n\n", b"\r"

# A plain block has at most two lines. A longer one without an end is left to openai's decoder, so that the buffer is
# not joined again for every line.
_MOST_LINES = 2


def parse_event(data: bytes) -> Any:
    """Return an event's JSON, or `INVALID_JSON`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)  # it accepts a lone surrogate, as openai's client does
        except ValueError:
            return INVALID_JSON


class EventReader:
    """Sans-IO: read the data of every event, in any form. As in openai's client, an unfinished event is ignored."""

    __slots__ = ("_carriage_return", "_data", "_line")

    def __init__(self) -> None:
        self._data: list[bytes] = []
        """The data lines of the unfinished event."""
        self._line: list[bytes] = []
        """The pieces of the unfinished line, joined once at its end."""
        self._carriage_return = b""
        """A carriage return at the end of a piece, which may be half of a line end."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes."""
        text = self._carriage_return + piece
        self._carriage_return = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_ENDS.split(text[:-1] if self._carriage_return else text)
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        self._line.append(rest)
        found = []
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif not line:
                found.append(b"\n".join(self._data))
                self._data.clear()
        return list(filter(None, found))


class EventSplitter:
    r"""Sans-IO: split plain events, which are `data: X\n\n`, `event: NAME\ndata: X\n\n` and blocks of comments.

    It stops at anything else: a carriage return, several data lines, `thread.` events, other fields, a byte order mark.
    `left()` then returns the unchanged rest, for a decoder of every form.
    """

    __slots__ = ("_blocks", "_pieces", "is_open", "stopped")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """The pieces from the first block of the last `feed` on."""
        self._blocks: list[bytes] | None = None
        """The same, split into blocks; None while it is one unfinished block."""
        self.is_open = False
        """Whether the last block is unfinished."""
        self.stopped = False
        """Whether a block that is not plain follows the events that `feed` returned."""

    def feed(self, piece: bytes) -> Sequence[bytes | None]:
        """Return the data of each block that this piece completes; None for a block of comments."""
        pieces = self.unended()
        pieces.append(piece)
        self._pieces, self._blocks = pieces, None
        if len(pieces) > 1 and _LINE_END not in piece and _CARRIAGE_RETURN not in piece:
            return ()  # join the pieces of a long event only once
        text = piece if len(pieces) == 1 else b"".join(pieces)
        blocks = self._blocks = text.split(_BLOCK_END)
        rest = blocks[-1]
        self.is_open = bool(rest)
        ended = blocks[:-1]
        if text.count(_LINE_END) == 2 * len(ended) and _CARRIAGE_RETURN not in text:
            data = [block[6:] for block in ended if block[:6] == b"data: "]
            if len(data) == len(ended):
                return data
        return self._carefully(ended, rest)

    def left(self, index: int) -> list[bytes]:
        """Return the received bytes from block `index` of the last `feed` on.

        A block that began in an earlier piece keeps its pieces, because openai's decoder may depend on their borders.
        """
        if index == 0 or self._blocks is None:
            return self._pieces
        # Every block but the first began in the last piece.
        rest = _BLOCK_END.join(self._blocks[index:])
        return [rest] if rest else []

    def unended(self) -> list[bytes]:
        """Return the pieces of the unfinished block."""
        if not self.is_open:
            return []
        return self._pieces if self._blocks is None else self.left(len(self._blocks) - 1)

    def _carefully(self, ended: list[bytes], rest: bytes) -> list[bytes | None]:
        found: list[bytes | None] = []
        for block in ended:
            is_plain, data = _look(block)
            if not is_plain:
                self.stopped = True
                return found
            found.append(data)
        lines = rest.rpartition(_LINE_END)[0]
        # openai's decoder raises at the end of a line that is not UTF-8.
        self.stopped = _CARRIAGE_RETURN in rest or rest.count(_LINE_END) > _MOST_LINES or not _is_text(lines)
        return found


def _look(block: bytes) -> tuple[bool, bytes | None]:
    """Return whether a block (without its end) is plain, and its data; None for comments only."""
    if _CARRIAGE_RETURN in block:
        return False, None
    first, *others = block.split(_LINE_END)
    if first[:5] == b"data:" and not others:
        return True, _value(first, 5)
    if first[:6] == b"event:":
        name = _value(first, 6)
        is_plain = len(others) == 1 and others[0][:5] == b"data:" and name.isascii() and name[:7] != b"thread."
        return (True, _value(others[0], 5)) if is_plain else (False, None)
    return all(line[:1] == b":" for line in (first, *others)) and _is_text(block), None


def _is_text(lines: bytes) -> bool:
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    return True


def _value(line: bytes, start: int) -> bytes:
    return line[start + 1 :] if line[start : start + 1] == b" " else line[start:]
