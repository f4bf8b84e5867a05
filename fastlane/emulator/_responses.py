"""Responses, and the events in which they are streamed, as OpenAI writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastlane.emulator._generation import GeneratedChoice
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._reply import CREATED, Tick, TokenUsage, compact

# What a response repeats of its request, and what it says where the request said nothing.
_ECHOED: tuple[tuple[str, Any], ...] = (
    ("instructions", None),
    ("max_output_tokens", None),
    ("metadata", {}),
    ("parallel_tool_calls", True),
    ("previous_response_id", None),
    ("reasoning", {"effort": None, "summary": None}),
    ("store", True),
    ("temperature", 1.0),
    ("text", {"format": {"type": "text"}}),
    ("tool_choice", "auto"),
    ("tools", []),
    ("top_p", 1.0),
    ("truncation", "disabled"),
    ("user", None),
)


# The event of an item's deltas, and what else stands in it.
_DELTAS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "reasoning": ("response.reasoning_text", {"content_index": 0}),
    "message": ("response.output_text", {"content_index": 0, "logprobs": []}),
    "function_call": ("response.function_call_arguments", {}),
}


@dataclass(frozen=True, slots=True)
class _Item:
    """One item of a response's output."""

    kind: str
    id: str
    index: int
    pieces: tuple[str, ...]
    fields: Mapping[str, Any]
    """What its kind has beside id, type, status and text."""
    status: str

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def shown(self, *, begun: bool = True) -> dict[str, Any]:
        """Return it as it is at its end, or before its first piece."""
        status = self.status if begun else "in_progress"
        item = {"id": self.id, "type": self.kind, "status": status, **self.fields}
        if self.kind == "function_call":
            return {**item, "arguments": self.text if begun else ""}
        return {**item, "content": [self.part(self.text)] if begun else []}

    def part(self, text: str) -> dict[str, Any]:
        """Return the content of a message or of reasoning."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponsesReply:
    """A response; a `GeneratedReply`. It has no [DONE]: its last event says how it ended."""

    def __init__(
        self,
        prompt: GenerationRequest,
        choices: Sequence[GeneratedChoice],
        usage: TokenUsage,
        *,
        number: int,
        tier: str,
    ) -> None:
        choice = choices[0]
        self._usage = usage
        self._sequence = 0
        self._status = "incomplete" if choice.finish_reason == "length" else "completed"
        self._items: list[_Item] = []
        if choice.reasoning:
            fields: dict[str, Any] = {"summary": []}
            self._items.append(_Item("reasoning", f"rs_{number:012d}", 0, choice.reasoning, fields, "completed"))
        if choice.pieces:
            if choice.tool:
                kind, item_id = "function_call", f"fc_{number:012d}"
                fields = {"call_id": f"call_{number:012d}", "name": choice.tool}
            else:
                kind, item_id, fields = "message", f"msg_{number:012d}", {"role": "assistant"}
            self._items.append(_Item(kind, item_id, len(self._items), choice.pieces, fields, self._status))
        echoed = {name: prompt.body[name] if prompt.body.get(name) is not None else usual for name, usual in _ECHOED}
        self._base: dict[str, Any] = {
            "id": f"resp_{number:012d}",
            "object": "response",
            "created_at": CREATED,
            "background": False,
            "error": None,
            "model": prompt.model,
            "service_tier": tier,
            **echoed,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {compact(event)}\n\n".encode()

    def opening(self) -> bytes:
        begun = {**self._base, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def ticks(self) -> Iterator[Tick]:
        """Return one delta event per token, the first and last of an item with the events around it."""
        for item in self._items:
            before, after = self._around_deltas(item)
            for at, piece in enumerate(item.pieces):
                # In the order of sending, because each event takes the next number.
                data = self._begin(item) if at == 0 else b""
                data += f"{before}{self._sequence}{after}{json.dumps(piece)}}}\n\n".encode()
                self._sequence += 1
                if at == len(item.pieces) - 1:
                    data += self._end(item)
                yield Tick(data, 1, int(item.kind == "reasoning"))

    def _begin(self, item: _Item) -> bytes:
        data = self._event("response.output_item.added", output_index=item.index, item=item.shown(begun=False))
        if item.kind == "message":
            where = {"item_id": item.id, "output_index": item.index, "content_index": 0}
            data += self._event("response.content_part.added", part=item.part(""), **where)
        return data

    def _around_deltas(self, item: _Item) -> tuple[str, str]:
        """Return the text before and after the number of an event: written once, because it is needed per token."""
        kind, more = _DELTAS[item.kind]
        where = compact({"item_id": item.id, "output_index": item.index, **more})[1:-1]
        return f'event: {kind}.delta\ndata: {{"type":"{kind}.delta","sequence_number":', f',{where},"delta":'

    def _end(self, item: _Item) -> bytes:
        kind, more = _DELTAS[item.kind]
        where = {"item_id": item.id, "output_index": item.index}
        if item.kind == "function_call":
            data = self._event(f"{kind}.done", name=item.fields["name"], arguments=item.text, **where)
        else:
            data = self._event(f"{kind}.done", text=item.text, **where, **more)
        if item.kind == "message":
            data += self._event("response.content_part.done", part=item.part(item.text), content_index=0, **where)
        return data + self._event("response.output_item.done", output_index=item.index, item=item.shown())

    def _finished(self, *, usage: bool) -> dict[str, Any]:
        return {
            **self._base,
            "status": self._status,
            "incomplete_details": {"reason": "max_output_tokens"} if self._status == "incomplete" else None,
            "output": [item.shown() for item in self._items],
            "usage": self._usage.responses() if usage else None,
        }

    def closing(self, *, usage: bool, done: bool) -> bytes:
        """Return the event that says how the response ended; `done` False leaves it out, as its kind of [DONE]."""
        return self._event(f"response.{self._status}", response=self._finished(usage=usage)) if done else b""

    def whole(self, *, usage: bool) -> bytes:
        return compact(self._finished(usage=usage)).encode()
