"""The clients that are compared, made alike; how either mode is driven by the same code; and timed calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

import openai

import fastlane
from benchmarks._provider import MODEL
from fastlane._clock import now_ns
from fastlane.emulator import RequestLog

MODES = ("sync", "async")
SIDES = ("stock", "fastlane")
OPTIONS: dict[str, Any] = {"api_key": "none", "max_retries": 0}
_IDLE_S = 300.0
_T = TypeVar("_T")
_pools = itertools.count(1)


def client_of(side: str, mode: str, base_url: str, **options: Any) -> Any:
    """Make a client with default plays, or with another version of HTTP; without retries.

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
    """Make openai's client with HTTP/2, or ours with a separate pool; its requests have this tag."""
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


# Calls, timed, and compared with the requests

MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


async def chunks(stream: Any) -> AsyncIterator[Any]:
    """Iterate over a stream of a client of either mode."""
    if isinstance(stream, openai.Stream):
        for chunk in stream:
            yield chunk
    else:
        async for chunk in stream:
            yield chunk


def has_content(chunk: Any) -> bool:
    """Return whether a chunk of a chat completion brings text."""
    return bool(chunk.choices and chunk.choices[0].delta.content)


class WrongAnswerError(Exception):
    """A call brought another text than it asked for: nothing that was timed counts."""


def check_answer(answer: Any, text: str) -> None:
    """Raise WrongAnswerError unless a completion has this text."""
    if answer.choices[0].message.content != text:
        raise WrongAnswerError(f"asked for {text!r}, got {answer.choices[0].message.content!r}")


async def call_ms(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call that asks for `text`."""
    headers = wishes(output_text=text, **asked)
    started = now_ns()
    answer = await settled(client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers))
    taken = now_ns() - started
    check_answer(answer, text)
    return taken / 1e6


async def time_call(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call of a client of either mode, as its caller has it, in milliseconds."""
    return await in_mode(client, partial(call_ms, text=text, **asked))


async def first_content_ms(
    client: Any, text: str | None = "Yes.", messages: Any = MESSAGES, *, more: Mapping[str, Any] = {}, **asked: object
) -> float:
    """Time a streamed call that asks for `text`, if that is not None, to its first content; it is read to its end.

    `more` are further arguments of the call.
    """
    headers = wishes(**({} if text is None else {"output_text": text}), **asked)
    arguments = {"model": MODEL, "messages": messages, "stream": True, "extra_headers": headers, **more}
    first: int | None = None
    read: list[str] = []
    started = now_ns()
    async for chunk in chunks(await settled(client.chat.completions.create(**arguments))):
        if has_content(chunk):
            first = first or now_ns()
            read.append(chunk.choices[0].delta.content)
    if first is None or (text is not None and "".join(read) != text):
        raise WrongAnswerError(f"asked for {text!r}, got {''.join(read)!r}")
    return (first - started) / 1e6


def connections(log: Iterable[RequestLog], arm: str) -> int:
    """Count the connections over which an arm's requests came, all of them HTTP/2."""
    requests = [request for request in log if (request.tag or "").split(":")[0] == arm]
    versions = {request.http_version for request in requests}
    if versions != {"HTTP/2"}:
        raise RuntimeError(f"{arm} was to use HTTP/2 and used {sorted(versions) or 'nothing'}")
    return len({request.connection_id for request in requests})


# Calls after pauses, in lanes


class LanePair(NamedTuple):
    """One call of each of two clients, in milliseconds to its first content, and whether the second was encoded."""

    first_ms: float
    second_ms: float
    encoded: bool


Groups = Sequence[tuple[tuple[str, ...], Any]]
"""Names, and the messages that are sent once for each of them after a pause, the second at once behind the first."""


async def in_lanes(
    each: Sequence[tuple[Sequence[openai.AsyncOpenAI], Groups]], rounds: int, *, apart_s: float, pause_s: float
) -> list[dict[str, list[LanePair]]]:
    """Have two clients in each lane send the same after every pause, in turns; return what they took, by name.

    Lanes begin one after the other, so that no call waits for the CPU of another lane's.
    """

    async def lane(clients: Sequence[Any], groups: Groups, start_s: float) -> dict[str, list[LanePair]]:
        await asyncio.sleep(start_s)
        pairs: dict[str, list[LanePair]] = {name: [] for names, _ in groups for name in names}
        async with clients[0], clients[1] as second:
            for client in clients:
                await first_content_ms(client, messages=groups[-1][1])
            for number, (names, messages) in itertools.product(range(rounds), groups):
                await asyncio.sleep(pause_s)
                taken: dict[tuple[int, str], float] = {}
                encoded = dict.fromkeys(names, False)
                for side, name in itertools.product((1, 0) if number % 2 else (0, 1), names):
                    taken[side, name] = await first_content_ms(clients[side], messages=messages)
                    if side and (record := second.last_call.request_encoding) is not None:
                        encoded[name] = record.form != "json"
                for name in names:
                    pairs[name].append(LanePair(taken[0, name], taken[1, name], encoded[name]))
        return pairs

    return await asyncio.gather(*(lane(*one, number * apart_s) for number, one in enumerate(each)))
