"""The clients that are compared, made alike, and how either mode is driven by the same code."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeVar

import openai

import fastlane

MODES = ("sync", "async")
SIDES = ("stock", "fastlane")
OPTIONS: dict[str, Any] = {"api_key": "none", "max_retries": 0}
_IDLE_S = 300.0
_T = TypeVar("_T")
_pools = itertools.count(1)


def client_of(side: str, mode: str, base_url: str, **options: Any) -> Any:
    """Make a client as it comes with default plays, or as it is told to use another version of HTTP; without retries.

    `side` is stock, stock_http2, fastlane or fastlane_http1.
    """
    options = {"base_url": base_url, **OPTIONS, **options}
    asynchronous = mode == "async"
    if side == "stock_http2":
        http_client = openai.DefaultAsyncHttpxClient if asynchronous else openai.DefaultHttpxClient
        options["http_client"] = http_client(http2=True)
    elif side == "fastlane_http1":
        options["plays"] = [fastlane.Connection(http2="never")]
    module: Any = openai if side.startswith("stock") else fastlane
    return module.AsyncOpenAI(**options) if asynchronous else module.OpenAI(**options)


def ours(mode: str, base_url: str, *plays: fastlane.Play, **options: Any) -> Any:
    """Make our client with these plays and `Connection()`, in a pool of its own; usually without retries."""
    # Pools are shared by clients with equal settings: a millisecond of idle time makes them differ.
    connection = fastlane.Connection(idle_s=_IDLE_S + next(_pools) / 1e3)
    return client_of("fastlane", mode, base_url, only_plays=[connection, *plays], **options)


def over_http2(side: str, mode: str, base_url: str, tag: str, **options: Any) -> Any:
    """Make openai's client told to use HTTP/2, or ours with a pool of its own; its requests have this tag."""
    headers = {**wishes(tag=tag), **options.pop("default_headers", {})}
    if side == "fastlane":
        return ours(mode, base_url, default_headers=headers, **options)
    return client_of("stock_http2", mode, base_url, default_headers=headers, **options)


@asynccontextmanager
async def opened(mode: str, base_url: str, *arms: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
    """Open a client for each arm, stock or fastlane by how its name begins; `MODE_ARM` is the tag of its requests."""
    clients = {arm: over_http2(arm.partition("_")[0], mode, base_url, f"{mode}_{arm}", **options) for arm in arms}
    try:
        yield clients
    finally:
        for client in clients.values():
            await settled(client.close())


def wishes(**values: object) -> dict[str, str]:
    """Return the headers by which one request asks the provider for something, such as `token_ms=20`."""
    return {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in values.items()}


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a benchmark of clients of both modes, with as many threads as it asks for."""

    async def with_threads() -> _T:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))
        return await main

    return asyncio.run(with_threads())


def run_sync(call: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine whose client is synchronous, so that it never has to wait for a loop."""
    try:
        call.send(None)
    except StopIteration as ended:
        result: _T = ended.value
        return result
    raise RuntimeError("a call of a synchronous client was to wait for nothing")


async def in_mode(client: Any, call: Callable[..., Coroutine[Any, Any, _T]], *args: Any) -> _T:
    """Make a call of a client of either mode, in a thread where it is synchronous."""
    if isinstance(client, openai.AsyncOpenAI):
        return await call(client, *args)
    return await asyncio.to_thread(run_sync, call(client, *args))


async def settled(value: Any) -> Any:
    """Return what a method of a client of either mode comes to."""
    return await value if isawaitable(value) else value
