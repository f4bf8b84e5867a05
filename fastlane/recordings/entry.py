"""One recorded call as plain data: its shape, and its text only where that is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..engine.call import Call
from ..protocol.endpoints import GENERATING
from ..protocol.fields import safe_name
from ..records.record import CallRecord
from .shape import shape_of

VERSION = 1
HEADER_KEY = "fastlane_recording"
"""What the first line of a file, and of each process's part of it, has."""

PROMPT_FIELDS = ("messages", "input", "instructions", "prompt", "tools")
"""Where a body has its prompt."""

_NUMBERS = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "max_output_tokens", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
# What else stands in their places may be anything.
_CHOICES = {
    "service_tier": frozenset({"auto", "default", "flex", "priority", "scale", "batch"}),
    "reasoning_effort": frozenset({"none", "minimal", "low", "medium", "high", "xhigh"}),
    "verbosity": frozenset({"low", "medium", "high"}),
}
_KEPT = (*PROMPT_FIELDS, *_NUMBERS, *_CHOICES, "parallel_tool_calls", "reasoning")


def issued(call: Call) -> Mapping[str, Any] | None:
    """Return what is needed of the body of a call that is about to be sent; None for an endpoint that is not recorded.

    Messages are copied one level deep: what the application adds to its conversation later is not this call's.
    """
    if call.endpoint not in GENERATING:
        return None
    body = {name: call.body[name] for name in _KEPT if name in call.body}
    for name in ("messages", "input"):
        if isinstance(body.get(name), list | tuple):
            body[name] = [dict(each) if type(each) is dict else each for each in body[name]]
    return body


def entry(body: Mapping[str, Any], record: CallRecord, *, salt: bytes, at_s: float, with_text: bool) -> dict[str, Any]:
    """Return what is written of a call."""
    messages, tools = messages_of(body), tools_of(body)
    shape = shape_of(messages, tools, salt)
    usage = record.usage
    shown: dict[str, Any] = {
        "at": round(at_s, 6),
        "endpoint": record.endpoint,
        "model": safe_name(record.model),
        "stream": record.stream,
        "messages": len(messages),
        "tools": len(tools),
        "characters": shape.characters,
        "attachments": shape.attachments,
        "blocks": list(shape.blocks),
        "sampling": _sampling(body),
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "outcome": record.outcome,
        "error": record.error if record.error is not None and record.error.isidentifier() else None,
        "status": record.status_code,
    }
    if usage.estimated:
        shown["estimated"] = True
    if with_text:
        shown["text"] = {"messages": messages, "tools": tools}
    return shown


def _sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of sampling and length: numbers and known words, nothing else."""
    found: dict[str, Any] = {}
    for name in _NUMBERS:
        value = body.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    if isinstance(body.get("parallel_tool_calls"), bool):
        found["parallel_tool_calls"] = body["parallel_tool_calls"]
    for name, known in _CHOICES.items():
        if body.get(name) is not None:
            found[name] = _known(body[name], known)
    reasoning = body.get("reasoning")
    if isinstance(reasoning, Mapping) and reasoning.get("effort") is not None:
        found["reasoning_effort"] = _known(reasoning["effort"], _CHOICES["reasoning_effort"])
    return found


def _known(value: object, known: frozenset[str]) -> str:
    return value if isinstance(value, str) and value in known else "other"


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompt of a body as chat messages; what cannot be one is left out."""
    if "messages" in body:
        return [message for message in map(_plain, _listed(body["messages"])) if isinstance(message, dict)]
    messages: list[dict[str, Any]] = []
    if isinstance(body.get("instructions"), str):
        messages.append({"role": "system", "content": body["instructions"]})
    asked = body["input"] if "input" in body else body.get("prompt")
    if isinstance(asked, str):
        return [*messages, {"role": "user", "content": asked}]
    for item in map(_plain, _listed(asked)):
        if isinstance(item, str):
            messages.append({"role": "user", "content": item})
        elif isinstance(item, dict):
            messages.append(_of_item(item))
    return messages


def tools_of(body: Mapping[str, Any]) -> list[Any]:
    """Return the tools of a body."""
    return [tool for tool in map(_plain, _listed(body.get("tools"))) if isinstance(tool, dict)]


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _plain(value: Any) -> Any:
    """Return an object of openai's as plain data: an answer's message is often sent back as it came."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value


def _of_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of the Responses API's input as a chat message."""
    kind = item.get("type")
    if kind == "function_call":
        function = {"name": str(item.get("name", "")), "arguments": str(item.get("arguments", ""))}
        call = {"id": str(item.get("call_id", "")), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str) else json.dumps(output, default=str)
        return {"role": "tool", "tool_call_id": str(item.get("call_id", "")), "content": text}
    if "role" in item:
        return {"role": item["role"], "content": _parts(item.get("content"))}
    return {"role": "assistant", "content": json.dumps(item.get("summary") or item.get("content") or "", default=str)}


def _parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    texts = ("input_text", "output_text")
    return [
        {"type": "text", "text": part.get("text", "")} if isinstance(part, dict) and part.get("type") in texts else part
        for part in content
    ]
