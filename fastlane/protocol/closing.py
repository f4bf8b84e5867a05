"""Write the events that end a stream which we stopped, as its provider would have ended it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .accumulation import ByIndex, plain
from .assembly import Assembly, ChoicesAssembly
from .content import ITEM_TEXTS, PART_TEXTS, response_channel
from .cut import AnswerCut
from .response_assembly import ResponseAssembly, item_key

_HEAD = ("id", "object", "created", "model", "service_tier", "system_fingerprint")

Event = dict[str, Any]


def closing_events(assembly: Assembly, cut: AnswerCut, *, include_usage: bool = False) -> list[Event]:
    """Return the JSON of the missing events; none for a stream that has not begun or has ended by itself.

    `include_usage`: whether the request asks for usage at the end of a stream of chat or completions.
    """
    if isinstance(assembly, ResponseAssembly):
        return _response_events(assembly, cut)
    assert isinstance(assembly, ChoicesAssembly)
    return _chunks(assembly, cut, include_usage)


def _chunks(assembly: ChoicesAssembly, cut: AnswerCut, include_usage: bool) -> list[Event]:
    if not assembly.head:
        return []
    head = {name: value for name in _HEAD if (value := plain(assembly.head.get(name))) is not None}
    usage = plain(assembly.head.get("usage"))
    if usage is not None or include_usage:
        head["usage"] = usage  # a reader keeps the last chunk's
    reasons = {index: one.reason_after(cut) for index, one in assembly.choices.items() if one.finish_reason is None}
    if not assembly.choices:
        reasons = {0: "stop"}
    piece: Event = {"delta": {}} if assembly.is_chat else {"text": ""}
    chunks: list[Event] = [
        {**head, "choices": [{"index": index, **piece, "logprobs": None, "finish_reason": reason}]}
        for index, reason in sorted(reasons.items())
    ]
    if include_usage and usage is None and cut.usage is not None:
        chunks.append({**head, "choices": [], "usage": plain(cut.usage)})
    return chunks


def _response_events(assembly: ResponseAssembly, cut: AnswerCut) -> list[Event]:
    if assembly.finished or not assembly.base:
        return []
    response = assembly.body(cut)
    events: list[Event] = []
    for index, whole in zip(sorted(assembly.items), response["output"], strict=True):
        if item_key(index) not in assembly.done:
            events += _item_events(assembly, index, whole)
    events.append({"type": "response.completed", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events, assembly.sequence + 1)]


def _item_events(assembly: ResponseAssembly, index: int, whole: Mapping[str, Any]) -> list[Event]:
    events: list[Event] = []
    where, type_ = {"item_id": whole.get("id"), "output_index": index}, str(whole.get("type"))
    if type_ in ITEM_TEXTS and (index,) not in assembly.done:
        field, kind = ITEM_TEXTS[type_]
        name = {"name": whole.get("name")} if type_ == "function_call" else {}
        events.append({"type": kind, **where, field: whole.get(field) or "", **name})
    for list_name in ("summary", "content"):
        parts = assembly.items[index].get(list_name)
        if not isinstance(parts, ByIndex):
            continue
        for number, part in zip(sorted(parts), whole[list_name], strict=True):
            if not isinstance(part, dict):
                continue
            channel, at = response_channel(list_name, index, number), {**where, f"{list_name}_index": number}
            type_ = str(part.get("type"))
            if type_ in PART_TEXTS and channel not in assembly.done:
                field, kind = PART_TEXTS[type_]
                logprobs = {"logprobs": plain(part.get("logprobs") or [])} if type_ == "output_text" else {}
                events.append({"type": kind, **at, field: part.get(field) or "", **logprobs})
            if channel in assembly.open_parts:
                part_name = "content_part" if list_name == "content" else "reasoning_summary_part"
                events.append({"type": f"response.{part_name}.done", **at, "part": plain(part)})
    events.append({"type": "response.output_item.done", "output_index": index, "item": plain(whole)})
    return events
