"""How fallback, hedging and timeouts interact, and that nothing of a call outlives it."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import openai
import pytest

import fastlane
from fastlane import Call, Connection, Hedging, Play, Routing, Session
from fastlane.catalog import Catalog, CatalogModel
from tests.attempts.scripted import (
    EVENTS,
    MESSAGES,
    NO_ANSWERS,
    Asked,
    Script,
    Upstream,
    answer,
    answer_after,
    break_off,
    break_off_before,
    chunk,
    keep_alive,
    model_at,
    once,
    refuse,
    routing,
    say_nothing,
    used_to,
    used_to_routes,
)
from tests.transport.peer import Stream
from tests.waiting import happens, until


def hedging(**settings: Any) -> Hedging:
    return Hedging(**{"budget": 1.0, "minimum_delay_s": 0.05, **settings})


def alike(near: Upstream, far: Upstream, **settings: Any) -> Routing:
    """Routing between two upstreams that take about as long."""
    models = (model_at(near, first_token_s=0.010), model_at(far, first_token_s=0.011))
    return Routing(Catalog(models=models), **{"exploration": 0.0, **settings})


class Text(str):
    """One that can be looked for afterwards."""

    __slots__ = ("__weakref__",)


def prompt() -> tuple[list[Any], weakref.ref[Text]]:
    """Messages to pop and send, and a reference to their text."""
    text = Text("Name a river.")
    return [[{"role": "user", "content": text}]], weakref.ref(text)


def late(seconds: float, then: Script) -> Script:
    def script(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
        stream.hold_for(seconds)
        then(upstream, stream, body)

    return script


def begin_and_break_off(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    stream.head(200, (EVENTS,))
    stream.data(chunk(body["model"], {"content": "Rh"}))
    stream.hold_for(0.1)
    stream.rst(2)


# Answers that come at once


def test_first_token_timeout_ignores_unstreamed_response(kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = answer_after(0.2, "from near")
    with Asked(kind, near.url, routing(near, far, first_token_timeout_s=0.1, streams=False)) as asked:
        assert asked.warm(near).text().strip() == "from near"
    assert far.asked == []


def test_unstreamable_call_is_never_hedged(kind: str, near: Upstream) -> None:
    with Asked(kind, near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        near.usually = answer_after(0.15, "spoken")
        assert asked.text("m", modalities=["text", "audio"], audio={"voice": "x", "format": "wav"}).strip() == "spoken"
    assert len(near.asked) == 1
    assert asked.record.hedging.why_not == "the answer comes at once"


# What a second attempt takes from the call


def test_skipped_hedge_leaves_fallback_model_available(kind: str, near: Upstream, far: Upstream) -> None:
    with Asked(kind, near.url, alike(near, far), hedging(budget=1e-9)) as asked:
        first, other = used_to_routes(asked, near, far)
        first.usually = late(0.15, refuse(500))
        assert asked.text().strip() == f"from {other.name}"
        record = asked.record
    assert (record.hedging.hedged, record.hedging.why_not) == (False, "budget")
    assert [one.kind for one in record.attempts] == ["first", "fallback"]


def test_call_error_matches_record_when_both_attempts_fail(kind: str, near: Upstream) -> None:
    # Long enough for the first attempt to arrive first on a busy machine.
    with Asked(kind, near.url, hedging(minimum_delay_s=0.5), max_retries=1) as asked:
        used_to(asked, near, model="m")
        near.scripts = [
            once(lambda: len(near.asked) == 2, refuse(503)),
            once(lambda: len(near.answered) == 1, refuse(500, ("retry-after-ms", "1"))),
        ]
        near.usually = refuse(504)
        with pytest.raises(openai.InternalServerError) as raised:
            asked.text("m", stream=True)
        record = asked.record
    assert raised.value.status_code == record.status_code == 503
    attempts = [(one.kind, one.status_code) for one in record.attempts]
    assert attempts == [("hedge", 500), ("retry", 504), ("first", 503)]


def test_failed_winning_hedge_raises_its_own_error(kind: str, near: Upstream) -> None:
    with Asked(kind, near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        near.scripts = [say_nothing, begin_and_break_off]
        with pytest.raises(openai.APIConnectionError):
            asked.text("m")
        record = asked.record
    assert [(one.kind, one.given_up) for one in record.attempts] == [("first", "lost"), ("hedge", None)]
    assert record.attempts[-1].error == "RemoteProtocolError"


# Nothing is sent for a call that is over


class KeepsCall(Session):
    def __init__(self, call: Call) -> None:
        self.call = call

    def plan(self, call: Call) -> Call:
        return call.with_body("adds a user", user="me")

    def on_event(self, event: Any) -> None:
        """Be referred to by the state of the call."""


@pytest.mark.usefixtures("no_collection")
def test_hedge_still_being_prepared_is_neither_sent_nor_kept_after_response(near: Upstream) -> None:
    waits, may_go_on, is_opening = threading.Event(), threading.Event(), threading.Event()

    @dataclass(frozen=True)
    class Slow(Play):
        def open(self, call: Call) -> Session:
            if waits.is_set() and threading.current_thread() is not threading.main_thread():
                is_opening.set()
                assert may_go_on.wait(5)
            return KeepsCall(call)

    with Asked("sync", near.url, hedging(), Slow()) as asked:
        used_to(asked, near, model="m")
        near.scripts = [once(is_opening.is_set, answer("first"))]
        waits.set()
        messages, text = prompt()
        asked.client.chat.completions.create(model="m", messages=messages.pop())
        assert is_opening.is_set()
        may_go_on.set()
        until(lambda: text() is None)
        assert len(near.asked) == 1
        assert not asked.record.hedging.hedged


# Deadlines


WAITS = {"429": refuse(429, ("retry-after", "20")), "500": refuse(500, ("retry-after", "20")), "reset": break_off}


@pytest.mark.parametrize("failure", WAITS.values(), ids=list(WAITS))
def test_waits_end_at_the_deadline(failure: Script, kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = far.usually = failure
    # A refusal takes its time on a busy machine, and it has to arrive before the deadline.
    deadline = 0.2 if failure is break_off else 8
    began = time.monotonic()
    with (
        Asked(kind, near.url, routing(near, far, deadline_s=deadline), max_retries=5) as asked,
        pytest.raises((openai.APIStatusError, openai.APITimeoutError)) as raised,
    ):
        asked.text()
    assert time.monotonic() - began < 10
    if failure is not break_off:
        assert isinstance(raised.value, openai.APIStatusError)


# (The HTTP library's own generators, which trio wants closed.)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_first_token_timeout_falls_back_on_trio(near: Upstream, far: Upstream) -> None:
    near.usually = say_nothing
    play = routing(near, far, first_token_timeout_s=0.1)
    records: list[fastlane.CallRecord] = []

    async def asked() -> str | None:
        plays, url = [Connection(http2="require"), play, hedging()], near.url
        async with fastlane.AsyncOpenAI(
            api_key="sk-own", base_url=url, only_plays=plays, on_call_end=[records.append]
        ) as client:
            result = await client.chat.completions.create(model="fastlane/auto", messages=MESSAGES)
            return result.choices[0].message.content

    assert (anyio.run(asked, backend="trio") or "").strip() == "from far"
    gc.collect()  # here, where it is expected: the library has left a socket open, and a later test would be blamed
    assert [(one.kind, one.given_up) for one in records[0].attempts] == [("first", "late"), ("fallback", None)]


def test_custom_http_client_falls_back_on_first_token_timeout(near: Upstream, far: Upstream) -> None:
    own = CatalogModel(name="own", first_token_s=((1_000, 0.01),), tokens_per_s=100.0)
    play = Routing(Catalog(models=(own, model_at(far, first_token_s=0.5))), exploration=0.0, first_token_timeout_s=0.1)
    http_client = openai.DefaultAsyncHttpxClient(http2=True)
    with Asked("async", near.url, play, http_client=http_client) as asked:
        # Connected first: given up amid its handshake, that library leaves a socket open.
        assert asked.loop is not None
        asked.loop.run_until_complete(http_client.post(near.url, json={"model": "own"}))
        near.usually = keep_alive
        assert asked.warm(far).text().strip() == "from far"


# Answers that are none


@pytest.mark.parametrize("what", NO_ANSWERS)
def test_unreadable_response_falls_back(what: str, kind: str, near: Upstream, far: Upstream) -> None:
    near.usually = NO_ANSWERS[what]
    with Asked(kind, near.url, routing(near, far, streams=False)) as asked:
        assert asked.text().strip() == "from far"
    routed = asked.record.routing
    assert [one.why for one in routed.fallbacks] == ["server"]


# Nothing of a call is kept


async def answered_or_not(call: Awaitable[Any]) -> None:
    """(asyncio itself keeps an error that ends `run_until_complete`.)"""
    with suppress(openai.APIError):
        await call


SCENES: dict[str, tuple[Script, Script | None]] = {
    "the second wins": (say_nothing, answer("second")),
    "the first wins": (answer_after(0.12, "first"), say_nothing),
    "the next one answers": (refuse(500), None),
    "a page": (NO_ANSWERS["a page"], None),
    "breaks off": (break_off, None),
    "breaks off before content": (break_off_before, None),
    "all fail": (refuse(500), refuse(503)),
    "time is up": (say_nothing, say_nothing),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.usefixtures("no_collection")
def test_finished_call_needs_no_garbage_collection(scene: str, kind: str, near: Upstream, far: Upstream) -> None:
    # Only where time is what runs out is there little of it, and still enough for what comes before.
    deadline_s = 1.5 if scene == "time is up" else 20.0
    with Asked(kind, near.url, alike(near, far, deadline_s=deadline_s), hedging()) as asked:
        for upstream, script in zip(used_to_routes(asked, near, far), SCENES[scene], strict=True):
            if script is not None:
                upstream.scripts = [script]
        create = asked.client.chat.completions.create
        messages, text = prompt()
        if asked.loop is None:
            with suppress(openai.APIError):
                create(model="fastlane/auto", messages=messages.pop())
            until(lambda: text() is None)
        else:
            asked.loop.run_until_complete(answered_or_not(create(model="fastlane/auto", messages=messages.pop())))
            asked.loop.run_until_complete(happens(lambda: text() is None))
