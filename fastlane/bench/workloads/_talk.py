"""What built-in conversations are put together with: tool definitions, and messages in the order in which they came."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ._messages import Message


def tool(name: str, description: str, **properties: tuple[str, str]) -> dict[str, Any]:
    """Return the definition of a function tool: each property with its type and description, all of them required."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: _property(kind, text) for key, (kind, text) in properties.items()},
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


def _property(kind: str, text: str) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": kind, "description": text}
    if kind == "array":
        shape["items"] = {"type": "string"}
    return shape


@dataclass(slots=True)
class Talk:
    """A conversation while it is written."""

    messages: list[Message] = field(default_factory=list)
    calls: int = 0

    def says(self, role: str, content: str) -> None:
        """Add a message of text."""
        self.messages.append({"role": role, "content": content})

    def calls_tool(self, name: str, result: str, content: str | None = None, **arguments: object) -> None:
        """Add an assistant's call of a tool, and the tool's answer."""
        self.calls += 1
        call_id = f"call_{self.calls:03}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": call_id, "type": "function", "function": function}]
        self.messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
