"""The stock client over HTTP/2 and ours, made alike and told apart in the provider's log."""

from __future__ import annotations

import asyncio
import itertools
import math
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

MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]
_IDLE_S = 300.0
_T = TypeVar("_T")
_pools = itertools.count(1)


def wishes(**values: object) -> dict[str, str]:
    """Return the headers by which one request asks the provider for something, such as `token_ms=20`."""
    return {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in values.items()}


def ours(mode: str, base_url: str, *plays: fastlane.Play, **options: Any) -> Any:
    """Make our client with these plays and `Connection()`, in a pool of its own; usually without retries."""
    # Pools are shared by clients with equal settings: a millisecond of idle time makes them differ.
    connection = fastlane.Connection(idle_s=_IDLE_S + next(_pools) / 1e3)
    make: Any = fastlane.OpenAI if mode == "sync" else fastlane.AsyncOpenAI
    own = {"base_url": base_url, "api_key": "none", "max_retries": 0, "only_plays": [connection, *plays]}
    return make(**{**own, **options})


def made(mode: str, side: str, base_url: str, tag: str, **options: Any) -> Any:
    """Make openai's client as it is told to speak HTTP/2, or ours with a pool of its own; usually without retries."""
    headers = {**wishes(tag=tag), **options.pop("default_headers", {})}
    options = {"base_url": base_url, "api_key": "none", "max_retries": 0, "default_headers": headers, **options}
    if side == "fastlane":
        return ours(mode, **options)
    if mode == "sync":
        return openai.OpenAI(http_client=openai.DefaultHttpxClient(http2=True), **options)
    return openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(http2=True), **options)


@asynccontextmanager
async def opened(mode: str, base_url: str, *arms: str, **options: Any) -> AsyncIterator[dict[str, Any]]:
    """Open a client for each arm, stock or fastlane by how its name begins; `MODE_ARM` is the tag of its requests."""
    clients = {arm: made(mode, arm.partition("_")[0], base_url, f"{mode}_{arm}", **options) for arm in arms}
    try:
        yield clients
    finally:
        for client in clients.values():
            await settled(client.close())


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


async def chunks(stream: Any) -> AsyncIterator[Any]:
    """Iterate over a stream of a client of either mode."""
    if isinstance(stream, openai.Stream):
        for chunk in stream:
            yield chunk
    else:
        async for chunk in stream:
            yield chunk


class WrongAnswerError(Exception):
    """A call brought another text than it asked for: nothing that was timed counts."""


async def call_ms(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call that asks for `text`."""
    headers = wishes(output_text=text, **asked)
    started = now_ns()
    answer = await settled(client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers))
    taken = now_ns() - started
    if answer.choices[0].message.content != text:
        raise WrongAnswerError(f"asked for {text!r}, got {answer.choices[0].message.content!r}")
    return taken / 1e6


async def first_content_ms(
    client: Any, text: str | None = "Yes.", messages: Any = MESSAGES, *, more: Mapping[str, Any] = {}, **asked: object
) -> float:
    """Time a streamed call that asks for `text`, if that is not None, to its first content; it is read to its end.

    `more` are further arguments of the call.
    """
    headers = wishes(**({} if text is None else {"output_text": text}), **asked)
    started = now_ns()
    first: int | None = None
    read: list[str] = []
    arguments = {"model": MODEL, "messages": messages, "stream": True, "extra_headers": headers, **more}
    async for chunk in chunks(await settled(client.chat.completions.create(**arguments))):
        if has_content(chunk):
            first = first or now_ns()
            read.append(chunk.choices[0].delta.content)
    if first is None or (text is not None and "".join(read) != text):
        raise WrongAnswerError(f"asked for {text!r}, got {''.join(read)!r}")
    return (first - started) / 1e6


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
    """Have two clients in each lane send the same after every pause, in turns; what they took, by name.

    Lanes begin one after the other, so that no call waits for the CPU of another lane's.
    """
    return await asyncio.gather(
        *(_lane(*lane, rounds, start_s=number * apart_s, pause_s=pause_s) for number, lane in enumerate(each))
    )


async def _lane(
    clients: Sequence[openai.AsyncOpenAI], groups: Groups, rounds: int, *, start_s: float, pause_s: float
) -> dict[str, list[LanePair]]:
    await asyncio.sleep(start_s)
    pairs: dict[str, list[LanePair]] = {name: [] for names, _ in groups for name in names}
    async with clients[0], clients[1] as second:
        for client in clients:
            await first_content_ms(client, messages=groups[-1][1])
        for round_number, (names, messages) in itertools.product(range(rounds), groups):
            await asyncio.sleep(pause_s)
            taken: dict[tuple[int, str], float] = {}
            encoded: dict[str, bool] = {}
            for side in (1, 0) if round_number % 2 else (0, 1):
                for name in names:
                    taken[side, name] = await first_content_ms(clients[side], messages=messages)
                    if side and isinstance(second, fastlane.AsyncOpenAI):
                        record = second.last_call.request_encoding if second.last_call is not None else None
                        encoded[name] = record is not None and record.form != "json"
            for name in names:
                pairs[name].append(LanePair(taken[0, name], taken[1, name], encoded[name]))
    return pairs


def has_content(chunk: Any) -> bool:
    """Whether a chunk of a chat completion brings text."""
    return bool(chunk.choices and chunk.choices[0].delta.content)


async def time_call(client: Any, text: str = "Yes.", **asked: object) -> float:
    """Time one whole call of a client of either mode, as its caller has it, in milliseconds."""
    return await in_mode(client, partial(call_ms, text=text, **asked))


def connections(log: Iterable[RequestLog], arm: str) -> int:
    """Count the connections over which an arm's requests came, all of them HTTP/2."""
    requests = [request for request in log if (request.tag or "").split(":")[0] == arm]
    spoken = {request.http_version for request in requests}
    if spoken != {"HTTP/2"}:
        raise RuntimeError(f"{arm} was to speak HTTP/2 and spoke {sorted(spoken) or 'not at all'}")
    return len({request.connection_id for request in requests})


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
