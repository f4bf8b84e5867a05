"""Prompt and answer of one call in the conventions' form, kept only where the application has asked for that.

The form is defined by the JSON schemas of https://github.com/open-telemetry/semantic-conventions-genai.
"""

from __future__ import annotations

import json
import math
import mimetypes
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context

from .._clock import wall_ns
from .._version import __version__
from ..protocol.assembly import assembly_of
from ..protocol.content import REASONING_FIELDS
from ..protocol.endpoints import CHAT, COMPLETIONS, RESPONSES, is_response
from ..protocol.fields import safe_name

if TYPE_CHECKING:
    from .settings import TelemetrySettings

MOST_INLINE_CHARACTERS: Final = 65_536
"""Of an image or another file in base64. Of a larger one only the size is kept: collectors refuse large spans."""

_MAX_DEPTH = 64
_INT64 = 2**63
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "computer_call_output"})
_FINISH_REASONS = {
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "max_output_tokens": "length",
    "failed": "error",
    "cancelled": "error",
}
"""The conventions' finish reason, where it differs from the API's."""

Part = dict[str, Any]


class Content:
    """Prompt and answer of a call; a watcher of its stream. It raises nothing, whatever it is shown."""

    __slots__ = ("_answer", "_assembly", "_input", "_instructions", "_tools")

    def __init__(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._instructions: list[Part] = []
        self._input: list[dict[str, Any]] = []
        self._tools: list[dict[str, Any]] = []
        self._answer: Any = None
        self._assembly = assembly_of(RESPONSES if is_response(endpoint) else endpoint)
        try:
            self._read_request(endpoint, body)
        except Exception:  # noqa: BLE001 - a body that the API would not take either
            self._input.append({"role": "user", "parts": [{"type": "unreadable"}]})

    def _read_request(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._tools += [_tool_definition(tool) for tool in _list(body.get("tools"))]
        if endpoint == CHAT:
            self._read_messages(_list(body.get("messages")))
        elif endpoint == RESPONSES:
            if isinstance(body.get("instructions"), str):
                self._instructions.append(_text(body["instructions"]))
            self._read_messages(_list(body.get("input")))
        elif endpoint == COMPLETIONS:
            prompt = plain(body.get("prompt"))
            several = prompt if isinstance(prompt, list) and all(isinstance(one, str) for one in prompt) else [prompt]
            for one in several:
                self._input.append({"role": "user", "parts": [_text(one if isinstance(one, str) else _json(one))]})

    def _read_messages(self, messages: Iterable[Any]) -> None:
        was_calling = False
        for message in messages:
            if not isinstance(message, dict):
                text = message if isinstance(message, str) else _json(message)
                self._input.append({"role": "user", "parts": [_text(text)]})
                continue
            role, parts = _message_parts(message)
            is_calling = role == "assistant" and bool(parts) and all(part["type"] == "tool_call" for part in parts)
            if is_calling and was_calling and "role" not in message:
                # Parallel tool calls: in a Responses conversation each is an item of its own.
                self._input[-1]["parts"] += parts
                continue
            was_calling = is_calling
            made: dict[str, Any] = {"role": role, "parts": parts}
            if isinstance(message.get("name"), str) and "role" in message:
                made["name"] = message["name"]
            self._input.append(made)

    def see(self, event: Any) -> bool:
        """Add an event of the stream; False, which lets the stream go on."""
        if self._assembly is not None:
            self._assembly.take(event)
        return False

    def answer(self, answer: Any) -> None:
        """Keep a whole answer."""
        try:
            self._answer = plain(answer)
        except Exception:  # noqa: BLE001 - an answer in no shape of the API's
            self._answer = {"choices": [{}]}

    def _output(self) -> list[dict[str, Any]]:
        """Return the answer's messages, as far as they have arrived."""
        answer, is_finished = self._answer, True
        if answer is None and self._assembly is not None:
            answer, is_finished = plain(self._assembly.body()), self._assembly.finished
        if not isinstance(answer, dict):
            return []
        output = answer.get("output")
        if isinstance(output, list) and (output or is_finished):
            parts = [part for item in output for part in _item_parts(item)]
            return [_output_message(parts, _response_finish_reason(answer, parts) if is_finished else None)]
        return [
            _output_message(_choice_parts(choice), choice.get("finish_reason"))
            for choice in _list(answer.get("choices"))
            if isinstance(choice, dict)
        ]

    def structured(self) -> dict[str, Any]:
        """Return the content by attribute, as lists of messages."""
        found = {
            "gen_ai.system_instructions": self._instructions,
            "gen_ai.input.messages": self._input,
            "gen_ai.output.messages": self._output(),
            "gen_ai.tool.definitions": self._tools,
        }
        return {name: value for name, value in found.items() if value}

    def attributes(self) -> dict[str, str]:
        """Return the content by attribute, as JSON texts: attributes of spans have no structure."""
        return {name: _json(value) for name, value in self.structured().items()}


def emit_content(attributes: dict[str, Any], settings: TelemetrySettings, context: Context | None) -> None:
    """Emit `gen_ai.client.inference.operation.details` with the attributes of a call and its messages."""
    provider = settings.logger_provider if settings.logger_provider is not None else get_logger_provider()
    provider.get_logger("fastlane", __version__).emit(
        LogRecord(
            timestamp=wall_ns(),
            context=context,
            severity_number=SeverityNumber.INFO,
            event_name="gen_ai.client.inference.operation.details",
            attributes=attributes,
        )
    )


# Messages and their parts


def _message_parts(message: dict[str, Any]) -> tuple[str, list[Part]]:
    """Return the role and the parts of a message of a prompt, or of an item of a Responses conversation."""
    kind, role = message.get("type"), message.get("role")
    if role is None and isinstance(kind, str) and kind != "message":
        return "tool" if kind in _OUTPUTS else "assistant", _item_parts(message)
    role = role if isinstance(role, str) else "assistant"
    content = message.get("content")
    if role == "tool":
        return role, [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    reasoning = next(filter(None, map(message.get, REASONING_FIELDS)), None)
    parts = [{"type": "reasoning", "content": reasoning}] if isinstance(reasoning, str) else []
    parts += _content_parts(content)
    if isinstance(message.get("refusal"), str):
        parts.append(_text(message["refusal"]))
    parts += map(_tool_call, _dicts(message.get("tool_calls")))
    if isinstance(message.get("function_call"), dict):
        parts.append(_tool_call({"function": message["function_call"]}))
    return role, parts


def _choice_parts(choice: dict[str, Any]) -> list[Part]:
    message = choice.get("message")
    _, parts = _message_parts(message if isinstance(message, dict) else {"content": choice.get("text")})
    return [part for part in parts if part.get("content") != ""]


def _output_message(parts: list[Part], reason: Any) -> dict[str, Any]:
    reason = (safe_name(reason) if isinstance(reason, str) else None) or "error"
    return {"role": "assistant", "parts": parts, "finish_reason": _FINISH_REASONS.get(reason, reason)}


def _response_finish_reason(response: dict[str, Any], parts: Iterable[Part]) -> Any:
    if response.get("status") == "completed":
        return "tool_call" if any(part["type"] == "tool_call" for part in parts) else "stop"
    return _dict(response.get("incomplete_details")).get("reason") or response.get("status")


def _tool_call(call: dict[str, Any]) -> Part:
    called = _dict(call.get("function") or call.get("custom"))
    arguments = _loaded(called.get("arguments", called.get("input")))
    return {"type": "tool_call", "id": call.get("id"), "name": called.get("name") or "", "arguments": arguments}


def _item_parts(item: Any) -> list[Part]:
    """Return the parts of one item of a Responses answer or conversation."""
    if not isinstance(item, dict):
        return []
    kind = item.get("type")
    called = item.get("call_id") or item.get("id")
    if kind in _CALLS:
        given = item.get(_CALLS[kind])
        arguments = _loaded(given) if kind == "function_call" else given
        return [{"type": "tool_call", "id": called, "name": item.get("name") or "", "arguments": arguments}]
    if kind in _OUTPUTS:
        return [{"type": "tool_call_response", "id": called, "response": item.get("output")}]
    if kind == "reasoning":
        blocks = [*_dicts(item.get("summary")), *_dicts(item.get("content"))]
        return [{"type": kind, "content": block["text"]} for block in blocks if isinstance(block.get("text"), str)]
    if kind in (None, "message"):
        return _content_parts(item.get("content"))
    name = str(kind).removesuffix("_call")
    if name == kind:
        return [{"type": kind, "id": called}]
    rest = {key: value for key, value in item.items() if key not in ("id", "call_id", "name", "type")}
    call = {"type": name, **rest}
    return [{"type": "server_tool_call", "id": called, "name": item.get("name") or name, "server_tool_call": call}]


def _content_parts(content: Any) -> list[Part]:
    """Return the parts of a message's content: a text, or a list of texts, images, sounds and files."""
    if isinstance(content, str):
        return [_text(content)]
    return [_content_part(one) for one in content] if isinstance(content, list) else []


def _content_part(part: Any) -> Part:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, dict):
        return {"type": "unknown"}
    kind = part.get("type")
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str) and (kind in _TEXTS or kind in (None, "refusal")):
        return _text(text)
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if isinstance(url, str):
            return _from_url(url, "image")
        return {"type": "file", "mime_type": None, "modality": "image", "file_id": part.get("file_id")}
    if kind == "input_audio":
        sound = _dict(part.get("input_audio"))
        return _blob(sound.get("data"), _AUDIO_TYPES.get(str(sound.get("format"))), "audio")
    if kind in ("file", "input_file"):
        return _file(part["file"] if isinstance(part.get("file"), dict) else part)
    return {"type": str(kind or "unknown")}


def _text(content: str) -> Part:
    return {"type": "text", "content": content}


def _file(file: dict[str, Any]) -> Part:
    filename, data = file.get("filename"), file.get("file_data")
    mime_type = mimetypes.guess_type(filename)[0] if isinstance(filename, str) else None
    if isinstance(file.get("file_id"), str):
        return {"type": "file", "mime_type": mime_type, "modality": "document", "file_id": file["file_id"]}
    url = data if isinstance(data, str) and data.startswith("data:") else file.get("file_url")
    return _from_url(url, "document") if isinstance(url, str) else _blob(data, mime_type, "document")


def _from_url(url: str, modality: str) -> Part:
    if not url.startswith("data:"):
        return {"type": "uri", "mime_type": None, "modality": modality, "uri": url}
    head, _, data = url.removeprefix("data:").partition(",")
    return _blob(data, head.partition(";")[0] or None, modality)


def _blob(data: Any, mime_type: str | None, modality: str) -> Part:
    blob: Part = {"type": "blob", "mime_type": mime_type, "modality": modality, "content": ""}
    if isinstance(data, str):
        if len(data) <= MOST_INLINE_CHARACTERS:
            blob["content"] = data
        else:
            blob["omitted_characters"] = len(data)
    return blob


def _tool_definition(tool: Any) -> dict[str, Any]:
    """Return a tool as the conventions define it: a function with its parameters, or a kind of the provider's own."""
    if not isinstance(tool, dict):
        return {"type": "unknown", "name": ""}
    kind = str(tool.get("type"))
    if kind != "function":
        return {"type": kind, "name": tool.get("name") or kind}
    function = tool["function"] if isinstance(tool.get("function"), dict) else tool
    more = {name: function.get(name) for name in ("description", "parameters")}
    return {"type": kind, "name": function.get("name") or "", **more}


# Plain data


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _list(value: Any) -> list[Any]:
    made = plain(value)
    if isinstance(made, list):
        return made
    return [] if made is None else [made]


def plain(value: Any, depth: int = 0) -> Any:
    """Return what the wire would carry, in types of JSON and OpenTelemetry; a class name for any other object.

    Texts are valid Unicode: half a pair of surrogates would lose the whole of an attribute.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)[:50]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
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


def _loaded(value: Any) -> Any:
    """Return a tool's arguments, which are JSON in a text; the text itself where it is no JSON."""
    if not isinstance(value, str):
        return plain(value)
    try:
        return plain(json.loads(value))
    except (ValueError, RecursionError):
        return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
