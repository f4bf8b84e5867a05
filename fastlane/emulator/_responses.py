"""Responses, and the events in which they are streamed, as OpenAI writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from fastlane.emulator._generation import GeneratedChoice
from fastlane.emulator._prompt import GenerationRequest
from fastlane.emulator._reply import CREATED, NO_EXTRAS, Extras, Tick, TokenUsage, compact

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


class ResponsesReply:
    """A response; a `Reply`. It has no [DONE]: its last event says how it ended."""

    def __init__(
        self,
        prompt: GenerationRequest,
        choices: Sequence[GeneratedChoice],
        usage: TokenUsage,
        *,
        number: int,
        tier: str,
    ) -> None:
        self._choice = choices[0]
        self._usage = usage
        self._sequence = 0
        self._reasoning_id = f"rs_{number:012d}"
        self._item_id = f"{'fc' if self._choice.tool else 'msg'}_{number:012d}"
        self._call_id = f"call_{number:012d}"
        self._output_index = 1 if self._choice.reasoning else 0
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

    @property
    def _cut(self) -> bool:
        return self._choice.finish_reason == "length"

    def _response(self, status: str, output: list[dict[str, Any]], *, usage: bool = False) -> dict[str, Any]:
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._base,
            "status": status,
            "incomplete_details": details,
            "output": output,
            "usage": self._usage.responses() if usage else None,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {compact(event)}\n\n".encode()

    def opening(self) -> bytes:
        """Return the events that say that the response has begun."""
        begun = self._response("in_progress", [])
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def ticks(self) -> Iterator[Tick]:
        """Return one delta event per token, the first and last of an item with the events around it."""
        yield from self._reasoning_ticks()
        pieces = self._choice.pieces
        for at, piece in enumerate(pieces):
            # In the order of sending, because each event takes the next number.
            data = self._item_begins() if at == 0 else b""
            data += self._delta(piece)
            if at == len(pieces) - 1:
                data += self._item_ends()
            yield Tick(data, 1, 0)

    def _reasoning_ticks(self) -> Iterator[Tick]:
        pieces = self._choice.reasoning
        where = {"item_id": self._reasoning_id, "output_index": 0, "content_index": 0}
        for at, piece in enumerate(pieces):
            data = b""
            if at == 0:
                item = {"id": self._reasoning_id, "type": "reasoning", "summary": [], "status": "in_progress"}
                data += self._event("response.output_item.added", output_index=0, item=item)
            data += self._event("response.reasoning_text.delta", delta=piece, **where)
            if at == len(pieces) - 1:
                data += self._event("response.reasoning_text.done", text="".join(pieces), **where)
                data += self._event("response.output_item.done", output_index=0, item=self._reasoning_item())
            yield Tick(data, 1, 1)

    def _delta(self, piece: str) -> bytes:
        # Once per token: written by hand, because it is several times cheaper than a dictionary.
        number, self._sequence = self._sequence, self._sequence + 1
        where = f'"item_id":"{self._item_id}","output_index":{self._output_index}'
        if self._choice.tool:
            kind, more = "response.function_call_arguments.delta", ""
        else:
            kind, more = "response.output_text.delta", ',"content_index":0,"logprobs":[]'
        return (
            f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":{number},{where}{more},'
            f'"delta":{json.dumps(piece)}}}\n\n'
        ).encode()

    def _item_begins(self) -> bytes:
        added = self._event(
            "response.output_item.added", output_index=self._output_index, item=self._item("in_progress", begun=False)
        )
        if self._choice.tool:
            return added
        return added + self._event(
            "response.content_part.added",
            item_id=self._item_id,
            output_index=self._output_index,
            content_index=0,
            part=self._part(""),
        )

    def _item_ends(self) -> bytes:
        text = "".join(self._choice.pieces)
        where: dict[str, Any] = {"item_id": self._item_id, "output_index": self._output_index}
        done: list[bytes]
        if self._choice.tool:
            kind = "response.function_call_arguments.done"
            done = [self._event(kind, name=self._choice.tool, arguments=text, **where)]
        else:
            where["content_index"] = 0
            done = [
                self._event("response.output_text.done", text=text, logprobs=[], **where),
                self._event("response.content_part.done", part=self._part(text), **where),
            ]
        item = self._item(self._item_status)
        return b"".join([*done, self._event("response.output_item.done", output_index=self._output_index, item=item)])

    @property
    def _item_status(self) -> str:
        return "incomplete" if self._cut else "completed"

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _item(self, status: str, *, begun: bool = True) -> dict[str, Any]:
        text = "".join(self._choice.pieces)
        if self._choice.tool:
            return {
                "id": self._item_id,
                "type": "function_call",
                "call_id": self._call_id,
                "name": self._choice.tool,
                "arguments": text if begun else "",
                "status": status,
            }
        content = [self._part(text)] if begun else []
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _reasoning_item(self) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": "".join(self._choice.reasoning)}]
        return {
            "id": self._reasoning_id,
            "type": "reasoning",
            "summary": [],
            "content": content,
            "status": "completed",
        }

    def _finished(self, *, usage: bool, extras: Extras) -> dict[str, Any]:
        output = [self._reasoning_item()] if self._choice.reasoning else []
        if self._choice.pieces:
            output.append(self._item(self._item_status))
        response = self._response("incomplete" if self._cut else "completed", output, usage=usage)
        if usage:
            response["usage"].update(extras.usage)
        return {**response, **extras.answer}

    def closing(self, *, usage: bool, done: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the event that says how the response ended; `done` False leaves it out, as its kind of [DONE]."""
        if not done:
            return b""
        kind = "response.incomplete" if self._cut else "response.completed"
        return self._event(kind, response=self._finished(usage=usage, extras=extras))

    def whole(self, *, usage: bool, extras: Extras = NO_EXTRAS) -> bytes:
        """Return the response object."""
        return compact(self._finished(usage=usage, extras=extras)).encode()
