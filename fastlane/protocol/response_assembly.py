"""Assemble the events of a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .accumulation import ByIndex, add_text, plain, text_of
from .content import (
    ITEM_TEXTS,
    PART_TEXTS,
    RESPONSE_BEGINS,
    RESPONSE_DELTAS,
    RESPONSE_DONES,
    RESPONSE_ENDS,
    Channel,
    Delta,
    ResponseText,
    error_of,
    response_channel,
)  # fmt: skip
from .cut import AnswerCut
from .fields import fields_of, listed, position_of

_PART_LISTS = ("content", "summary")


class ResponseAssembly:
    """A response; an `Assembly`. Its last event carries all of it; the events before serve an answer that is cut."""

    __slots__ = ("_final", "base", "done", "error", "items", "open_parts", "sequence")

    def __init__(self) -> None:
        self.base: dict[str, Any] = {}
        """The response as the stream's first events gave it."""
        self._final: dict[str, Any] | None = None
        self.items: dict[int, dict[str, Any]] = {}
        """The items of the output, by index; their lists of parts are `ByIndex`."""
        self.done: set[Channel] = set()
        """The texts and, by `item_key`, the items that ended."""
        self.open_parts: set[Channel] = set()
        """The parts that an event announced and none has ended."""
        self.sequence = -1
        """The highest sequence number so far."""
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether the event that ends a response has come."""
        return self._final is not None

    def take(self, event: Any) -> Sequence[Delta]:
        """Add one event."""
        event = fields_of(event) or {}
        kind, number = event.get("type"), event.get("sequence_number")
        if number.__class__ is int and number > self.sequence:
            self.sequence = number
        if not isinstance(kind, str):
            self.error = plain(error_of(event.get("error"))) or self.error
        elif kind in RESPONSE_DELTAS:
            return self._take_delta(RESPONSE_DELTAS[kind], event)
        elif kind in RESPONSE_DONES:
            return self._take_text(RESPONSE_DONES[kind], event)
        elif kind in RESPONSE_BEGINS or kind in RESPONSE_ENDS:
            self._take_response(kind, event.get("response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            return self._take_item(event, is_done=kind.endswith("done"))
        elif kind.endswith(("_part.added", "_part.done")):
            self._take_part(event, is_done=kind.endswith("done"))
        elif kind == "response.output_text.annotation.added":
            self._take_annotation(event)
        elif kind == "error":
            said = {name: value for name, value in event.items() if name not in ("sequence_number", "error")}
            self.error = plain(error_of(event.get("error")) or said)
        return ()

    def _take_delta(self, where: ResponseText, event: Mapping[str, Any]) -> Sequence[Delta]:
        text, logprobs = event.get("delta"), event.get("logprobs")
        if not isinstance(text, str) or not (text or logprobs):
            return ()
        channel, holder, field = self._holder(where, event)
        add_text(holder, field, text)
        if isinstance(logprobs, list):
            held = holder.get("logprobs")
            if not isinstance(held, list):
                held = holder["logprobs"] = []
            if logprobs:
                held += plain(logprobs)
        return (Delta(channel, where.kind, text),) if text else ()

    def _take_text(self, where: ResponseText, event: Mapping[str, Any]) -> Sequence[Delta]:
        text = event.get(where.field)
        channel, holder, field = self._holder(where, event)
        self.done.add(channel)
        if not isinstance(text, str):
            return ()
        missed = not holder.get(field)
        holder[field] = text
        return (Delta(channel, where.kind, text),) if missed and text else ()

    def _holder(self, where: ResponseText, event: Mapping[str, Any]) -> tuple[Channel, dict[str, Any], str]:
        """Return the channel of an event's text, the item or part that holds it, and its field; create the part."""
        at = position_of(event.get("output_index"))
        item = self._item_at(at)
        if where.parts is None:
            return (at,), item, where.field
        index = position_of(event.get(where.index_field))
        parts = _parts_in(item, where.parts)
        if not isinstance(parts.get(index), dict):
            parts[index] = plain(where.part)
        part: dict[str, Any] = parts[index]
        return response_channel(where.parts, at, index), part, part_field(part)

    def _item_at(self, index: int) -> dict[str, Any]:
        return self.items.setdefault(index, {"type": "message", "role": "assistant", "status": "in_progress"})

    def _take_response(self, kind: str, response: Any) -> None:
        fields = fields_of(response)
        if kind in RESPONSE_BEGINS:
            self.base.update(plain(response) if fields else {})
            return
        said = {"status": kind.removeprefix("response.")} if fields is None else plain(response)
        self._final = {**self.base, **said}
        if kind == "response.failed":
            error = error_of(said.get("error"))
            self.error = plain(error) or {"message": "the response failed, and its provider gave no reason"}

    def _take_item(self, event: Mapping[str, Any], *, is_done: bool) -> Sequence[Delta]:
        if fields_of(event.get("item")) is None:
            return ()
        index, item = position_of(event.get("output_index")), plain(event["item"])
        self.items[index] = item
        self.done = {channel for channel in self.done if channel[0] != index}
        self.open_parts = {channel for channel in self.open_parts if channel[0] != index}
        for name in _PART_LISTS:
            if isinstance(item.get(name), list):
                item[name] = ByIndex(enumerate(item[name]))
                self.open_parts.update(response_channel(name, index, number) for number in item[name])
        if is_done:
            self.done.add(item_key(index))
            return ()
        name, text = item.get("name"), item.get("arguments") or item.get("input")
        if not isinstance(name, str) or not name:
            return ()
        return (Delta((index,), "tool_call", text if isinstance(text, str) else "", name),)

    def _take_part(self, event: Mapping[str, Any], *, is_done: bool) -> None:
        if fields_of(event.get("part")) is None:
            return
        name = "summary" if "summary_index" in event else "content"
        at, index = position_of(event.get("output_index")), position_of(event.get(f"{name}_index"))
        _parts_in(self._item_at(at), name)[index] = plain(event["part"])
        channel = response_channel(name, at, index)
        (self.done.add if is_done else self.done.discard)(channel)
        (self.open_parts.discard if is_done else self.open_parts.add)(channel)

    def _take_annotation(self, event: Mapping[str, Any]) -> None:
        parts = self._item_at(position_of(event.get("output_index"))).get("content")
        part = parts.get(position_of(event.get("content_index"))) if isinstance(parts, ByIndex) else None
        if isinstance(part, dict) and event.get("annotation") is not None:
            part["annotations"] = [*listed(part.get("annotations")), plain(event["annotation"])]

    def text(self, channel: Channel) -> str:
        """Return a part's text, or the arguments of a tool call."""
        item = self.items.get(channel[0], {}) if channel else {}
        if len(channel) < 2:
            return next(filter(None, (text_of(item.get(name)) for name, _ in ITEM_TEXTS.values())), "")
        name, index = ("content", channel[1]) if channel[1] >= 0 else ("summary", -1 - channel[1])
        parts = item.get(name)
        part = parts.get(index) if isinstance(parts, ByIndex) else None
        return text_of(part.get(part_field(part))) if isinstance(part, dict) else ""

    def body(self, cut: AnswerCut | None = None) -> dict[str, Any]:
        """Return the response."""
        found: dict[str, Any] = plain(self.base if self._final is None else self._final)
        found.setdefault("object", "response")
        indexes = sorted(self.items)
        if self._final is not None and listed(found.get("output")):
            # The events can have numbered the items with gaps.
            by_id = {str(item["id"]): index for index, item in self.items.items() if item.get("id")}
            ids = [item.get("id") if isinstance(item, dict) else None for item in found["output"]]
            indexes = [by_id.get(str(id_), position) for position, id_ in enumerate(ids)]
        else:
            found["output"] = [plain(self.items[index]) for index in indexes]
        if cut is not None:
            self._cut(found, indexes, cut)
        return found

    def _cut(self, response: dict[str, Any], indexes: Sequence[int], cut: AnswerCut) -> None:
        ended = self._final is not None and not (response.get("status") == "incomplete" and cut.ends)
        for item, index in zip(response["output"], indexes, strict=True):
            if isinstance(item, dict):
                _shorten(item, index, cut)
                if not ended and item.get("status") in ("in_progress", "incomplete"):
                    item["status"] = "completed"
        if not ended:
            response["status"] = "completed"
            if response.get("incomplete_details") is not None:
                response["incomplete_details"] = None
        if cut.usage is not None and response.get("usage") is None:
            response["usage"] = plain(cut.usage)


