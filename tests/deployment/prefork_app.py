"""An ASGI application whose client is made, and used, in gunicorn's master before the workers are forked."""

from __future__ import annotations

import json
import os
from typing import Any

import fastlane

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]

client = fastlane.AsyncOpenAI(max_retries=0)
fastlane.OpenAI(max_retries=0).chat.completions.create(model="m", messages=MESSAGES)  # opens a connection in the master


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Make one streamed call for each HTTP request."""
    if scope["type"] != "http":
        return
    text = ""
    stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True, max_tokens=20)
    async for chunk in stream:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    record = fastlane.record_of(stream)
    assert record is not None
    answer = {"worker": os.getpid(), "text": text, "reused": record.connection_reused, "outcome": record.outcome}
    body = json.dumps(answer).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
