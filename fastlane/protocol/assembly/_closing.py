"""End a stream that was stopped as its provider would have ended it, so that whoever reads it has a whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._chat_choice import reason_after
from ._cut import Cut
from ._merge import as_position, own
from ._response_items import Item, Part
from ._response_places import DELTAS, ITEM_TEXTS, PART_TEXTS
from ._responses_assembly import ResponsesAssembly

_HEAD = ("id", "object", "created", "model", "service_tier", "system_fingerprint")


class Closing:
    """What a caller's own stream needs in order to be ended by us. Nothing raises, whatever the events are."""

    __slots__ = (
        "_assembly",
        "_called",
        "_finished",
        "_include_usage",
        "_last",
        "_legacy",
        "_seen",
        "_sequence",
        "_usage",
    )

    def __init__(self, endpoint: str, *, include_usage: bool = False) -> None:
        """`include_usage`: whether the request asks for the usage at the end of a stream of chat or completions."""
        self._assembly = ResponsesAssembly() if endpoint == "/responses" else None
        self._legacy = endpoint == "/completions"
        self._include_usage = include_usage
        self._last: Any = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._called: dict[int, str] = {}
        self._usage: Any = None
        self._sequence = -1

    def see(self, event: Any) -> None:
        """Look at one typed event that the caller is given."""
        try:
            if self._assembly is None:
                self._see_chunk(event)
            else:
                self._see_response(event, self._assembly)
        except (AttributeError, LookupError, TypeError, ValueError):
            pass  # an odd event ends nothing

    def _see_chunk(self, event: Any) -> None:
        choices = event.choices
        self._last = event
        usage = getattr(event, "usage", None)
        if usage is not None:
            self._usage = usage
        for choice in choices or ():
            index = as_position(choice.index)
            self._seen.add(index)
            if choice.finish_reason:
                self._finished.add(index)
            delta = None if self._legacy else getattr(choice, "delta", None)
            if delta is not None and delta.tool_calls:
                self._called[index] = "tool_calls"
            elif delta is not None and delta.function_call:
                self._called.setdefault(index, "function_call")

    def _see_response(self, event: Any, assembly: ResponsesAssembly) -> None:
        kind = event.type
        sequence = event.sequence_number
        if sequence.__class__ is int and sequence > self._sequence:
            self._sequence = sequence
        place = DELTAS.get(kind)
        if place is None:
            assembly.take(event.to_dict(warnings=False))
            return
        text = event.delta
        if isinstance(text, str):
            index = as_position(getattr(event, place.numbered_by)) if place.parts else 0
            logprobs = event.logprobs if place.kind == "content" else None
            if logprobs:
                logprobs = [entry.to_dict(warnings=False) for entry in logprobs]
            assembly.add_text(place, as_position(event.output_index), index, text, logprobs)

    def events(self, cut: Cut) -> list[dict[str, Any]]:
        """Return the JSON of the events that end the stream; none where it has not begun, or has ended by itself."""
        if self._assembly is not None:
            return _response_events(self._assembly, cut, self._sequence + 1)
        return self._chunks(cut)

    def _chunks(self, cut: Cut) -> list[dict[str, Any]]:
        if self._last is None:
            return []
        head = {name: value for name in _HEAD if (value := getattr(self._last, name, None)) is not None}
        if self._usage is not None:
            # It came with every chunk. Whoever reads the stream takes the last chunk's.
            head["usage"] = _json_of(self._usage)
        elif self._include_usage:
            head["usage"] = None
        chunks: list[dict[str, Any]] = []
        for index in sorted((self._seen or {0}) - self._finished):
            reason = reason_after(cut, None, called=self._called.get(index), index=index)
            added: dict[str, Any] = {"text": ""} if self._legacy else {"delta": {}}
            choice = {"index": index, **added, "logprobs": None, "finish_reason": reason}
            chunks.append({**head, "choices": [choice]})
        if self._include_usage and self._usage is None and cut.usage is not None:
            chunks.append({**head, "choices": [], "usage": own(cut.usage)})
        return chunks


def _json_of(usage: Any) -> Any:
    try:
        return usage.to_dict(warnings=False)
    except (AttributeError, TypeError, ValueError):
        return own(usage) if isinstance(usage, Mapping) else None


def _response_events(assembly: ResponsesAssembly, cut: Cut, sequence: int) -> list[dict[str, Any]]:
    if assembly.finished or not assembly.begun:
        return []
    response = assembly.body(cut)
    events: list[dict[str, Any]] = []
    for item, whole in zip(assembly.items, response["output"], strict=True):
        if not item.done:
            events += _item_events(item, whole)
    events.append({"type": "response.completed", "response": response})
    return [{**event, "sequence_number": sequence + number} for number, event in enumerate(events)]


def _item_events(item: Item, whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    where = {"item_id": whole.get("id"), "output_index": item.index}
    events: list[dict[str, Any]] = []
    own_text = ITEM_TEXTS.get(str(whole.get("type")))
    if own_text is not None:
        field, kind = own_text
        ended = {"type": kind, **where, field: whole.get(field) or ""}
        if whole.get("type") == "function_call":
            ended["name"] = whole.get("name")
        events.append(ended)
    for name, index_field in (("summary", "summary_index"), ("content", "content_index")):
        indexes = sorted(index for parts, index in item.parts if parts == name)
        for position, index in enumerate(indexes):
            at = {**where, index_field: index}
            events += _part_events(item.parts[name, index], whole[name][position], name, at)
    events.append({"type": "response.output_item.done", "output_index": item.index, "item": own(whole)})
    return events


def _part_events(part: Part, whole: Mapping[str, Any], name: str, at: Mapping[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    known = PART_TEXTS.get(str(whole.get("type")))
    if known is not None and not part.done:
        field, kind = known
        ended = {"type": kind, **at, field: whole.get(field) or ""}
        if kind == "response.output_text.done":
            ended["logprobs"] = own(whole.get("logprobs") or [])
        events.append(ended)
    if part.added:
        kind = "response.reasoning_summary_part.done" if name == "summary" else "response.content_part.done"
        events.append({"type": kind, **at, "part": own(whole)})
    return events
