"""The events of an answer of the embedded provider, as JSON, and what they are put together to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import fastlane
from fastlane.protocol.assembly import AnswerCut, Assembly, assembly_of
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES

MESSAGES = [{"role": "user", "content": "Name a river."}]
Events = list[dict[str, Any]]


def request(endpoint: str, **more: Any) -> dict[str, Any]:
    asks: dict[str, dict[str, Any]] = {
        CHAT: {"messages": MESSAGES},
        COMPLETIONS: {"prompt": "Name a river."},
        RESPONSES: {"input": "Name a river."},
    }
    return {"model": "m", **asks[endpoint], **more}


def streamed(client: fastlane.OpenAI, endpoint: str, **asked: Any) -> Events:
    """The events of an answer."""
    resources: Any = {CHAT: client.chat.completions, COMPLETIONS: client.completions, RESPONSES: client.responses}
    with resources[endpoint].with_streaming_response.create(stream=True, **asked) as answer:
        data = [line.removeprefix("data:").strip() for line in answer.iter_lines() if line.startswith("data:")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def assembled(endpoint: str, events: Iterable[Any], *, choices: int = 1) -> Assembly:
    assembly = assembly_of(endpoint, choices=choices)
    assert assembly is not None
    for event in events:
        assembly.take(event)
    return assembly


def body(endpoint: str, events: Iterable[Any], cut: AnswerCut | None = None) -> dict[str, Any]:
    return assembled(endpoint, events).body(cut)
