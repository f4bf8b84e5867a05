"""Put the content of a chat message together, which comes as texts or, from some providers, as lists of parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._cut import Cut
from ._deltas import Channel, Delta
from ._merge import merge_delta, own


class Content:
    """The content of one message."""

    __slots__ = ("_parts", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] | None = None
        self._parts: list[dict[str, Any]] | None = None

    def take(self, value: Any, channel: Channel, deltas: list[Delta]) -> None:
        """Add a piece."""
        if isinstance(value, str):
            if self._pieces is None:
                self._pieces = []
            if value:
                self._pieces.append(value)
                deltas.append(Delta(channel, "content", value))
                if self._parts is not None:
                    self._take_part({"type": "text", "text": value})
        elif isinstance(value, list | tuple):
            for part in value:
                if isinstance(part, Mapping):
                    self._take_listed(part, channel, deltas)

    def _take_listed(self, part: Mapping[str, Any], channel: Channel, deltas: list[Delta]) -> None:
        if self._parts is None:
            self._parts = []
            if self._pieces:
                self._parts.append({"type": "text", "text": "".join(self._pieces)})
        text = part.get("text")
        if part.get("type") in ("text", None) and isinstance(text, str):
            if self._pieces is None:
                self._pieces = []
            if text:
                self._pieces.append(text)
                deltas.append(Delta(channel, "content", text))
        else:
            thought = _thought_in(part)
            if thought:
                deltas.append(Delta(channel, "reasoning", thought))
        self._take_part(part)

    def _take_part(self, part: Mapping[str, Any]) -> None:
        """A part goes on with the last one if it is of its kind."""
        assert self._parts is not None
        last = self._parts[-1] if self._parts else None
        if last is None or last.get("type") != part.get("type") or not _goes_on(part):
            self._parts.append(own(part))
            return
        inner, more = last.get("thinking"), part.get("thinking")
        if isinstance(inner, list) and isinstance(more, list) and all(isinstance(piece, Mapping) for piece in more):
            for piece in more:
                if inner and inner[-1].get("type") == piece.get("type") and isinstance(piece.get("text"), str):
                    merge_delta(inner[-1], piece)
                else:
                    inner.append(own(piece))
            return
        merge_delta(last, part)

    @property
    def text(self) -> str:
        """What is text in it."""
        return "".join(self._pieces or ())

    def body(self, cut: Cut | None, channel: Channel) -> Any:
        """Return the content as it stands in a message."""
        if self._pieces is None and self._parts is None:
            return None
        text = self.text
        start, end = (0, len(text)) if cut is None else cut.span(channel, len(text))
        if self._parts is None:
            return text[start:end]
        parts, at = own(self._parts), 0
        for part in parts:
            piece = part.get("text")
            if part.get("type") in ("text", None) and isinstance(piece, str):
                part["text"] = piece[max(0, start - at) : max(0, end - at)]
                at += len(piece)
        return parts


def _goes_on(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str) or isinstance(part.get("thinking"), str | list)


def _thought_in(part: Mapping[str, Any]) -> str:
    inner = part.get("thinking")
    if isinstance(inner, str):
        return inner
    if not isinstance(inner, list):
        return ""
    texts = [piece.get("text") for piece in inner if isinstance(piece, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
