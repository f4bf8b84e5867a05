"""Programs that end amid something, each a child of one process that has loaded everything once.

`python -m tests.races.ending URL` reads lines of JSON: the state that a program is to be in, and how it
is to end. For each end it forks, the child comes into that state and ends, and its output and exit are
reported as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastlane
from fastlane import Connection, Hedging, Urgency
from fastlane.plays.routing.clients import upstream_clients_of
from tests.attempts.scripted import MESSAGES, routing

LIMIT_S = 40.0
"""Longer than any program takes to end on the busiest machine, and shorter than any timeout of its calls."""
kept: list[Any] = []
"""What a program's modules keep until its very end."""
PROMPT = [{"role": "system", "content": "Rivers."}]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Program:
    """What a program does with clients of one kind: threads beside the main one, or tasks beside the main task."""

    def __init__(self, url: str, *, asynchronous: bool) -> None:
        self.url = url
        self.asynchronous = asynchronous

    def client(self, *plays: Any, **options: Any) -> Any:
        kind: Any = fastlane.AsyncOpenAI if self.asynchronous else fastlane.OpenAI
        options = {"timeout": 600.0, "max_retries": 1, **options}
        made = kind(api_key="sk-test", base_url=self.url, only_plays=[Connection(), *plays], **options)
        kept.append(made)
        return made

    async def of(self, value: Any) -> Any:
        """What comes of a call: it is waited for where it is a coroutine."""
        return await value if self.asynchronous else value

    def beside(self, call: Callable[[], Any]) -> None:
        if self.asynchronous:
            kept.append(asyncio.get_running_loop().create_task(call()))
        else:
            threading.Thread(target=call, daemon=True).start()

    async def until(self, happened: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            if time.monotonic() > deadline:
                sys.exit("it did not come into its state")
            if self.asynchronous:
                await asyncio.sleep(0.005)
            else:
                time.sleep(0.005)  # noqa: ASYNC251 - there is no event loop


def ask(client: Any, model: str, **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=MESSAGES, temperature=0, **more)


def connections(client: Any) -> list[Any]:
    return list(client._client._transport._engine.members())


def is_sent(client: Any) -> bool:
    """Whether a request of the client's is under way."""
    return any(member.is_busy for member in connections(client))


def waits(client: Any, count: int) -> bool:
    """Whether so many calls of the client's wait to be sent."""
    from fastlane.engine.drivers import waiting_on

    return len(waiting_on(client._client)) >= count


def upstream_at(url: str, name: str = "near") -> Any:
    return SimpleNamespace(name=name, url=url, connections=[], asked=[], answered=[])


# States of programs of either kind. Those of synchronous ones never wait for an event loop.


async def with_a_stream(program: Program) -> None:
    stream = await program.of(ask(program.client(), "stream", stream=True))
    assert (await program.of(anext(stream) if program.asynchronous else next(stream))).choices
    kept.append(stream)


async def waiting_for_an_answer(program: Program) -> None:
    client = program.client()
    program.beside(lambda: ask(client, "silent"))
    await program.until(lambda: is_sent(client))


async def in_the_queue(program: Program) -> None:
    client = program.client(Urgency(max_concurrency=1))
    for _ in range(3):
        program.beside(lambda: ask(client, "silent"))
    await program.until(lambda: waits(client, 2))


async def before_a_retry(program: Program) -> None:
    client = program.client()
    program.beside(lambda: ask(client, "429"))
    await program.until(lambda: waits(client, 1))


async def hedged(program: Program) -> None:
    client = program.client(Hedging(budget=1.0))
    for _ in range(22):
        await program.of(ask(client, "answer"))
    program.beside(lambda: ask(client, "answer", extra_body={"user": "silent"}, stream=True))
    await program.until(
        lambda: sum(one.http.open_exchanges for one in connections(client) if one.http is not None) == 2
    )


async def falling_back(program: Program) -> None:
    client = program.client(routing(upstream_at(program.url), upstream_at(program.url, "far")))
    program.beside(lambda: ask(client, "fastlane/auto"))
    siblings = upstream_clients_of(client._fastlane.pipeline)
    await program.until(lambda: any(is_sent(one) for one in list(siblings._made.values())))


async def keeping_a_prompt(program: Program) -> None:
    warmth = program.client().prompt_cache.keep_warm(PROMPT, model="m", every_s=500.0)
    kept.append(await program.of(warmth.__aenter__() if program.asynchronous else warmth.__enter__()))
    if program.asynchronous:
        await asyncio.sleep(0.01)  # its task has begun to wait


async def kept_warm(program: Program) -> None:
    assert await program.of(program.client().warm())


async def connecting(program: Program) -> None:
    """To a server that takes the connection, and does not answer its TLS."""
    client = program.client()
    program.beside(lambda: ask(client, "m"))
    await program.until(lambda: connections(client))


EITHER: dict[str, Callable[[Program], Coroutine[Any, Any, None]]] = {
    state.__name__: state
    for state in (
        with_a_stream, waiting_for_an_answer, in_the_queue, before_a_retry, hedged, falling_back, keeping_a_prompt,
        kept_warm, connecting,
    )
}  # fmt: skip


# States of synchronous programs


def with_a_stream_in_a_thread(url: str) -> None:
    client, read = Program(url, asynchronous=False).client(), threading.Event()

    def work() -> None:
        for _ in ask(client, "stream", stream=True):
            read.set()

    threading.Thread(target=work, daemon=True).start()
    assert read.wait(LIMIT_S)


def in_a_pool_of_threads(url: str) -> None:
    """Python itself waits for threads that are no daemons: they get their answers first."""
    from concurrent.futures import ThreadPoolExecutor

    client, pool = Program(url, asynchronous=False).client(), ThreadPoolExecutor()
    kept.append(pool)
    pool.submit(lambda: say(ask(client, "late").choices[0].message.content))
    while not is_sent(client):
        time.sleep(0.005)


async def under_way(url: str) -> None:
    program = Program(url, asynchronous=True)
    await with_a_stream(program)
    await waiting_for_an_answer(program)


def on_a_loop_that_is_left(url: str) -> None:
    """A loop that is never closed, with a call under way."""
    loop = asyncio.new_event_loop()
    kept.append(loop)
    loop.run_until_complete(under_way(url))


def on_a_loop_in_a_thread(url: str) -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(under_way(url), loop).result(LIMIT_S)


def after_a_run(url: str) -> None:
    """With a client that goes on to be used outside of the loop that it was used on."""
    asyncio.run(with_a_stream(Program(url, asynchronous=True)))
    kept.append(kept[0].copy())


SYNC: dict[str, Callable[[str], None]] = {
    state.__name__: state
    for state in (with_a_stream_in_a_thread, on_a_loop_that_is_left, on_a_loop_in_a_thread, after_a_run)
}
STATES = [*SYNC, *EITHER, *(f"async_{name}" for name in EITHER)]

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
    """As servers do on a signal to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    is_terminated()


ENDS: dict[str, Callable[[], None]] = {
    end.__name__: end for end in (returns, exits, fails, is_terminated, takes_its_leave)
}


def be(state: str, url: str, end: Callable[[], None]) -> None:
    """Come into a state, and end."""

    async def main() -> None:
        program = Program(url, asynchronous=state.startswith("async_"))
        await EITHER[state.removeprefix("async_")](program)
        say("there")
        end()

    if state.startswith("async_"):
        asyncio.run(main())
    elif state in EITHER:
        with contextlib.suppress(StopIteration):
            main().send(None)
    else:
        {**SYNC, "in_a_pool_of_threads": in_a_pool_of_threads}[state](url)
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
    """Fork for each requested program; in the children, which it is to be."""
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
    """How each has ended: its exit code as `subprocess` counts it, None if it had to be killed; what it printed."""
    deadline, results = time.monotonic() + LIMIT_S, {}
    while begun:
        for child, (end, said) in list(begun.items()):
            is_late = time.monotonic() > deadline
            if is_late:
                os.kill(child, signal.SIGKILL)
            pid, status = os.waitpid(child, 0 if is_late else os.WNOHANG)
            if pid:
                del begun[child]
                code = None if is_late else os.waitstatus_to_exitcode(status)
                results[end] = [code, *(said.with_suffix(f".{name}").read_text() for name in ("out", "err"))]
        time.sleep(0.005)
    return results


if __name__ == "__main__":
    program = serve()
    if program is not None:
        be(*program)
