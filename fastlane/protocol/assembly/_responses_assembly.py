"""Put the events of a response together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._cut import Cut
from ._deltas import Channel, Delta
from ._heads import error_of
from ._merge import as_position, own
from ._response_items import Item, item_of, shorten
from ._response_places import DELTAS, DONES, Place, channel_of

_BEGINS = frozenset(("response.created", "response.queued", "response.in_progress"))
_ENDS = frozenset(("response.completed", "response.incomplete", "response.failed"))


class ResponsesAssembly:
    """A response; an `Assembly`. The event that ends its stream carries all of it; what came before serves a cut."""

    __slots__ = ("_base", "_final", "_items", "error")

    def __init__(self) -> None:
        self._base: dict[str, Any] = {}
        self._final: dict[str, Any] | None = None
        self._items: dict[int, Item] = {}
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether the event has come that ends a response."""
        return self._final is not None

    @property
    def begun(self) -> bool:
        """Whether an event has said what response it is."""
        return bool(self._base)

    @property
    def items(self) -> list[Item]:
        """The items of the output so far, in their order."""
        return [self._items[index] for index in sorted(self._items)]

    def take(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        """Add one event."""
        if not isinstance(event, Mapping):
            return ()
        kind = event.get("type")
        if not isinstance(kind, str):
            if event.get("error"):
                self.error = error_of(event["error"])
            return ()
        place = DELTAS.get(kind)
        if place is not None:
            return self._delta(place, event)
        place = DONES.get(kind)
        if place is not None:
            return self._text_done(place, event)
        if kind in _BEGINS or kind in _ENDS:
            self._whole(kind, event.get("response"))
            return ()
        handle = _HANDLERS.get(kind)
        return () if handle is None else handle(self, event)

    def _item(self, event: Mapping[str, Any]) -> Item:
        return self._item_at(as_position(event.get("output_index")))

    def _item_at(self, index: int) -> Item:
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = Item(index, {"type": "message", "role": "assistant", "status": "in_progress"})
        return item

    def _delta(self, place: Place, event: Mapping[str, Any]) -> Sequence[Delta]:
        text, logprobs = event.get("delta"), event.get("logprobs")
        if not isinstance(text, str) or not (text or logprobs):
            return ()
        output_index = as_position(event.get("output_index"))
        index = as_position(event.get(place.numbered_by)) if place.parts else 0
        self.add_text(place, output_index, index, text, logprobs)
        return (Delta(channel_of(place.parts, output_index, index), place.kind, text),) if text else ()

    def add_text(self, place: Place, output_index: int, index: int, text: str, logprobs: Any) -> None:
        """Add a piece of a text, and what is told of its tokens."""
        item = self._items.get(output_index) or self._item_at(output_index)
        part = item.part(place, index)
        part.pieces.append(text)
        if isinstance(logprobs, list | tuple):
            if part.logprobs is None:
                part.logprobs = []
            part.logprobs += logprobs

    def _text_done(self, place: Place, event: Mapping[str, Any]) -> Sequence[Delta]:
        text = event.get(place.field)
        item, index = self._item(event), as_position(event.get(place.numbered_by))
        part = item.part(place, index)
        part.done = True
        if not isinstance(text, str):
            return ()
        missed = "" if part.pieces else text
        part.pieces = [text]
        return (Delta(channel_of(place.parts, item.index, index), place.kind, missed),) if missed else ()

    def _whole(self, kind: str, response: Any) -> None:
        if not isinstance(response, Mapping):
            response = {"status": kind.removeprefix("response.")} if kind in _ENDS else {}
        if kind in _BEGINS:
            self._base.update(own(response))
            return
        self._final = {**self._base, **own(response)}
        if kind == "response.failed":
            self.error = error_of(response.get("error")) or {"message": "the response failed, and nothing says why"}

    def _item_added(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        fields = item_of(event)
        if fields is None:
            return ()
        index = as_position(event.get("output_index"))
        self._items[index] = Item(index, fields)
        return tool_begun(index, fields.get("name"), fields.get("arguments") or fields.get("input"))

    def _item_done(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        fields = item_of(event)
        if fields is not None:
            item = self._item(event)
            item.replace(fields)
            item.done = True
        return ()

    def _part_added(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        parts, index = ("summary", "summary_index") if "summary_index" in event else ("content", "content_index")
        part = event.get("part")
        if isinstance(part, Mapping):
            self._item(event).add(parts, as_position(event.get(index)), own(part))
        return ()

    def _part_done(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        parts, index = ("summary", "summary_index") if "summary_index" in event else ("content", "content_index")
        part = event.get("part")
        if isinstance(part, Mapping):
            held = self._item(event).parts.get((parts, as_position(event.get(index))))
            if held is None:
                self._part_added(event)
                held = self._item(event).parts[parts, as_position(event.get(index))]
            held.replace(own(part))
            held.done, held.added = True, False
        return ()

    def _annotation(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        part = self._item(event).parts.get(("content", as_position(event.get("content_index"))))
        if part is not None and event.get("annotation") is not None:
            held = part.fields.get("annotations")
            part.fields["annotations"] = [*(held if isinstance(held, list) else ()), own(event["annotation"])]
        return ()

    def _error(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        inner = error_of(event.get("error"))
        said = {name: own(value) for name, value in event.items() if name not in ("sequence_number", "error")}
        self.error = inner or said
        return ()

    def text(self, channel: Channel) -> str:
        """Return a part's text, or the arguments of a tool call."""
        item = self._items.get(channel[0]) if channel else None
        if item is None:
            return ""
        if len(channel) == 1:
            return item.text(None, 0)
        return item.text("content", channel[1]) if channel[1] >= 0 else item.text("summary", -1 - channel[1])

    def body(self, cut: Cut | None = None) -> dict[str, Any]:
        """Return the response."""
        found: dict[str, Any] = own(self._base if self._final is None else self._final)
        found.setdefault("object", "response")
        output = found.get("output")
        if self._final is None or not (isinstance(output, list) and output):
            found["output"] = [item.body() for item in self.items]
            indexes = [item.index for item in self.items]
        else:
            indexes = self._indexes_of(output)
        if cut is not None:
            self._cut(found, indexes, cut)
        return found

    def _indexes_of(self, output: list[Any]) -> list[int]:
        """Say under which index the events named each item of the whole output: there may be gaps between them."""
        by_id = {str(item.fields["id"]): item.index for item in self._items.values() if item.fields.get("id")}
        return [
            by_id.get(str(item.get("id")), position) if isinstance(item, dict) else position
            for position, item in enumerate(output)
        ]

    def _cut(self, response: dict[str, Any], indexes: list[int], cut: Cut) -> None:
        ended = self._final is not None and not (response.get("status") == "incomplete" and cut.ends)
        for item, index in zip(response["output"], indexes, strict=True):
            if isinstance(item, dict):
                shorten(item, index, cut)
                if not ended and item.get("status") in ("in_progress", "incomplete"):
                    item["status"] = "completed"
        if not ended:
            response["status"] = "completed"
            if response.get("incomplete_details") is not None:
                response["incomplete_details"] = None
        if cut.usage is not None and response.get("usage") is None:
            response["usage"] = own(cut.usage)


def tool_begun(output_index: int, name: Any, text: Any) -> Sequence[Delta]:
    """Return what the event adds that announces an item: the name of a tool that is called, if it is that."""
    if not isinstance(name, str) or not name:
        return ()
    return (Delta((output_index,), "tool_call", text if isinstance(text, str) else "", name),)


_HANDLERS: Mapping[str, Callable[[ResponsesAssembly, Mapping[str, Any]], Sequence[Delta]]] = {
    "response.output_item.added": ResponsesAssembly._item_added,
    "response.output_item.done": ResponsesAssembly._item_done,
    "response.content_part.added": ResponsesAssembly._part_added,
    "response.content_part.done": ResponsesAssembly._part_done,
    "response.reasoning_summary_part.added": ResponsesAssembly._part_added,
    "response.reasoning_summary_part.done": ResponsesAssembly._part_done,
    "response.output_text.annotation.added": ResponsesAssembly._annotation,
    "error": ResponsesAssembly._error,
}
