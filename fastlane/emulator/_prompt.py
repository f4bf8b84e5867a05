"""What a request asks of the model, read and checked from the body of any of the generating endpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fastlane.emulator._request import ApiError

Schema = Mapping[str, Any] | bool
Body = Mapping[str, Any]

EMPTY: Mapping[str, Body] = {
    "chat/completions": {"messages": [{"role": "user", "content": ""}]},
    "completions": {"prompt": ""},
    "responses": {"input": [{"role": "user", "content": ""}]},
}
"""What each generating endpoint's body asks when its prompt is lost."""
# In the order in which OpenAI lists them.
_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_INPUT_ROLES = ("assistant", "system", "developer", "user")
_SHOWN: Mapping[type, str] = {
    dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a decimal",
    bytes: "binary data", type(None): "null",
}  # fmt: skip
_MAXIMUM_CHOICES = 128
# Becomes a digest: a picture costs a provider some tokens, not one per four of its base64.
_INLINE_IMAGE = re.compile(r'(?<=[:\[,])"data:[^"\\]*(?:\\.[^"\\]*)*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    model: str
    text: str
    """The canonical text of tools, response format and messages, in this order: what is counted and cached."""
    body: Body = field(repr=False)
    stream: bool = False
    include_usage: bool = False
    output_limit: int | None = None
    choices: int = 1
    stop: tuple[str, ...] = ()
    service_tier: str | None = None
    reasoning: bool = False
    cache_key: str | None = None
    cache_lane: tuple[object, ...] = ()
    """What beside the model and the tier keeps prompts of one text apart in the cache."""
    prewarm: bool = False
    schema: Schema | None = None
    tools: Mapping[str, Schema] = field(default_factory=dict)
    """The function tools by name, each with the schema of its arguments."""
    forced_tool: str | None = None
    begun: str = ""
    """The beginning of the answer, which is to be continued."""
    asked: str | None = None
    """The text without that beginning, by which the answer is drawn; None: the text."""


def read_chat(body: Body) -> GenerationRequest:
    model = required_text(body, "model")
    messages = body.get("messages")
    if "messages" not in body:
        raise missing("messages")
    if not isinstance(messages, list):
        raise _wrong_type("messages", "an array of objects", messages)
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
        raise ApiError(400, message, param="messages", code="empty_array")
    _check_items(messages, "messages", _ROLES, required=True)
    form = _optional(body, "response_format", dict, {})
    described = form.get("json_schema")
    last = messages[-1]
    is_begun = last["role"] == "assistant" and (last.get("prefix") or body.get("continue_final_message"))
    return GenerationRequest(
        model=model,
        begun=str(last.get("content") or "") if is_begun else "",
        asked=_canonical(body.get("tools"), form, messages[:-1]) if is_begun else None,
        text=_canonical(body.get("tools"), form, messages),
        **_completion(body, _limit(body, "max_completion_tokens", "max_tokens")),
        schema=_schema(form, described if isinstance(described, dict) else {}, "response_format"),
        **_tools(body, lambda one: one.get("function") or {}),
        **_caching(body, body.get("reasoning_effort"), body.get("verbosity")),
    )


def read_responses(body: Body) -> GenerationRequest:
    model = required_text(body, "model")
    given = body.get("input")
    if not given:
        raise missing("input")
    if not isinstance(given, str | list):
        raise _wrong_type("input", "one of a string or array of objects", given)
    messages: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    _check_items(messages, "input", _INPUT_ROLES, required=False)
    if isinstance(body.get("instructions"), str):
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    text = _optional(body, "text", dict, {})
    form = text.get("format") if isinstance(text.get("format"), dict) else {}
    return GenerationRequest(
        model=model,
        text=_canonical(body.get("tools"), form, messages),
        body=body,
        stream=_optional(body, "stream", bool, False),
        include_usage=True,
        output_limit=_limit(body, "max_output_tokens"),
        prewarm=_optional(body, "prompt_cache_options", dict, {}).get("prewarm") is True,
        schema=_schema(form, form, "text.format"),
        **_tools(body, lambda one: one),
        **_caching(body, _optional(body, "reasoning", dict, {}).get("effort"), text.get("verbosity")),
    )


def read_completion(body: Body) -> GenerationRequest:
    model = required_text(body, "model")
    prompt = body.get("prompt")
    if prompt is None:
        raise missing("prompt")
    members = prompt if isinstance(prompt, list) else ()
    if not isinstance(prompt, str | list) or not all(isinstance(each, str | int | list) for each in members):
        raise _wrong_type("prompt", "one of a string, array of strings, array of integers, or array of arrays", prompt)
    # OpenAI's own default for this endpoint.
    fields = _completion(body, _limit(body, "max_tokens") or 16)
    return GenerationRequest(model=model, text=prompt if isinstance(prompt, str) else _dumped(prompt), **fields)


def _completion(body: Body, output_limit: int | None) -> dict[str, Any]:
    choices: int = _optional(body, "n", int, 1)
    if not 1 <= choices <= _MAXIMUM_CHOICES:
        raise ApiError(400, f"Invalid 'n': expected 1 to {_MAXIMUM_CHOICES}, got {choices}.", param="n")
    stop = body.get("stop")
    sequences = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(sequences, list) or not all(isinstance(each, str) for each in sequences) or len(sequences) > 4:
        raise ApiError(400, "Invalid 'stop': expected a string or an array of up to 4 strings.", param="stop")
    return {
        "body": body,
        "stream": _optional(body, "stream", bool, False),
        "include_usage": bool(_optional(body, "stream_options", dict, {}).get("include_usage")),
        "output_limit": output_limit,
        "choices": choices,
        "stop": tuple(each for each in sequences if each),
    }


def _caching(body: Body, effort: object, verbosity: object) -> dict[str, Any]:
    """Read what chat completions and responses share: what decides over the tier and the cache."""
    return {
        "service_tier": _optional(body, "service_tier", str, None),
        "reasoning": isinstance(effort, str) and effort != "none",
        "cache_key": _optional(body, "prompt_cache_key", str, None),
        # The last two are there to keep caches apart: vLLM's and Fireworks'.
        "cache_lane": tuple(
            value if isinstance(value, str) else None
            for value in (effort, verbosity, body.get("cache_salt"), body.get("prompt_cache_isolation_key"))
        ),
    }


def _check_items(items: list[Any], name: str, roles: Sequence[str], *, required: bool) -> None:
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise _wrong_type(f"{name}[{index}]", "an object", item)
        role = item.get("role")
        if role is None and required:
            raise missing(f"{name}[{index}].role")
        if not isinstance(role, str | None):
            raise _wrong_type(f"{name}[{index}].role", "a string", role)
        if role is not None and role not in roles:
            raise invalid_value(f"{name}[{index}].role", role, roles)


def invalid_value(param: str, value: str, known: Sequence[str]) -> ApiError:
    *first, last = (f"'{each}'" for each in known)
    supported = f"{', '.join(first)}, and {last}" if first else last
    message = f"Invalid value: '{value[:128]}'. Supported values are: {supported}."
    return ApiError(400, message, param=param, code="invalid_value")


def missing(param: str) -> ApiError:
    message = f"Missing required parameter: '{param}'."
    return ApiError(400, message, param=param, code="missing_required_parameter")


def _wrong_type(param: str, expected: str, got: object) -> ApiError:
    shown = _SHOWN.get(type(got), type(got).__name__)
    message = f"Invalid type for '{param}': expected {expected}, but got {shown} instead."
    return ApiError(400, message, param=param, code="invalid_type")


def required_text(body: Body, name: str) -> str:
    if name not in body:
        raise missing(name)
    if not isinstance(body[name], str):
        raise _wrong_type(name, "a string", body[name])
    return str(body[name])


def _optional(body: Body, name: str, kind: type, default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong_type(name, _SHOWN[kind], value)
    return value


def _limit(body: Body, *names: str) -> int | None:
    values: dict[str, int] = {name: value for name in names if (value := _optional(body, name, int, None)) is not None}
    for name, value in values.items():
        if value < 1:
            problem = f"integer below minimum value. Expected a value >= 1, but got {value} instead."
            raise ApiError(400, f"Invalid '{name}': {problem}", param=name, code="integer_below_min_value")
    return next(iter(values.values()), None)


def _schema(form: Body, described: Body, param: str) -> Schema | None:
    kind = form.get("type", "text")
    if kind == "json_schema":
        schema = described.get("schema")
        if not isinstance(schema, dict | bool):
            raise missing(f"{param}.schema" if form is described else f"{param}.json_schema.schema")
        return schema
    if kind not in ("text", "json_object"):
        raise invalid_value(f"{param}.type", str(kind), ("json_object", "json_schema", "text"))
    return True if kind == "json_object" else None


def _tools(body: Body, described: Callable[[Body], Any]) -> dict[str, Any]:
    """Read the function tools, and the one that must be called; `described` is where either has its name."""
    found: dict[str, Schema] = {}
    for index, tool in enumerate(_optional(body, "tools", list, [])):
        if not isinstance(tool, dict):
            raise _wrong_type(f"tools[{index}]", "an object", tool)
        if tool.get("type") != "function":
            continue
        function = described(tool)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise missing(f"tools[{index}].function.name")
        parameters = function.get("parameters")
        found[function["name"]] = parameters if isinstance(parameters, dict) else {"type": "object"}
    choice = body.get("tool_choice")
    forced: Any = None
    if choice == "required":
        if not found:
            raise ApiError(400, "'tool_choice' is 'required' but there are no 'tools'.", param="tool_choice")
        forced = next(iter(found))
    elif isinstance(choice, dict) and isinstance(named := described(choice), dict):
        forced = named.get("name")
        if forced is not None and (not isinstance(forced, str) or forced not in found):
            raise ApiError(400, f"Tool choice {forced!r} not found in 'tools' parameter.", param="tool_choice")
    return {"tools": found, "forced_tool": forced}


def _dumped(value: object) -> str:
    # The order of keys stays as sent: a provider sees a changed order as a changed prefix, and so do we.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _canonical(tools: object, form: object, messages: list[Any]) -> str:
    parts = [f"<|{name}|>{_dumped(value)}" for name, value in (("tools", tools), ("format", form)) if value]
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and not message.keys() - {"role", "content"}:
            parts.append(f"<|{message.get('role')}|>{content}")
        else:
            parts.append(f"<|message|>{_INLINE_IMAGE.sub(_short, _dumped(message))}")
    return "".join(parts)


def _short(image: re.Match[str]) -> str:
    return f'"{blake2b(image[0].encode("utf-8", "surrogatepass")).hexdigest()}"'
