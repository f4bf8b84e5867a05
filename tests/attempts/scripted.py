"""Upstreams that answer chat completions as a test says, and clients that choose between them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns as now_ns
from typing import Any, Self

import fastlane
from fastlane import Connection, Hedging, Routing
from fastlane.catalog import Catalog, CatalogModel
from fastlane.knowledge.sightings import Sighting, Upstream as ModelAt
from tests.attempts import events
from tests.attempts.events import DONE, data
from tests.transport.peer import Peer, Stream
from tests.waiting import Form, inner_of

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
EVENTS = ("content-type", "text/event-stream")
JSON = ("content-type", "application/json")
KINDS = ("sync", "async")

Script = Callable[["Upstream", Stream, dict[str, Any]], None]


def chunk(model: str, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return data(events.chunk(choice, **{"model": model, **more}))


def end(stream: Stream, model: str, output_tokens: int | None) -> None:
    """End a stream, with its usage if the number of tokens is given."""
    stream.data(chunk(model, {}, "stop"))
    if output_tokens is not None:
        usage = {"prompt_tokens": 5, "completion_tokens": output_tokens, "total_tokens": 5 + output_tokens}
        stream.data(data(events.chunk(model=model, usage=usage)))
    stream.data(DONE, end=True)


def wants_usage(body: dict[str, Any]) -> bool:
    """Whether the request wants a stream's usage."""
    return bool((body.get("stream_options") or {}).get("include_usage"))


def whole(model: str, content: str | None) -> bytes:
    """A whole answer."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


def answer(text: str) -> Script:
    """Answer with this text, as a stream if the request wants one."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        model = body["model"]
        if not body.get("stream"):
            stream.answer(whole(model, text), 200, (JSON,))
            return
        stream.head(200, (EVENTS,))
        stream.data(chunk(model, {"role": "assistant", "content": ""}))
        for piece in text.split(" "):
            stream.data(chunk(model, {"content": piece + " "}))
        end(stream, model, 2 if wants_usage(body) else None)

    return script


def say(status: int, content_type: str, body: bytes) -> Script:
    """Answer with this body."""

    def script(upstream: Upstream, stream: Stream, asked: dict[str, Any]) -> None:
        stream.answer(body, status, (("content-type", content_type),))

    return script


NO_ANSWERS = {
    "a page": say(200, "text/html; charset=utf-8", b"<html>Please sign in</html>"),
    "broken JSON": say(200, "application/json", b'{"choices": [{"mess'),
}
"""What no application could use."""


def refuse(status: int, *headers: tuple[str, str], code: str | None = None, param: str | None = None) -> Script:
    """Answer with an error."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        error_body = json.dumps(
            {"error": {"message": f"no {param or ''}", "type": "t", "code": code, "param": param}}
        ).encode()
        stream.answer(error_body, status, (JSON, *headers))

    return script


def break_off(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Reset the stream."""
    stream.rst(2)


