"""What the emulator's tests send and read."""

from __future__ import annotations

import json
from typing import Any

import httpx2


def chat(text: str = "Review this.", **more: Any) -> dict[str, Any]:
    return {"model": "some-model", "messages": [{"role": "user", "content": text}], **more}


def stream(client: httpx2.Client, body: dict[str, Any], *, fault: str | None = None, **headers: str) -> str:
    """Stream a chat completion and return what came; raises what the client raises."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if fault:
        sent["x-emulator-fault"] = fault
    with client.stream("POST", "/chat/completions", json={**body, "stream": True}, headers=sent) as response:
        response.raise_for_status()
        return "".join(response.iter_text())


def events(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream, without [DONE] and comments."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def content(text: str) -> str:
    return "".join(
        choice["delta"].get("content") or "" for event in events(text) for choice in event["choices"] if choice
    )
