"""Streams of hand-written events, and clients of a peer that answers with them."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, Field

import fastlane
from fastlane import BoundedOutput, Connection
from tests.call_peer import JSON, CallPeer, Reply
from tests.waiting import SYNC, Form

EVENT_STREAM = ("content-type", "text/event-stream; charset=utf-8")
MESSAGES: list[Any] = [{"role": "user", "content": "Which category is this ticket?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"type": "string", "enum": ["billing", "bug", "shipping"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["category", "confidence"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA, "strict": True}}
VALID = '{"category": "bug", "confidence": 0.5}'
WRONG = '{"category": "refund", "confidence": 0.5}'
USAGE = {"prompt_tokens": 11, "completion_tokens": 12, "total_tokens": 23}


class Ticket(BaseModel):
    category: Literal["billing", "bug", "shipping"]
    confidence: float = Field(ge=0, le=1)


def create(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "response_format": FORMAT, **more})


def parse(client: Any, **more: Any) -> Any:
    return client.chat.completions.parse(**{"model": "m", "messages": MESSAGES, "response_format": Ticket, **more})


def chunk(text: str | None = None, *, finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    """One chunk of a chat completion."""
    if text is not None:
        delta["content"] = text
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def usage_chunk() -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": USAGE}


def streamed_text(text: str, *, size: int = 5, finish: str | None = "stop") -> list[dict[str, Any]]:
    """An answer in pieces of so many characters."""
    pieces = [chunk(text[at : at + size]) for at in range(0, len(text), size)]
    return [chunk(role="assistant"), *pieces, *([chunk(finish=finish), usage_chunk()] if finish else [])]


def stream(events: list[Any], *, done: bool = True) -> bytes:
    """Events as bytes. An event that is a text is written as it is."""
    lines = [one if isinstance(one, str) else f"data: {json.dumps(one)}" for one in events]
    if done:
        lines.append("data: [DONE]")
    return "".join(f"{line}\n\n" for line in lines).encode()


def streamed(events: list[Any], *, done: bool = True) -> Reply:
    return Reply(headers=(EVENT_STREAM, ("x-request-id", "req_1")), body=stream(events, done=done))


def whole(text: str | None, *, finish: str = "stop", **message: Any) -> Reply:
    """An answer that is not streamed."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
        "logprobs": None,
    }
    answer = {
        "id": "c-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE,
    }  # fmt: skip
    return Reply(headers=(JSON, ("x-request-id", "req_1")), body=json.dumps(answer).encode())


def refusing(message: str, *, status: int = 400, **more: Any) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}
    return Reply(status, (JSON,), json.dumps({"error": error}).encode())


def bounded(peer: CallPeer, play: BoundedOutput | None = None, form: Form = SYNC, **more: Any) -> Any:
    connection = Connection(http2="require" if peer.protocol == "HTTP/2" else "never")
    made = {"api_key": "sk-test", "base_url": f"{peer.url}/v1", "max_retries": 0, "raise_play_errors": True}
    plays = (connection, play or BoundedOutput())
    return form.make(fastlane, **{**made, "only_plays": plays, **more})


def output_of(client: Any) -> Any:
    """What the record of the last call says of its output."""
    return client.last_call.output
