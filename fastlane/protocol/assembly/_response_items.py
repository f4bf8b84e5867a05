"""One item of a response's output while it is being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._cut import Cut, tokens_within
from ._merge import own
from ._response_places import ITEM_TEXTS, PART_TEXTS, Place, channel_of


class Part:
    """A text that grows: of an item, or of one of its parts."""

    __slots__ = ("added", "done", "field", "fields", "logprobs", "pieces")

    def __init__(self, fields: dict[str, Any], field: str, *, added: bool) -> None:
        self.fields = fields
        self.field = field
        text = fields.get(field)
        self.pieces: list[str] = [text] if isinstance(text, str) and text else []
        self.logprobs: list[Any] | None = None
        self.added = added
        """Whether an event has announced it; what was not announced is not ended either."""
        self.done = False

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)

    def replace(self, fields: dict[str, Any]) -> None:
        """Take what the event says that ends a part: that counts, whatever its deltas were."""
        self.fields = fields
        text = fields.get(self.field)
        self.pieces = [text] if isinstance(text, str) and text else []
        self.logprobs = None

    def body(self) -> dict[str, Any]:
        """Return the part as it would stand in a response now."""
        found: dict[str, Any] = own(self.fields)
        found[self.field] = self.text
        if self.logprobs is not None:
            found["logprobs"] = own(self.logprobs)
        return found


class Item:
    """An item of the output, event by event."""

    __slots__ = ("_own", "done", "fields", "index", "parts")

    def __init__(self, index: int, fields: dict[str, Any]) -> None:
        self.index = index
        self.done = False
        self.parts: dict[tuple[str, int], Part] = {}
        self._own: Part | None = None
        self.fields: dict[str, Any] = {}
        self.replace(fields)

    def replace(self, fields: dict[str, Any]) -> None:
        """Take the whole item, as it was announced or as it has ended."""
        self.fields, self._own = fields, None
        self.parts.clear()
        for name in ("content", "summary"):
            listed = fields.get(name)
            for index, part in enumerate(listed if isinstance(listed, list) else ()):
                if isinstance(part, dict):
                    self.add(name, index, part)

    def add(self, parts: str, index: int, fields: dict[str, Any], *, added: bool = True) -> Part:
        """Begin a part."""
        field = PART_TEXTS.get(str(fields.get("type")), ("text", ""))[0]
        part = self.parts[parts, index] = Part(fields, field, added=added)
        return part

    def part(self, place: Place, index: int) -> Part:
        """Find the text that an event is about; begin it if it was not announced."""
        if place.parts is None:
            if self._own is None:
                self._own = Part(self.fields, place.field, added=True)
            return self._own
        part = self.parts.get((place.parts, index))
        return part or self.add(place.parts, index, own(place.part), added=False)

    def text(self, parts: str | None, index: int) -> str:
        """Return one of the texts so far; "" for one that has not begun."""
        if parts is not None:
            part = self.parts.get((parts, index))
            return "" if part is None else part.text
        if self._own is not None:
            return self._own.text
        field = ITEM_TEXTS.get(str(self.fields.get("type")), ("arguments", ""))[0]
        return str(self.fields.get(field) or "")

    def body(self) -> dict[str, Any]:
        """Return the item as it would stand in a response now."""
        found: dict[str, Any] = own(self.fields)
        for name in ("content", "summary"):
            indexes = sorted(index for parts, index in self.parts if parts == name)
            if indexes:
                found[name] = [self.parts[name, index].body() for index in indexes]
        if self._own is not None:
            found[self._own.field] = self._own.text
        return found


def shorten(item: dict[str, Any], index: int, cut: Cut) -> None:
    """Leave out of an item of a response what the cut leaves out."""
    own_text = ITEM_TEXTS.get(str(item.get("type")))
    if own_text is not None and isinstance(item.get(own_text[0]), str):
        item[own_text[0]] = cut.of((index,), item[own_text[0]])
    content = item.get("content")
    for number, part in enumerate(content if isinstance(content, list) else ()):
        channel = channel_of("content", index, number)
        if not (isinstance(part, dict) and cut.concerns(channel)):
            continue
        field = PART_TEXTS.get(str(part.get("type")), ("text", ""))[0]
        text = part.get(field)
        if isinstance(text, str):
            start, end = cut.span(channel, len(text))
            tokens = part.get("logprobs")
            if isinstance(tokens, list) and tokens:
                part["logprobs"] = tokens[tokens_within(tokens, text, start, end)]
            part[field] = text[start:end]


def item_of(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an event's item as one of one's own; None where it has none."""
    item = event.get("item")
    return own(item) if isinstance(item, Mapping) else None
