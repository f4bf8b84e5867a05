"""Programs that end amid something, each a child of one process that has loaded everything once.

`python -m tests.races.ending URL` reads lines of JSON: the state that a program is to be in, and the ways in which it
is to end. For each way it forks, the child comes into that state and ends, and what it said and how it ended is
told as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastlane
from fastlane import Connection, Hedging, Urgency
from fastlane.plays.routing.clients import upstream_clients_of
from tests.attempts.scripted import MESSAGES, Asked, routing, used_to

LIMIT_S = 40.0
"""Longer than any program takes to end on the busiest machine, and shorter than any time-out of its calls."""
FOREVER: dict[str, Any] = {"timeout": 600.0, "max_retries": 1}

kept: list[Any] = []
"""What a program's modules keep until its very end."""

State = Callable[[str], None]
AsyncState = Callable[[str], Awaitable[None]]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not happened():
        if time.monotonic() > deadline:
            sys.exit("it did not come into its state")
        time.sleep(0.005)


async def async_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not happened():
        if time.monotonic() > deadline:
            sys.exit("it did not come into its state")
        await asyncio.sleep(0.005)


def client_of(url: str, *plays: Any, **options: Any) -> Any:
    client = fastlane.OpenAI(
        api_key="sk-test", base_url=url, only_plays=[Connection(), *plays], **{**FOREVER, **options}
    )
    kept.append(client)
    return client


def async_client_of(url: str, *plays: Any, **options: Any) -> Any:
    options = {**FOREVER, **options}
    client = fastlane.AsyncOpenAI(api_key="sk-test", base_url=url, only_plays=[Connection(), *plays], **options)
    kept.append(client)
    return client


def ask(client: Any, model: str, **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, **more)


def beside(work: Callable[[], object], *, daemon: bool = True) -> None:
    threading.Thread(target=work, daemon=daemon).start()


def is_sent(client: Any) -> bool:
    """Whether a request of the client's is under way."""
    return any(member.is_busy for member in list(client._client._transport._engine.members()))


def waits(client: Any, count: int) -> bool:
    """Whether so many calls of the client's wait to be sent."""
    from fastlane.engine.drivers import waiting_on

    return len(waiting_on(client._client)) >= count


# States of synchronous programs


def with_a_stream(url: str) -> None:
    stream = ask(client_of(url), "stream", stream=True)
    assert next(stream).choices
    kept.append(stream)


def with_a_stream_in_a_thread(url: str) -> None:
    read = threading.Event()

    def work() -> None:
        for _ in ask(client_of(url), "stream", stream=True):
            read.set()

    beside(work)
    assert read.wait(LIMIT_S)


def waiting_for_an_answer(url: str) -> None:
    client = client_of(url)
    beside(lambda: ask(client, "silent"))
    until(lambda: is_sent(client))


def in_the_queue(url: str) -> None:
    client = client_of(url, Urgency(max_concurrency=1))
    for _ in range(3):
        beside(lambda: ask(client, "silent"))
    until(lambda: waits(client, 2))


def before_a_retry(url: str) -> None:
    client = client_of(url)
    beside(lambda: ask(client, "429"))
    until(lambda: waits(client, 1))


def hedged(url: str) -> None:
    asked = Asked("sync", url, Hedging(budget=1.0))
    kept.append(asked)
    used_to(asked, upstream_at(url), model="answer")
    beside(lambda: asked.client.with_options(timeout=600.0).chat.completions.create(**late(), stream=True))
    until(lambda: any(thread.name == "fastlane race" for thread in threading.enumerate()))


def late() -> dict[str, Any]:
    return {"model": "answer", "messages": MESSAGES, "extra_body": {"user": "silent"}}


def upstream_at(url: str, name: str = "near") -> Any:
    return SimpleNamespace(name=name, url=url, connections=[], asked=[], answered=[])


