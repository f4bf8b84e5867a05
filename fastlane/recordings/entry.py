"""One recorded call as plain data: its shape, and its text only on request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..engine.call import Call
from ..protocol.endpoints import GENERATING
from ..protocol.fields import listed, safe_name
from ..records.record import CallRecord
from .shape import shape_of

VERSION = 1
HEADER_KEY = "fastlane_recording"
"""What the first line of a file, and of each process's part of it, has."""

_PROMPT = ("messages", "input", "instructions", "prompt", "tools", "reasoning")
_NUMBERS = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "max_output_tokens", "presence_penalty",
    "frequency_penalty", "parallel_tool_calls",
)  # fmt: skip
# What else stands in their places may be anything.
_WORDS = {
    "service_tier": ("auto", "default", "flex", "priority", "scale", "batch"),
    "reasoning_effort": ("none", "minimal", "low", "medium", "high", "xhigh"),
    "verbosity": ("low", "medium", "high"),
}


def issued(call: Call) -> Mapping[str, Any] | None:
    """Return what is needed of the body of a call that is about to be sent; None for an endpoint that is not recorded.

    Messages are copied one level deep: what the application adds to its conversation later is not this call's.
    """
    if call.endpoint not in GENERATING:
        return None
    body = {name: call.body[name] for name in (*_PROMPT, *_NUMBERS, *_WORDS) if name in call.body}
    for name in ("messages", "input"):
        if isinstance(body.get(name), list | tuple):
            body[name] = [dict(each) if type(each) is dict else each for each in body[name]]
    return body


def entry(body: Mapping[str, Any], record: CallRecord, *, salt: bytes, at_s: float, with_text: bool) -> dict[str, Any]:
    """Return what is written of a call."""
    messages = _messages_of(body)
    tools = [tool for tool in map(_plain, listed(body.get("tools"))) if isinstance(tool, dict)]
    usage = record.usage
    shown = {
        "at": round(at_s, 6),
        "endpoint": record.endpoint,
        "model": safe_name(record.model),
        "stream": record.stream,
        "messages": len(messages),
        "tools": len(tools),
        **shape_of(messages, tools, salt)._asdict(),
        "sampling": _sampling(body),
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated": bool(usage.estimated),
        "outcome": record.outcome,
        "error": record.error if record.error is not None and record.error.isidentifier() else None,
        "status": record.status_code,
    }
    return {**shown, "text": {"messages": messages, "tools": tools}} if with_text else shown


def _sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of sampling and length: numbers and known words, nothing else."""
    reasoning = body.get("reasoning")
    given = {"reasoning_effort": reasoning.get("effort"), **body} if isinstance(reasoning, Mapping) else body
    numbers = {name: given[name] for name in _NUMBERS if isinstance(given.get(name), int | float)}
    words = {name: given[name] for name in _WORDS if given.get(name) is not None}
    return numbers | {name: word if word in _WORDS[name] else "other" for name, word in words.items()}


def _messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the prompt of a body as chat messages; what cannot be one is left out."""
    if "messages" in body:
        return [message for message in map(_plain, listed(body["messages"])) if isinstance(message, dict)]
    asked = body["input"] if "input" in body else body.get("prompt")
    items = [asked] if isinstance(asked, str) else map(_plain, listed(asked))
    messages = [_message_of(item) for item in items if isinstance(item, str | dict)]
    instructions = body.get("instructions")
    return [{"role": "system", "content": instructions}, *messages] if isinstance(instructions, str) else messages


def _plain(value: Any) -> Any:
    """Return an object of openai's as plain data: an answer's message is often sent back as it came."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value


def _message_of(item: str | dict[str, Any]) -> dict[str, Any]:
    """Return a prompt, or an item of the Responses API's input, as a chat message."""
    if isinstance(item, str):
        return {"role": "user", "content": item}
    id_ = str(item.get("call_id", ""))
    if item.get("type") == "function_call":
        function = {name: str(item.get(name, "")) for name in ("name", "arguments")}
        return {"role": "assistant", "tool_calls": [{"id": id_, "type": "function", "function": function}]}
    if item.get("type") == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str) else json.dumps(output, default=str)
        return {"role": "tool", "tool_call_id": id_, "content": text}
    if "role" not in item:
        content = item.get("summary") or item.get("content") or ""
        return {"role": "assistant", "content": json.dumps(content, default=str)}
    content = item.get("content")
    if isinstance(content, list):
        content = [
            {"type": "text", "text": part["text"]} if isinstance(part, dict) and "text" in part else part
            for part in content
        ]
    return {"role": item["role"], "content": content}
