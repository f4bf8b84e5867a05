"""Whoever does the steps of a sending: how long a probe may take, what it leaves out, and who is kept waiting."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio.to_thread
import httpx2
import openai
import pytest

import fastlane
from fastlane.engine.drivers import async_run as async_driven, run as driven
from fastlane.engine.effects import Await, Flow
from fastlane.knowledge.table import Table
from fastlane.plays.request_encoding import sending_flow
from fastlane.plays.request_encoding._sending import Send, Sending
from fastlane.plays.request_encoding.plan import Encode
from fastlane.plays.request_encoding.sending_flow import send_encoded

ORIGIN = "https://api.example.com:443"
TEXT = " ".join(f"Sentence {number} of the text that is to be looked at." for number in range(6_000))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    Table.clear_all()
    yield
    Table.clear_all()


def request(**headers: str) -> httpx2.Request:
    address = f"{ORIGIN}/v1/chat/completions"
    return httpx2.Request("POST", address, json={"model": "m", "prompt": TEXT}, headers=headers)


def sending(**settings: Any) -> Sending:
    encode = Encode(**{"forms": ("json+gzip",), "known": False, "probe": True, "uplink_bytes_per_s": 1e5, **settings})

    def went_wrong(what: str, doing: str, error: Exception) -> None:
        raise error

    return Sending(encode, origin=ORIGIN, endpoint="/chat/completions", model="m", went_wrong=went_wrong)


def run(one: Sending, asked: httpx2.Request, http: httpx2.Client, attempt: Callable[[Send], Any]) -> Any:
    def send(step: Send) -> Flow:
        yield from ()
        return attempt(step)

    return driven(send_encoded(one, asked, http, send, http.send, {"follow_redirects": False}, asynchronous=False))


async def async_run(
    one: Sending, asked: httpx2.Request, http: httpx2.AsyncClient, attempt: Callable[[Send], Any]
) -> Any:
    def send(step: Send) -> Flow:
        return (yield Await(attempt(step)))

    flow = send_encoded(one, asked, http, send, http.send, {"follow_redirects": False}, asynchronous=True)
    return await async_driven(flow)


class Dribble(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes byte by byte and has no end; it says how often it was read and whether it was closed."""

    def __init__(self, data: Callable[[], Iterator[bytes]], passes: Callable[[], None]) -> None:
        self._data, self._passes = data, passes
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._data():
            self._passes()
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def compressed_nothing() -> Iterator[bytes]:
    """Bytes of a compressed body that never become any of the body itself."""
    yield gzip.compress(b"")[:10]
    while True:
        yield b"\x00\x00\x00\xff\xff"  # an empty block


def one_letter() -> Iterator[bytes]:
    while True:
        yield b"x"


def drive(asynchronous: bool, answer: Callable[[httpx2.Request], httpx2.Response]) -> Any:
    """The response of a call of which the probe meets `answer`, and the record of its body."""
    one, response = sending(), httpx2.Response(200)
    if asynchronous:

        async def ask() -> Any:
            async def attempt(step: Send) -> Any:
                return response

            async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
                return await async_run(one, request(), http, attempt)

        assert asyncio.run(ask()) is response
    else:
        with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
            assert run(one, request(), http, lambda step: response) is response
    return one.record(None)


@pytest.mark.parametrize("data", [compressed_nothing, one_letter])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_answer_to_a_probe_that_dribbles_in_is_given_up(
    asynchronous: bool, data: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, reads = [0], [0]
    monkeypatch.setattr(sending_flow, "now_ns", lambda: clock[0])

    def passes() -> None:
        clock[0] += 10**9
        reads[0] += 1
        assert reads[0] < 100, "an answer without an end is read on and on"

    body = Dribble(data, passes)
    headers = {"content-encoding": "gzip"} if data is compressed_nothing else {}

    record = drive(asynchronous, lambda request: httpx2.Response(400, headers=headers, stream=body))

    assert record.form == "json"
    assert record.probed
    assert body.closed
    assert reads[0] < 10 * 5  # five requests at most, of a few seconds each


@pytest.mark.asyncio
async def test_a_head_that_never_ends_holds_up_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending_flow, "_MOST_ASKING_S", 0.05)

    async def never(request: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def attempt(step: Send) -> Any:
        return httpx2.Response(200)

    one = sending()
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(never)) as http:
        await async_run(one, request(), http, attempt)

    assert "TimeoutError" in one.record(None).reason


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_compressed_answer_to_a_probe_is_read(asynchronous: bool) -> None:
    def answer(asked: httpx2.Request) -> httpx2.Response:
        said = gzip.compress(b"wrong: " + gzip.decompress(asked.content))
        return httpx2.Response(400, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(said))

    assert drive(asynchronous, answer).form == "json+gzip"


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Idempotency-Key", "X-Own-Idempotent-Id"])
def test_a_probe_uses_up_no_key_of_a_call(name: str) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(400)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        call = request(**{name: "one"})
        run(sending(), call, http, lambda step: httpx2.Response(200))

    assert asked
    assert not any(name in each.headers for each in asked)
    assert call.headers[name] == "one"