def item_key(output_index: int) -> Channel:
    """Return the key of a whole item in `ResponseAssembly.done`."""
    return (output_index, 0, 0)


def part_field(part: Mapping[str, Any]) -> str:
    """Return the field that holds a part's text."""
    return PART_TEXTS.get(str(part.get("type")), ("text", ""))[0]


def _parts_in(item: dict[str, Any], name: str) -> ByIndex:
    if not isinstance(item.get(name), ByIndex):
        item[name] = ByIndex()
    parts: ByIndex = item[name]
    return parts


def _shorten(item: dict[str, Any], index: int, cut: AnswerCut) -> None:
    """Drop the parts of an item's texts that the cut drops."""
    own_field = ITEM_TEXTS.get(str(item.get("type")), ("", ""))[0]
    if isinstance(item.get(own_field), str):
        item[own_field] = cut.text((index,), item[own_field])
    for number, part in enumerate(listed(item.get("content"))):
        channel = response_channel("content", index, number)
        text = part.get(part_field(part)) if isinstance(part, dict) and cut.changes(channel) else None
        if isinstance(text, str):
            tokens = part.get("logprobs")
            if isinstance(tokens, list) and tokens:
                part["logprobs"] = tokens[cut.tokens(channel, text, tokens)]
            part[part_field(part)] = cut.text(channel, text)
