"""Read the server-sent events of a stream out of its bytes."""

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

# A plain block has two lines at most. One that has more and no end yet is left to openai's decoder, so that what is
# kept here is not put together again for every line that comes.
_MOST_LINES = 2


def parse_event(data: bytes) -> Any:
    """Return an event's JSON, or `INVALID_JSON`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)  # which takes half of a surrogate pair, as openai's client does
        except ValueError:
            return INVALID_JSON


class EventReader:
    """Sans-IO: read the data of every event, in any form. As in openai's client, a cut-off event does not count."""

    __slots__ = ("_carriage_return", "_data", "_line", "_splitter")

    def __init__(self) -> None:
        self._splitter: EventSplitter | None = EventSplitter()
        """The fast path; None after the first event in another form."""
        self._data: list[bytes] = []
        """The data of the event that has not ended, line by line."""
        self._line: list[bytes] = []
        """The pieces of the line that has not ended: joined once, however many they are."""
        self._carriage_return = b""
        """A carriage return at the end of a piece: it can be the half of a line's end."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece ends."""
        if self._splitter is None:
            return self._lines(piece)
        blocks = self._splitter.feed(piece)
        found = [data for data in blocks if data]
        if self._splitter.stopped:
            piece = b"".join(self._splitter.left(len(blocks)))
            self._splitter = None
            found += self._lines(piece)
        return found

    def _lines(self, piece: bytes) -> list[bytes]:
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
    r"""Sans-IO. Plain are `data: X\n\n`, `event: NAME\ndata: X\n\n` and blocks of comments; at all else it stops.

    What it stops at, and what comes behind that, is `left()` as it came, for a decoder that knows every form: anything
    with a carriage return, several lines of data, `thread.` events, other fields, a byte order mark.
    """

    __slots__ = ("_blocks", "_pieces", "is_open", "stopped")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """What came since the first of the blocks that were fed last began."""
        self._blocks: list[bytes] | None = None
        """The same, split at the ends of blocks; None while it is one block."""
        self.is_open = False
        """The last of the blocks has not ended."""
        self.stopped = False
        """There is more behind the events that `feed` has just given, and it is not plain."""

    def feed(self, piece: bytes) -> Sequence[bytes | None]:
        """The data of the events that this piece ends, one for each block; None for a block of comments."""
        pieces = self.unended()
        pieces.append(piece)
        self._pieces, self._blocks = pieces, None
        if len(pieces) > 1 and _LINE_END not in piece and _CARRIAGE_RETURN not in piece:
            return ()  # a long event in many pieces is put together once
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
        """All that came from the block `index` of those that were fed last on.

        A block that began in an earlier piece is in pieces as it was: to openai's decoder an edge may mean something.
        """
        if index == 0 or self._blocks is None:
            return self._pieces
        # Every block but the first began in the last piece.
        rest = _BLOCK_END.join(self._blocks[index:])
        return [rest] if rest else []

    def unended(self) -> list[bytes]:
        """What came of a block that has not ended."""
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
        # A line that is not UTF-8 is an error as soon as it has ended.
        self.stopped = _CARRIAGE_RETURN in rest or rest.count(_LINE_END) > _MOST_LINES or not _is_text(lines)
        return found


def _look(block: bytes) -> tuple[bool, bytes | None]:
    """Whether a block without its end is plain, and its data: None where it is all comments."""
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