@pytest.mark.asyncio
async def test_a_large_body_needs_none_of_the_applications_threads() -> None:
    """Where synchronous code of a server runs in anyio's threads, all of them may wait for a call each."""
    assert len(request().content) > sending_flow._LARGE_BYTES
    threads = anyio.to_thread.current_default_thread_limiter()
    written = []

    async def attempt(step: Send) -> Any:
        written.append(step.form)
        return httpx2.Response(200)

    async def call() -> None:
        async with httpx2.AsyncClient() as http:
            await async_run(sending(known=True), request(), http, attempt)

    taken = [object() for _ in range(int(threads.available_tokens))]
    for borrower in taken:
        await threads.acquire_on_behalf_of(borrower)
    try:
        with anyio.fail_after(20):
            await call()
    finally:
        for borrower in taken:
            threads.release_on_behalf_of(borrower)

    assert written == ["json+gzip"]


class Stubborn(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body whose connection breaks while it is closed."""

    def close(self) -> None:
        raise httpx2.ReadError("broken")

    async def aclose(self) -> None:
        raise httpx2.ReadError("broken")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_refusal_that_cannot_be_closed_costs_no_call(asynchronous: bool) -> None:
    answers = [httpx2.Response(415, stream=Stubborn()), httpx2.Response(200)]
    if asynchronous:

        async def attempt(step: Send) -> Any:
            return answers.pop(0)

        async def call() -> Any:
            async with httpx2.AsyncClient() as http:
                return await async_run(sending(known=True), request(), http, attempt)

        assert asyncio.run(call()).status_code == 200
    else:
        with httpx2.Client() as http:
            assert run(sending(known=True), request(), http, lambda step: answers.pop(0)).status_code == 200


@pytest.mark.asyncio
async def test_a_call_that_is_cancelled_while_it_asks_leaves_the_question_to_others() -> None:
    begun, asked = asyncio.Event(), 0

    async def never(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def attempt(step: Send) -> Any:
        raise AssertionError

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(never)) as http:
        for number in (1, 2):
            task = asyncio.ensure_future(async_run(sending(), request(), http, attempt))
            await begun.wait()
            begun.clear()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert (task.cancelled(), asked) == (True, number)


def test_a_probe_that_is_interrupted_leaves_the_question_to_others() -> None:
    asked = 0

    def interrupted(request: httpx2.Request) -> httpx2.Response:
        nonlocal asked
        asked += 1
        raise KeyboardInterrupt

    with httpx2.Client(transport=httpx2.MockTransport(interrupted)) as http:
        for number in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                run(sending(), request(), http, lambda step: httpx2.Response(200))
            assert asked == number


class Late(fastlane.OpenAI):
    """A client whose key is put in when a request is sent, as openai's clients with a workload's identity do."""

    def _send_with_auth_retry(self, request: Any, **options: Any) -> Any:
        request.headers["authorization"] = "Bearer real"
        return super()._send_with_auth_retry(request, **options)


def test_a_probe_has_the_key_that_is_put_in_when_a_request_is_sent() -> None:
    keys: list[str] = []

    def answer(asked: httpx2.Request) -> httpx2.Response:
        keys.append(asked.headers["authorization"])
        return httpx2.Response(307, headers={"location": "https://elsewhere.example.com/"})

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer), follow_redirects=False) as http,
        Late(
            api_key="k",
            base_url=f"{ORIGIN}/v1",
            http_client=http,
            only_plays=[fastlane.Encoding(probe=True)],
            max_retries=0,
        ) as client,
    ):
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": TEXT}])

        assert client.last_call is not None
        assert client.last_call.encoding is not None
        assert client.last_call.encoding.probed
        assert len(client.last_call.attempts) == 1
    assert keys == ["Bearer real"] * 4  # three of the probe, none of them redirected, and the call


def test_a_probe_waits_no_longer_than_the_application_would() -> None:
    waits: list[dict[str, float]] = []

    def answer(asked: httpx2.Request) -> httpx2.Response:
        waits.append(asked.extensions["timeout"])
        return httpx2.Response(400)

    call = request()
    call.extensions["timeout"] = {"connect": 0.1, "read": None, "write": 600.0}
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        run(sending(), call, http, lambda step: httpx2.Response(200))

    assert waits[0] == {"connect": 0.1, "read": 2.0, "write": 2.0, "pool": 2.0}
    assert call.extensions["timeout"] == {"connect": 0.1, "read": None, "write": 600.0}
