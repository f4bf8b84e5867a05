"""Make bodies from arguments, and typed objects from bodies, as the methods of openai's resources do."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import openai


def with_response_format(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a class given as `response_format` by the JSON that `chat.completions.parse()` sends.

    Raises TypeError for a class that openai does not take.
    """
    form = arguments.get("response_format")
    if not isinstance(form, type):
        return dict(arguments)
    from openai.lib._parsing._completions import type_to_response_format_param

    return {**arguments, "response_format": type_to_response_format_param(form)}


def with_text_format(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a class given as `text_format` by the JSON that `responses.parse()` sends.

    Raises TypeError for a class that openai does not take.
    """
    form = arguments.get("text_format")
    if not isinstance(form, type):
        return dict(arguments)
    from openai.lib._parsing._responses import type_to_text_format_param

    others = {name: value for name, value in arguments.items() if name != "text_format"}
    return {**others, "text": {**(arguments.get("text") or {}), "format": type_to_text_format_param(form)}}


def strict_json_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema with closed objects, required properties and bare references, as openai's helpers make it.

    None for a malformed or infinitely recursive schema, and if openai's helper is missing.
    """
    try:
        from openai.lib._pydantic import _ensure_strict_json_schema

        made = copy.deepcopy(dict(schema))
        return _ensure_strict_json_schema(made, path=(), root=made)
    except Exception:  # noqa: BLE001 - the schema is sent unchanged, and the provider validates it
        return None


def json_bytes(body: object) -> bytes:
    """Write a body as openai does. Raises TypeError or ValueError for values that are not JSON."""
    from openai._utils._json import openapi_dumps

    return openapi_dumps(body)


def typed_answer(kind: Any, body: bytes, request_id: str | None) -> Any:
    """Make openai's typed object from a response's JSON body, without validation."""
    from openai._models import add_request_id, construct_type

    built: Any = construct_type(type_=kind, value=json.loads(body))
    add_request_id(built, request_id)
    return built


def parsed_chat_completion(completion: Any, response_format: type) -> Any:
    """Parse the text of a chat completion, as `chat.completions.parse()` does."""
    from openai.lib._parsing import parse_chat_completion

    return _with_id_of(
        completion,
        parse_chat_completion(response_format=response_format, input_tools=openai.omit, chat_completion=completion),
    )


def parsed_response(response: Any, text_format: type) -> Any:
    """Parse the text of a response, as `responses.parse()` does."""
    from openai.lib._parsing._responses import parse_response

    return _with_id_of(response, parse_response(text_format=text_format, input_tools=openai.omit, response=response))


def _with_id_of(answer: Any, parsed: Any) -> Any:
    parsed._request_id = answer._request_id
    return parsed
