"""Both forms of one answer of the embedded provider, as JSON, and what openai's own code makes of events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import fastlane
from fastlane.protocol.assembly import AnswerCut, Assembly, assembly_of
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES

MESSAGES = [{"role": "user", "content": "Name a river."}]
TOOL = {
    "name": "file_ticket",
    "parameters": {
        "type": "object",
        "properties": {"category": {"enum": ["billing", "shipping"]}, "note": {"type": "string", "maxLength": 20}},
        "required": ["category", "note"],
        "additionalProperties": False,
    },
}

Events = list[dict[str, Any]]


def _resource(client: fastlane.OpenAI, endpoint: str) -> Any:
    resources = {CHAT: client.chat.completions, COMPLETIONS: client.completions, RESPONSES: client.responses}
    return resources[endpoint]


def request(endpoint: str, **more: Any) -> dict[str, Any]:
    asks: dict[str, dict[str, Any]] = {
        CHAT: {"messages": MESSAGES},
        COMPLETIONS: {"prompt": "Name a river."},
        RESPONSES: {"input": "Name a river."},
    }
    return {"model": "m", **asks[endpoint], **more}


def whole(client: fastlane.OpenAI, endpoint: str, **asked: Any) -> dict[str, Any]:
    """The answer that is not streamed."""
    answer = _resource(client, endpoint).with_raw_response.create(**asked)
    found: dict[str, Any] = json.loads(answer.content)
    return found


def streamed(client: fastlane.OpenAI, endpoint: str, **asked: Any) -> Events:
    """The events of the same answer, streamed."""
    with _resource(client, endpoint).with_streaming_response.create(stream=True, **asked) as answer:
        return events_in(answer.iter_lines())


def events_in(lines: Iterable[str]) -> Events:
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def assembled(endpoint: str, events: Iterable[Any], *, choices: int = 1) -> Assembly:
    assembly = assembly_of(endpoint, choices=choices)
    assert assembly is not None
    for event in events:
        assembly.take(event)
    return assembly


def without_ids(value: Any) -> Any:
    """An answer apart from what the provider numbers anew for each request."""
    if isinstance(value, Mapping):
        return {name: without_ids(inner) for name, inner in value.items() if name not in ("id", "call_id", "item_id")}
    if isinstance(value, list):
        return [without_ids(inner) for inner in value]
    return value


def body(endpoint: str, events: Iterable[Any], cut: AnswerCut | None = None) -> dict[str, Any]:
    return assembled(endpoint, events).body(cut)
