"""The data of an event stream's events, out of its bytes: plain ones at once, all others by openai's code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openai._streaming import SSEDecoder

from .events import EventSplitter

_LINE_ENDS = re.compile(rb"\r\n|\n|\r")


class EventData:
    """Sans-IO. An event that the end of the stream cuts off is none, as for openai's own code."""

    __slots__ = ("_decoder", "_held", "_rest", "_splitter")

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._decoder: SSEDecoder | None = None
        self._rest: list[bytes] = []
        """The pieces of a line that has not ended: put together once, however many they are."""
        self._held = b""
        """A carriage return at the edge of a piece: it may be the half of a line's end."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of the events that this piece ends."""
        if self._decoder is None:
            index = 0
            for data in self._splitter.feed(piece):
                index += 1
                if data is not None:
                    yield data
            if not self._splitter.stopped:
                return
            self._decoder = SSEDecoder()
            piece = b"".join(self._splitter.left(index))
        yield from self._lines(piece)

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        assert self._decoder is not None
        text = self._held + piece
        self._held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _LINE_ENDS.split(text[:-1] if self._held else text)
        if lines:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
        self._rest.append(rest)
        for line in lines:
            event = self._decoder.decode(line.decode("utf-8", "replace"))
            if event is not None and event.data:
                yield event.data.encode()