def falling_back(url: str) -> None:
    client = client_of(url, routing(upstream_at(url), upstream_at(url, "far")))
    beside(lambda: ask(client, "fastlane/auto"))
    siblings = upstream_clients_of(client._fastlane.pipeline)
    until(lambda: any(is_sent(one) for one in list(siblings._made.values())))


PROMPT = [{"role": "system", "content": "Rivers."}]


def keeping_a_prompt(url: str) -> None:
    kept.append(client_of(url).prompt_cache.keep_warm(PROMPT, model="m", every_s=500.0).__enter__())


def kept_warm(url: str) -> None:
    assert client_of(url).warm()


def connecting(url: str) -> None:
    """To a server that takes the connection, and does not answer its TLS."""
    client = client_of(url)
    beside(lambda: ask(client, "m"))
    until(lambda: list(client._client._transport._engine.members()))


SYNC: dict[str, State] = {
    state.__name__: state
    for state in (
        with_a_stream, with_a_stream_in_a_thread, waiting_for_an_answer, in_the_queue,
        before_a_retry, hedged, falling_back, keeping_a_prompt, kept_warm, connecting,
    )
}  # fmt: skip


def in_threads_that_are_waited_for(url: str) -> None:
    """Python itself waits for threads that are no daemons: they get their answers first."""
    client = client_of(url)

    def work() -> None:
        say(ask(client, "late").choices[0].message.content)

    beside(work, daemon=False)
    until(lambda: is_sent(client))


def in_a_pool_of_threads(url: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    client, pool = client_of(url), ThreadPoolExecutor()
    kept.append(pool)
    pool.submit(lambda: say(ask(client, "late").choices[0].message.content))
    until(lambda: is_sent(client))


WAITED_FOR: dict[str, State] = {
    state.__name__: state for state in (in_threads_that_are_waited_for, in_a_pool_of_threads)
}


# States of asynchronous programs


def task(work: Any) -> None:
    kept.append(asyncio.get_running_loop().create_task(work))


async def async_with_a_stream(url: str) -> None:
    stream = await ask(async_client_of(url), "stream", stream=True)
    assert (await anext(stream)).choices
    kept.append(stream)


async def async_waiting_for_an_answer(url: str) -> None:
    client = async_client_of(url)
    task(ask(client, "silent"))
    await async_until(lambda: is_sent(client))


async def async_in_the_queue(url: str) -> None:
    client = async_client_of(url, Urgency(max_concurrency=1))
    for _ in range(3):
        task(ask(client, "silent"))
    await async_until(lambda: waits(client, 2))


async def async_before_a_retry(url: str) -> None:
    client = async_client_of(url)
    task(ask(client, "429"))
    await async_until(lambda: waits(client, 1))


async def async_falling_back(url: str) -> None:
    client = async_client_of(url, routing(upstream_at(url), upstream_at(url, "far")))
    task(ask(client, "fastlane/auto"))
    siblings = upstream_clients_of(client._fastlane.pipeline)
    await async_until(lambda: any(is_sent(one) for one in list(siblings._made.values())))


async def async_hedged(url: str) -> None:
    client = async_client_of(url, Hedging(budget=1.0))
    for _ in range(2):
        await ask(client, "answer")
    asked: Any = SimpleNamespace(client=client, record=client.last_call, text=len)
    used_to(asked, upstream_at(url), model="answer")
    task(client.chat.completions.create(**late(), stream=True))
    members = client._client._transport._engine.members
    await async_until(lambda: sum(one.http.open_exchanges for one in members() if one.http is not None) == 2)


async def async_keeping_a_prompt(url: str) -> None:
    kept.append(await async_client_of(url).prompt_cache.keep_warm(PROMPT, model="m", every_s=500.0).__aenter__())
    await asyncio.sleep(0.01)  # its task has begun to wait


async def async_connecting(url: str) -> None:
    client = async_client_of(url)
    task(ask(client, "m"))
    await async_until(lambda: list(client._client._transport._engine.members()))


ASYNC: dict[str, AsyncState] = {
    state.__name__: state
    for state in (
        async_with_a_stream, async_waiting_for_an_answer, async_in_the_queue,
        async_before_a_retry, async_falling_back, async_hedged, async_keeping_a_prompt,
        async_connecting,
    )
}  # fmt: skip


def on_a_loop_that_is_left(url: str) -> None:
    """A loop that is never closed, with a call under way."""
    loop = asyncio.new_event_loop()
    kept.append(loop)
    loop.run_until_complete(async_with_a_stream(url))
    loop.run_until_complete(async_waiting_for_an_answer(url))


def on_a_loop_in_a_thread(url: str) -> None:
    loop = asyncio.new_event_loop()
    beside(loop.run_forever)
    asyncio.run_coroutine_threadsafe(async_with_a_stream(url), loop).result(LIMIT_S)
    asyncio.run_coroutine_threadsafe(async_waiting_for_an_answer(url), loop).result(LIMIT_S)


def after_a_run(url: str) -> None:
    """With a client that goes on to be used outside of the loop that it was used on."""
    asyncio.run(async_with_a_stream(url))
    kept.append(kept[0].copy())


SYNC |= {state.__name__: state for state in (on_a_loop_that_is_left, on_a_loop_in_a_thread, after_a_run)}

# Ends


def returns() -> None:
    pass


def exits() -> None:
    sys.exit(3)


def fails() -> None:
    raise ValueError("over")


def is_terminated() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIMIT_S)