def say_nothing(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Take the request, and answer nothing until the client leaves."""
    upstream.silent.append(stream)
    stream.hold_until_left()


def keep_alive(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Send comments and a role, and nothing of an answer, until the client leaves."""
    upstream.silent.append(stream)
    stream.head(200, (EVENTS,))
    stream.data(chunk(body["model"], {"role": "assistant", "content": ""}))
    while True:
        stream.data(b": still here\n\n")
        stream.hold_for(0.05)


def answer_without_content(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Answer in good order, without anything."""
    if not body.get("stream"):
        stream.answer(whole(body["model"], None), 200, (JSON,))
        return
    stream.head(200, (EVENTS,))
    stream.data(chunk(body["model"], {"role": "assistant", "content": ""}))
    stream.data(chunk(body["model"], {}, "stop"))
    stream.data(b"data: [DONE]\n\n", end=True)


def fail_in_the_stream(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Begin a stream, and say in it that it failed."""
    stream.head(200, (EVENTS,))
    stream.data(b'data: {"error": {"message": "overloaded", "type": "server_error", "code": null}}\n\n', end=True)


def break_off_before(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Send the head of an answer and its role, and reset the stream."""
    stream.head(200, (EVENTS,))
    stream.data(chunk(body["model"], {"role": "assistant", "content": ""}))
    stream.rst(2)


def break_off_after(text: str) -> Script:
    """Send some of an answer, and reset the stream."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        stream.head(200, (EVENTS,))
        stream.data(chunk(body["model"], {"content": text}))
        upstream.may_break.wait(20)
        stream.rst(2)

    return script


def once(condition: Callable[[], bool], then: Script) -> Script:
    """Follow a script soon after a condition holds, unless the client leaves before."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        upstream.silent.append(stream)
        while not condition():
            stream.hold_for(0.01)
        stream.hold_for(0.1)  # the client reads meanwhile what another connection has sent
        then(upstream, stream, body)

    return script


def answer_after(seconds: float, text: str) -> Script:
    """Answer late, unless the client leaves before."""

    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        upstream.silent.append(stream)
        stream.hold_for(seconds)
        answer(text)(upstream, stream, body)

    return script


@dataclass
class Upstream:
    """A server that follows its scripts, one for each request, and then `usually`."""

    name: str
    scripts: list[Script] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    answered: list[Stream] = field(default_factory=list)
    """Requests whose response has been sent to its end."""
    silent: list[Stream] = field(default_factory=list)
    """Requests that got no answer, or a late one."""
    may_break: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.usually: Script = answer(f"from {self.name}")
        self._peer = Peer(self._respond)
        self.url = f"{self._peer.url}/v1"

    def __enter__(self) -> Self:
        self._peer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.may_break.set()
        self._peer.__exit__(kind)

    def _respond(self, stream: Stream) -> None:
        body = json.loads(stream.body())
        self.asked.append(body)
        self.keys.append(stream.header("authorization"))
        self.connections.append(stream.connection.number)
        script = self.scripts.pop(0) if self.scripts else self.usually
        script(self, stream, body)
        self.answered.append(stream)


def model_at(upstream: Upstream, *, first_token_s: float, **more: Any) -> CatalogModel:
    """A model of the catalog that is at an upstream."""
    return CatalogModel(
        name=upstream.name,
        model=f"{upstream.name}-1",
        base_url=upstream.url,
        first_token_s=((1_000, first_token_s),),
        tokens_per_s=100.0,
        endpoints=("/chat/completions", "/responses", "/completions"),
        capabilities=frozenset({"tools", "json", "json_strict"}),
        **more,
    )


@contextmanager
def two_upstreams() -> Iterator[tuple[Upstream, Upstream]]:
    """Two servers, "near" and "far"."""
    with Upstream("near") as near, Upstream("far") as far:
        yield near, far


def routing(near: Upstream, far: Upstream, **settings: Any) -> Routing:
    """Routing between two upstreams, of which "near" is the faster by what is known beforehand; no exploration."""
    models = (model_at(near, first_token_s=0.01), model_at(far, first_token_s=0.5))
    return Routing(Catalog(models=models), **{"exploration": 0.0, **settings})


def used_to(asked: Asked, *upstreams: Upstream, model: str) -> None:
    """Make so many calls that a client knows when an answer of these upstreams is late."""
    for _ in range(22):
        asked.text(model)
    forget_calls(*upstreams)


def used_to_routes(asked: Asked, *upstreams: Upstream) -> tuple[Upstream, ...]:
    """The same for the models of a route: two calls are made, and the others are reported. The one asked last first."""
    for _ in range(2):
        asked.text()
    routed, time_ns = asked.record.routing, now_ns()
    for play in asked.client._fastlane.pipeline.plays:
        if isinstance(play, Hedging):
            play.memory.budget.earn(20_000)
            for upstream in upstreams:
                at = ModelAt(f"{upstream.name}-1", upstream.url.removesuffix("/v1"))
                for _ in range(20):
                    seen = Sighting(model=at.model, origin=at.origin, uncached_tokens=10.0, first_token_s=0.005)
                    play.memory.lateness(at).note(seen, time_ns)
    forget_calls(*upstreams)
    return tuple(sorted(upstreams, key=lambda upstream: upstream.name != routed.chosen))


def forget_calls(*upstreams: Upstream) -> None:
    for upstream in upstreams:
        upstream.connections.clear()
        upstream.asked.clear()
        upstream.answered.clear()


class Asked:
    """A client of either kind, with one entry point."""

    def __init__(self, kind: str, base_url: str, *plays: fastlane.Play, **options: Any) -> None:
        arguments: dict[str, Any] = {
            "api_key": "sk-own",
            "base_url": base_url,
            "max_retries": 0,
            "raise_play_errors": True,
        }
        arguments |= {"only_plays": [Connection(http2="require"), *plays], **options}
        self._form = Form(kind)
        self._waiting = self._form.make(fastlane, **arguments)
        self.client: Any = inner_of(self._waiting)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()
        self._form.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of an async client."""
        return self._form.loop

    def warm(self, *upstreams: Upstream) -> Self:
        """Connect to these, so that a short timeout is over for want of an answer and not of a connection."""
        for upstream in upstreams:
            # Its connections are in the pool that all clients with these settings share.
            plays = [Connection(http2="require")]
            with self._form.make(fastlane, api_key="sk-own", base_url=upstream.url, only_plays=plays) as client:
                assert client.warm()
        return self

    def text(self, model: str = "fastlane/auto", *, stream: bool = False, **options: Any) -> str:
        """What a call answers."""
        create = self._waiting.chat.completions.create
        result = create(model=model, messages=MESSAGES, stream=stream, **options)
        if not stream:
            return result.choices[0].message.content or ""
        return "".join(choice.delta.content or "" for event in result for choice in event.choices).strip()

    def opened(self, model: str) -> Any:
        """A stream of which nothing was read."""
        return self._waiting.chat.completions.create(model=model, messages=MESSAGES, stream=True)

    @property
    def record(self) -> Any:
        """Of the last call."""
        return self.client.last_call
