"""An embedded provider with tiers, over TLS and HTTP/2, and clients that know them as OpenAI's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import fastlane
from fastlane import CallRecord, Connection, Play, Urgency
from fastlane.emulator import Emulator
from tests.attempts.scripted import Upstream

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]
MODEL = "gpt-5.4"
KINDS = ("sync", "async")


class Caller:
    """A client of one kind, called in the same way whatever the kind."""

    def __init__(self, kind: str, provider: Emulator | Upstream, *plays: Play, **options: Any) -> None:
        url = provider.base_url if isinstance(provider, Emulator) else provider.url
        settings = {"base_url": url, "api_key": "sk-test", "raise_play_errors": True, **options}
        self.is_async = kind == "async"
        made: Callable[..., Any] = fastlane.AsyncOpenAI if self.is_async else fastlane.OpenAI
        self.client = made(only_plays=[Connection(), *(plays or (Urgency(tiers=True),))], **settings)

    async def call(self, *, level: Any = None, stream: bool = False, **more: Any) -> Any:
        """Make a call, and read it whole."""
        arguments = {"model": MODEL, "messages": MESSAGES, "stream": stream, **more}
        with nullcontext() if level is None else fastlane.urgency(level):
            result = self.client.chat.completions.create(**arguments)
            if self.is_async:
                result = await result
        if not stream:
            return result
        return [event async for event in result] if self.is_async else list(result)

    @property
    def last(self) -> CallRecord:
        """The record of the last call."""
        record = self.client.last_call
        assert record is not None
        assert isinstance(record, CallRecord)
        return record

    async def close(self) -> None:
        """Close the client."""
        if self.is_async:
            await self.client.close()
        else:
            self.client.close()


def statuses(record: CallRecord) -> list[tuple[str, int | None]]:
    """Why each attempt was made, and what came."""
    return [(attempt.kind, attempt.status_code) for attempt in record.attempts]
