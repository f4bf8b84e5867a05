"""Parts of messages in the conventions' form, out of what the API calls content, tools and items."""

from __future__ import annotations

import json
import math
import mimetypes
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

from ..protocol.content import REASONING_FIELDS

MOST_INLINE_CHARACTERS: Final = 65_536
"""Of an image or another file in base64. A larger one is told by its size: no collector takes spans of megabytes."""

_DEEPEST = 64
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "computer_call_output"})
_INT64 = 2**63


def text(content: str) -> dict[str, Any]:
    """A part that is text."""
    return {"type": "text", "content": content}


def message_parts(message: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The role and the parts of one message of a prompt, or of one item of a Responses conversation."""
    kind, role = message.get("type"), message.get("role")
    if role is None and isinstance(kind, str) and kind != "message":
        return "tool" if kind in _OUTPUTS else "assistant", item_parts(message)
    content = message.get("content")
    role = role if isinstance(role, str) else "assistant"
    if role == "tool":
        return role, [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    parts = []
    reasoning = next(filter(None, map(message.get, REASONING_FIELDS)), None)
    if isinstance(reasoning, str):
        parts.append({"type": "reasoning", "content": reasoning})
    parts += content_parts(content)
    if isinstance(message.get("refusal"), str):
        parts.append(text(message["refusal"]))
    calls = message.get("tool_calls")
    parts += [_tool_call(call) for call in calls or () if isinstance(call, dict)] if isinstance(calls, list) else []
    if isinstance(message.get("function_call"), dict):
        parts.append(_tool_call({"function": message["function_call"]}))
    return role, parts


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    told = call.get("function") or call.get("custom")
    told = told if isinstance(told, dict) else {}
    arguments = told.get("arguments", told.get("input"))
    return {
        "type": "tool_call", "id": call.get("id"), "name": told.get("name") or "", "arguments": loaded(arguments),
    }  # fmt: skip


def item_parts(item: Any) -> list[dict[str, Any]]:
    """The parts of one item of a Responses answer or conversation."""
    if not isinstance(item, dict):
        return []
    kind = item.get("type")
    called = item.get("call_id") or item.get("id")
    if kind in _CALLS:
        given = item.get(_CALLS[kind])
        arguments = loaded(given) if kind == "function_call" else given
        return [{"type": "tool_call", "id": called, "name": item.get("name") or "", "arguments": arguments}]
    if kind == "computer_call":
        action = {name: item[name] for name in ("action", "actions") if name in item}
        return [{"type": "tool_call", "id": called, "name": "computer", "arguments": action}]
    if kind in _OUTPUTS:
        return [{"type": "tool_call_response", "id": called, "response": item.get("output")}]
    if kind == "reasoning":
        said = [*_dicts(item.get("summary")), *_dicts(item.get("content"))]
        texts = [block["text"] for block in said if isinstance(block.get("text"), str)]
        return [{"type": "reasoning", "content": one} for one in texts]
    if kind == "compaction":
        return [{"type": "compaction", "id": item.get("id")}]
    if kind in (None, "message"):
        return content_parts(item.get("content"))
    name = str(kind).removesuffix("_call")
    if name == kind:
        return [{"type": str(kind), "id": called}]
    rest = {key: value for key, value in item.items() if key not in ("id", "call_id", "name", "type")}
    told = item.get("name") or name
    return [{"type": "server_tool_call", "id": called, "name": told, "server_tool_call": {"type": name, **rest}}]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def content_parts(content: Any) -> list[dict[str, Any]]:
    """The parts of a message's content: a text, or a list of texts, images, sounds and files."""
    if isinstance(content, str):
        return [text(content)]
    return [_part(one) for one in content] if isinstance(content, list) else []


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return text(part)
    if not isinstance(part, dict):
        return {"type": "unknown"}
    kind = part.get("type")
    said = part.get("text", part.get("refusal"))
    if isinstance(said, str) and (kind in _TEXTS or kind in (None, "refusal")):
        return text(said)
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str):
            return _from_url(url, "image")
        return {"type": "file", "mime_type": None, "modality": "image", "file_id": part.get("file_id")}
    if kind == "input_audio":
        sound = part.get("input_audio")
        sound = sound if isinstance(sound, dict) else {}
        return _blob(sound.get("data"), _AUDIO_TYPES.get(str(sound.get("format"))), "audio")
    if kind in ("file", "input_file"):
        return _file(part["file"] if isinstance(part.get("file"), dict) else part)
    return {"type": str(kind or "unknown")}


def _file(told: dict[str, Any]) -> dict[str, Any]:
    filename, data = told.get("filename"), told.get("file_data")
    mime_type = mimetypes.guess_type(filename)[0] if isinstance(filename, str) else None
    if isinstance(told.get("file_id"), str):
        return {"type": "file", "mime_type": mime_type, "modality": "document", "file_id": told["file_id"]}
    url = data if isinstance(data, str) and data.startswith("data:") else told.get("file_url")
    return _from_url(url, "document") if isinstance(url, str) else _blob(data, mime_type, "document")


def _from_url(url: str, modality: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "uri", "mime_type": None, "modality": modality, "uri": url}
    head, _, data = url.removeprefix("data:").partition(",")
    return _blob(data, head.partition(";")[0] or None, modality)


def _blob(data: Any, mime_type: str | None, modality: str) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "blob", "mime_type": mime_type, "modality": modality, "content": ""}
    if isinstance(data, str):
        if len(data) <= MOST_INLINE_CHARACTERS:
            told["content"] = data
        else:
            told["omitted_characters"] = len(data)
    return told


def tool_definition(tool: Any) -> dict[str, Any]:
    """A tool as the conventions define it: a function with its parameters, or a kind of the provider's own."""
    if not isinstance(tool, dict):
        return {"type": "unknown", "name": ""}
    kind = str(tool.get("type"))
    if kind == "function":
        told = tool["function"] if isinstance(tool.get("function"), dict) else tool
        return {
            "type": kind, "name": told.get("name") or "", "description": told.get("description"),
            "parameters": told.get("parameters"),
        }  # fmt: skip
    return {"type": kind, "name": tool.get("name") or kind}


def plain(value: Any, depth: int = 0) -> Any:
    """What the wire would carry, in types that JSON and OpenTelemetry have; what is none of those is told by its class.

    Texts are valid Unicode: half a pair of surrogates would lose the whole of an attribute.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else float_of(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _DEEPEST:
        return "..."
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True, mode="json", warnings=False)
    elif isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {plain(str(name)): plain(member, depth + 1) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member, depth + 1) for member in value]
    return type(value).__name__


def float_of(value: int) -> float | str:
    """A number that is too large for an integer of OpenTelemetry's."""
    try:
        return float(value)
    except OverflowError:
        return "inf" if value > 0 else "-inf"


def loaded(value: Any) -> Any:
    """A tool's arguments, which are JSON in a text; the text itself where it was cut off, or never was JSON."""
    if not isinstance(value, str):
        return plain(value)
    try:
        return plain(json.loads(value))
    except (ValueError, RecursionError):
        return value


def dumped(value: Any) -> str:
    """JSON as attributes have it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
