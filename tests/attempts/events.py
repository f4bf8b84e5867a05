"""Event streams as providers write them, in the bytes that come."""

from __future__ import annotations

import json
from typing import Any

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
DONE = b"data: [DONE]\n\n"
COMMENT = b": still thinking\n\n"


def data(event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def named(event: dict[str, Any]) -> bytes:
    """An event of a response, which says its name twice."""
    return f"event: {event['type']}\n".encode() + data(event)


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [*choices], **more}


def choice_event(finish_reason: str | None = None, *, index: int = 0, **delta: Any) -> bytes:
    """A chunk with one choice."""
    return data(chunk({"index": index, "delta": delta, "finish_reason": finish_reason}))


ROLE = choice_event(role="assistant", content="", refusal=None)
USAGE = data(chunk(usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}))
STOP = choice_event("stop")
BEFORE = (
    COMMENT,
    ROLE,
    data(chunk()),
    choice_event(content=""),
    choice_event(),
    choice_event(content=None),
    data({}),
    data(None),
    USAGE,
)
"""What a stream may bring before it has begun to answer."""


def response(kind: str, **fields: Any) -> bytes:
    return named({"type": f"response.{kind}", "sequence_number": 1, **fields})


def whole_response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": [*output], **more}


CREATED = response("created", response=whole_response(status="in_progress"))
IN_PROGRESS = response("in_progress", response=whole_response(status="in_progress"))
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "look", "arguments": ""}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": []}
BEFORE_RESPONSE = (
    COMMENT,
    CREATED,
    IN_PROGRESS,
    response("output_item.added", output_index=0, item=THOUGHT),
    response("output_item.done", output_index=0, item=THOUGHT),
    response("output_item.added", output_index=1, item=MESSAGE),
    response("content_part.added", output_index=1, content_index=0, part={"type": "output_text", "text": ""}),
    response("output_text.delta", output_index=1, content_index=0, delta=""),
    response("output_item.added", output_index=2, item=CALL),
)
