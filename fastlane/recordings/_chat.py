"""What a generating call asks, as chat messages, whichever of the endpoints it went to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

PROMPT_FIELDS = ("messages", "input", "instructions", "prompt", "tools")
"""Where a body has its prompt."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


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
    """An object of openai's own as plain data: an answer's message is often sent back as it came."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value


def _of_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item of the Responses API's input as a chat message."""
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
