"""The data of an event stream's events, out of its bytes: plain ones at once, all others by openai's code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openai._streaming import SSEDecoder

from ._events import EventSplitter

_LINE_ENDS = re.compile(rb"\r\n|\n|\r")


class EventData:
    """Sans-IO. An event that the end of the stream cuts off is none, as for openai's own code."""

    __slots__ = ("_decoder", "_rest", "_splitter")

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._decoder: SSEDecoder | None = None
        self._rest = b""

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
        text = self._rest + piece
        # A carriage return at the edge may be the half of a line's end.
        held = text.endswith(b"\r")
        *lines, self._rest = _LINE_ENDS.split(text[:-1] if held else text)
        if held:
            self._rest += b"\r"
        for line in lines:
            event = self._decoder.decode(line.decode("utf-8", "replace"))
            if event is not None and event.data:
                yield event.data.encode()