def takes_its_leave() -> None:
    """As servers do that are told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    is_terminated()


ENDS: dict[str, Callable[[], None]] = {
    end.__name__: end for end in (returns, exits, fails, is_terminated, takes_its_leave)
}


def be(state: str, url: str, end: Callable[[], None]) -> None:
    """Come into a state, and end."""
    if state in ASYNC:

        async def main() -> None:
            await ASYNC[state](url)
            say("there")
            end()

        asyncio.run(main())
        return
    (SYNC | WAITED_FOR)[state](url)
    say("there")
    end()


# The process that all of them are children of


def rehearse(url: str) -> None:
    """Have everything loaded that calls need, and no thread of it left, so that no child has to."""

    async def tasks() -> None:
        async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=url, only_plays=plays) as client:
            await ask(client, "answer")
            async for _ in await ask(client, "answer", stream=True):
                pass

    plays = [Connection(), Urgency(), routing(upstream_at(url), upstream_at(url, "far")), Hedging()]
    with fastlane.OpenAI(api_key="sk-test", base_url=url, only_plays=plays) as client:
        ask(client, "answer")
        list(ask(client, "answer", stream=True))
    asyncio.run(tasks())
    gc.collect()
    gc.freeze()


def serve() -> tuple[str, str, Callable[[], None]] | None:
    """Fork for each program that is asked for; in the children, which it is to be."""
    rehearse(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        begun: dict[int, tuple[str, Path]] = {}
        for end in asked["ends"]:
            said = Path(asked["folder"]) / end
            child = os.fork()
            if not child:
                speak_to(said)
                return asked["state"], asked["url"], ENDS[end]
            begun[child] = end, said
        say(json.dumps(ended(begun)))
    return None


def speak_to(said: Path) -> None:
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(said.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def ended(begun: dict[int, tuple[str, Path]]) -> dict[str, Any]:
    """How each has ended: its exit code as `subprocess` counts it, None where it had to be killed; what it said."""
    deadline, told = time.monotonic() + LIMIT_S, {}
    while begun:
        for child, (end, said) in list(begun.items()):
            is_late = time.monotonic() > deadline
            if is_late:
                os.kill(child, signal.SIGKILL)
            pid, status = os.waitpid(child, 0 if is_late else os.WNOHANG)
            if pid:
                del begun[child]
                code = None if is_late else os.waitstatus_to_exitcode(status)
                told[end] = [code, *(said.with_suffix(f".{name}").read_text() for name in ("out", "err"))]
        time.sleep(0.005)
    return told


if __name__ == "__main__":
    program = serve()
    if program is not None:
        be(*program)
