"""Clients whose answers are begun before anything else is done with them, over each kind of transport."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection
from fastlane._clock import now_ns
from fastlane.engine.drivers import async_run, run
from fastlane.engine.first_content import peek
from fastlane.protocol.first_content import FirstContent, Verdict
from tests.waiting import SYNC, Form, inner_of


def begun(response: Any, endpoint: str, *, first: FirstContent | None = None) -> Verdict:
    """Peek at the response of a sync client."""
    verdict: Verdict = run(peek(response, endpoint, asynchronous=False, first=first))
    return verdict


async def async_begun(response: Any, endpoint: str, *, first: FirstContent | None = None) -> Verdict:
    """Peek at the response of an async client."""
    verdict: Verdict = await async_run(peek(response, endpoint, asynchronous=True, first=first))
    return verdict


OWN = ("HTTP/2", "HTTP/1.1")
WAYS = (*OWN, "httpx2", "httpx")
"""Our own transport over each protocol, and the transports of HTTP clients of the application's own."""


@dataclass
class Seen:
    """What was seen of the answers of one client."""

    endpoint: str = "/chat/completions"
    verdicts: list[Verdict] = field(default_factory=list)
    firsts: list[FirstContent] = field(default_factory=list)
    responses: list[Any] = field(default_factory=list)
    streams: list[Any] = field(default_factory=list)
    """Each answer's stream as it was before."""
    errors: list[Exception] = field(default_factory=list)
    returned_ns: int = 0
    """When it was known how the last one begins."""

    def _looking(self, response: Any) -> FirstContent:
        self.responses.append(response)
        self.streams.append(response.stream)
        self.firsts.append(FirstContent(self.endpoint))
        return self.firsts[-1]

    def look(self, response: Any) -> None:
        first = self._looking(response)
        try:
            self.verdicts.append(begun(response, self.endpoint, first=first))
        except Exception as error:
            self.errors.append(error)
            response.close()
            raise
        self.returned_ns = now_ns()

    async def async_look(self, response: Any) -> None:
        first = self._looking(response)
        try:
            self.verdicts.append(await async_begun(response, self.endpoint, first=first))
        except Exception as error:
            self.errors.append(error)
            await response.aclose()
            raise
        self.returned_ns = now_ns()

    def forget(self) -> None:
        """Keep nothing alive."""
        self.responses.clear()
        self.streams.clear()
        self.errors.clear()


def _library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


@contextmanager
def looking(way: str, seen: Seen, arguments: dict[str, Any], form: Form = SYNC, **options: Any) -> Iterator[Any]:
    """A client that looks at each answer where its HTTP client hands it out, before our own code sees it."""
    hooks = {"response": [seen.async_look if form.asynchronous else seen.look]}
    given = {**arguments, "max_retries": 0, "raise_play_errors": True, **options}
    if way in OWN:
        plays = [Connection(http2="require" if way == "HTTP/2" else "never")]
        made = form.make(fastlane, **given, only_plays=plays)
        inner_of(made)._client.event_hooks = hooks
    else:
        kind = _library(way).AsyncClient if form.asynchronous else _library(way).Client
        made = form.make(fastlane, **given, http_client=kind(event_hooks=hooks, timeout=None))
    with made:
        yield made


MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]


def opened(client: Any, **options: Any) -> Any:
    return client.chat.completions.create(model="m", messages=MESSAGES, stream=True, **options)


async def async_opened(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=MESSAGES, stream=True, **options)


def text_of(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
