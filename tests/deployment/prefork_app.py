"""An ASGI application whose clients are made, and one is used, when it is imported: with gunicorn --preload, by the
master before the workers are forked."""

from __future__ import annotations

import json
import os
from typing import Any

import fastlane
from fastlane import RateLimits

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]

telemetry = fastlane.telemetry.configure()
limits = RateLimits(requests_per_minute=1_000_000, store=os.environ["REDIS_URL"])
client = fastlane.AsyncOpenAI(max_retries=0, plays=[limits])
# Opens a connection, and starts all threads.
fastlane.OpenAI(max_retries=0, plays=[limits]).chat.completions.create(model="m", messages=MESSAGES)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Make one streamed call for each HTTP request."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        telemetry.force_flush()  # uvicorn ends by the signal that it got, and then no `atexit` function runs
        await send({"type": "lifespan.shutdown.complete"})
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
