"""If the stock client's requests are intercepted, and under trio, the library's own transport is used."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import openai
import pytest
import trio

import fastlane
from fastlane.emulator import Emulator
from tests.programs import run_python
from tests.transport.callers import CALLERS, request
from tests.transport.resources import descriptors
from tests.waiting import until

BASES = openai._base_client.SyncHttpxClientWrapper.__mro__
LIBRARY = next(base.__module__.partition(".")[0] for base in BASES if base.__module__.startswith("httpx"))
http: Any = importlib.import_module(LIBRARY)
core: Any = importlib.import_module(LIBRARY.replace("httpx", "httpcore"))

MODELS = b'{"object": "list", "data": []}'


@pytest.fixture
def asynchronous(make_caller: Any) -> bool:
    return make_caller is CALLERS["async"]


@pytest.fixture
def prefix(asynchronous: bool) -> str:
    return "Async" if asynchronous else ""


@pytest.fixture
def method(asynchronous: bool) -> str:
    return "handle_async_request" if asynchronous else "handle_request"


def mocking(answer: Any, *, asynchronous: bool) -> Callable[..., Any]:
    """A method that answers every request with the same."""

    def mocked(self: Any, request: Any) -> Any:
        return answer

    async def amocked(self: Any, request: Any) -> Any:
        return answer

    return amocked if asynchronous else mocked


def models(caller: Any) -> list[Any]:
    return list(caller.waiting.models.list())


@pytest.mark.parametrize("owner", ["ConnectionPool", "HTTPConnection"])
def test_mocked_connection_pool_answers_until_the_mock_is_gone(
    make_caller: Any,
    arguments: dict[str, Any],
    provider: Emulator,
    asynchronous: bool,
    prefix: str,
    method: str,
    owner: str,
) -> None:
    with make_caller(**arguments, max_retries=0) as caller:
        assert models(caller)
        provider.clear()
        with pytest.MonkeyPatch.context() as patch:
            answer = core.Response(200, headers=[(b"content-type", b"application/json")], content=MODELS)
            patch.setattr(getattr(core, prefix + owner), method, mocking(answer, asynchronous=asynchronous))
            assert not models(caller)
        assert models(caller)

        assert len(provider.log()) == 1
        assert [call.transport for call in caller.calls] == ["fastlane", "stock", "fastlane"]


def test_wrapped_transport_sees_every_request(
    make_caller: Any, arguments: dict[str, Any], prefix: str, method: str, asynchronous: bool
) -> None:
    seen: list[int] = []
    owner = getattr(http, prefix + "HTTPTransport")
    original = getattr(owner, method)

    @functools.wraps(original)
    def wrapped(self: Any, request: Any) -> Any:
        answer = original(self, request)
        seen.append(answer.status_code)
        return answer

    @functools.wraps(original)
    async def awrapped(self: Any, request: Any) -> Any:
        answer = await original(self, request)
        seen.append(answer.status_code)
        return answer

    # Settings of its own: another test may have left a connection open.
    with make_caller(**arguments, max_retries=0, only_plays=[fastlane.Connection(idle_s=298)]) as caller:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, method, awrapped if asynchronous else wrapped)
            for _ in range(2):
                caller.ask(output_tokens=3)
            assert caller.read(output_tokens=3)
        caller.ask()

        assert seen == [200, 200, 200]
        assert [call.transport for call in caller.calls] == ["stock", "stock", "stock", "fastlane"]
        assert [call.connection_reused for call in caller.calls] == [False, True, True, False]
        assert [call.attempts[0].http_version for call in caller.calls[2:]] == ["HTTP/1.1", "HTTP/2"]
        assert caller.calls[2].time_to_first_token_s is not None
        assert caller.calls[0].attempts[0].wire.connect_s is not None  # by the trace of the library's transport
        assert [call.attempts[0].wire.connect_s is not None for call in caller.calls] == [True, False, False, True]


def test_mock_installed_before_the_first_client_is_detected(provider: Emulator) -> None:
    # What a process finds first need not be the library's own.
    script = f"""
import {core.__name__} as core, {http.__name__} as http, fastlane, openai
original = core.ConnectionPool.handle_request
def mocked(self, request):
    return core.Response(200, headers=[(b"content-type", b"application/json")], content={MODELS!r})
mocked.__module__, mocked.__qualname__ = original.__module__, original.__qualname__
core.ConnectionPool.handle_request = mocked
with fastlane.OpenAI(api_key="k", base_url={provider.base_url!r}, max_retries=0) as client:
    assert not client.models.list().data
    core.ConnectionPool.handle_request = original
    assert client.models.list().data
    print(*(call.transport for call in client.calls))
"""
    ended = run_python("-c", script)

    assert (ended.stdout.split(), ended.stderr) == (["stock", "fastlane"], "")


class Refused(socket.socket):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Nothing here may open a socket.")


def test_replaced_socket_uses_the_stock_transport(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, max_retries=0) as client:
        assert client.models.list().data  # a connection is open
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "socket", Refused)
            with pytest.raises((RuntimeError, openai.APIConnectionError)):
                client.models.list()
        assert client.models.list().data

        assert [call.transport for call in client.calls] == ["fastlane", "stock", "fastlane"]


@pytest.mark.parametrize("owner", ["Client", "HTTPTransport"])
def test_patched_transport_constructor_uses_the_stock_transport(
    arguments: dict[str, Any],
    prefix: str,
    asynchronous: bool,
    make_caller: Any,
    owner: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # How some machines teach every client their own certificates.
    adapted = getattr(http, prefix + owner)
    original = adapted.__init__
    verified: list[bool] = []

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["verify"] = False
        verified.append(False)
        original(self, *args, **kwargs)

    monkeypatch.setattr(adapted, "__init__", init)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with make_caller(**arguments, max_retries=0) as caller:
        assert models(caller)
        assert caller.last_call.transport == "stock"
    assert verified


# As the stock client does, the library's own transport leaves its sockets to the garbage collector at the end of a run.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_pools_of_ended_event_loops_are_freed(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    original = http.AsyncHTTPTransport.handle_async_request

    async def wrapped(self: Any, request: Any) -> Any:
        return await original(self, request)

    monkeypatch.setattr(http.AsyncHTTPTransport, "handle_async_request", wrapped)
    client: Any = fastlane.AsyncOpenAI(**arguments, max_retries=0)

    async def call() -> None:
        await asyncio.gather(*(client.models.list() for _ in range(3)))

    before = descriptors()
    for _ in range(3):
        asyncio.run(call())
        assert len(client._client._transport._fallback._pools) == 1
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(call())
        loop.run_until_complete(client._client._transport._fallback.aclose())
    finally:
        loop.close()  # without a word to its generators
    asyncio.run(call())
    asyncio.run(client.close())
    gc.collect()

    until(lambda: descriptors() <= before)
    assert {call.transport for call in client.calls} == {"stock"}


async def streamed(client: Any, **emulator: Any) -> Any:
    return await client.chat.completions.create(**request(**emulator), stream=True)


# The generators that a stream is read through, one within the other: the stock client leaves its own to trio as well.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings(r"ignore:Async generator '(?!fastlane\.transport):ResourceWarning")
def test_client_works_across_trio_runs_and_leaks_nothing(arguments: dict[str, Any]) -> None:
    client: Any = fastlane.AsyncOpenAI(**arguments, max_retries=0)

    async def use() -> None:
        await client.chat.completions.create(**request(output_tokens=3))
        async for _ in await streamed(client, output_tokens=3):
            pass
        with trio.move_on_after(0.2) as scope:
            await client.chat.completions.create(**request(fault="stall;after=0"))
        assert scope.cancelled_caught
        left = await streamed(client, output_tokens=1_000, token_ms=5)
        await anext(left)
        await left.close()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(functools.partial(client.chat.completions.create, **request(output_tokens=1)))

    before = descriptors()
    for _ in range(2):
        trio.run(use)
    with asyncio.Runner() as loop:
        loop.run(client.chat.completions.create(**request(output_tokens=1)))
        loop.run(client.close())
    gc.collect()

    assert [call.transport for call in client.calls] == ["stock"] * 14 + ["fastlane"]
    outcomes = Counter(call.outcome for call in client.calls)
    assert outcomes == {"completed": 11, "closed": 2, "cancelled": 2}
    until(lambda: descriptors() <= before)
