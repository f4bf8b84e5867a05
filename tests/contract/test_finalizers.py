"""A stream that Python cleans up calls no play and no hook there and then, and waits for no lock."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest

import fastlane
from fastlane import (
    BoundedOutput,
    CallRecord,
    Connection,
    ContextTrimming,
    Hedging,
    Play,
    PromptCache,
    RequestEncoding,
    Routing,
    Urgency,
)
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator
from tests.contract.entry_points import MESSAGES, MODEL

SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}
# Ends a test that waits for ever, and nothing else.
PATIENCE_S = 30.0


def routing(provider: Emulator) -> Routing:
    model = CatalogModel(
        name="only",
        model=MODEL,
        base_url=provider.base_url,
        api_key_env="FINALIZERS_KEY",
        first_token_s=((1_000, 0.01),),
        tokens_per_s=100.0,
    )
    return Routing(Catalog(models=(model,)))


PLAYS: dict[str, Callable[[Emulator], Play]] = {
    "connection": lambda _: Connection(),
    "encoding": lambda _: RequestEncoding(),
    "prompt_cache": lambda _: PromptCache(),
    "context_trimming": lambda _: ContextTrimming(),
    "bounded_output": lambda _: BoundedOutput(),
    "routing": routing,
    "hedging": lambda _: Hedging(),
    "urgency": lambda _: Urgency(max_concurrency=1),
}


def opened(client: openai.OpenAI) -> Any:
    has_route = any(isinstance(play, Routing) for play in client._fastlane.pipeline.plays)  # type: ignore[attr-defined]
    model = "fastlane/auto" if has_route else MODEL
    return client.chat.completions.create(model=model, messages=MESSAGES, stream=True)


def in_a_cycle(value: Any) -> None:
    """Drop it, for the youngest generation's collection to free.

    What the value consists of is older, so that its parts go one after the other, as a stream's parts usually do.
    """
    gc.collect()
    cycle = [value]
    cycle.append(cycle)


def unread(client: openai.OpenAI) -> None:
    in_a_cycle(opened(client))


def half_read(client: openai.OpenAI) -> None:
    stream = opened(client)
    next(stream)
    in_a_cycle(stream)


def left_in_a_with_block(client: openai.OpenAI) -> None:
    """By the application's own generator, whose `with` closes the stream when Python closes the generator."""

    def texts() -> Iterator[Any]:
        with opened(client) as stream:
            yield from stream

    reading = texts()
    next(reading)
    in_a_cycle(reading)


def left_to_a_finalizer(client: openai.OpenAI) -> None:
    """By an object of the application's, which closes its stream when it goes."""

    class Reader:
        def __init__(self) -> None:
            self.stream = opened(client)
            next(self.stream)

        def __del__(self) -> None:
            self.stream.close()

    in_a_cycle(Reader())


def lines_half_read(client: openai.OpenAI) -> None:
    def lines() -> Iterator[str]:
        create = client.chat.completions.with_streaming_response.create
        with create(model=MODEL, messages=MESSAGES, stream=True) as response:
            yield from response.iter_lines()

    reading = lines()
    next(reading)
    in_a_cycle(reading)


LEAVINGS = [unread, half_read, left_in_a_with_block, left_to_a_finalizer]


def locks_of_fastlane() -> list[Any]:
    """Every lock that an object or a module of the package has, those of its events included.

    Left out are those of which the holder makes the report itself.
    """
    kinds = (type(threading.Lock()), type(threading.RLock()), threading.Event)
    holders: list[Any] = [module.__dict__ for name, module in sys.modules.items() if name.startswith("fastlane")]
    for thing in gc.get_objects():
        kind = type(thing)
        if not kind.__module__.startswith("fastlane") or kind.__name__ in ("CallState", "Pipeline"):
            continue
        names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
        holders.append({**getattr(thing, "__dict__", {}), **{name: getattr(thing, name, None) for name in names}})
    found = {id(value): value for holder in holders for value in list(holder.values()) if isinstance(value, kinds)}
    events = [value.__dict__["_cond"]._lock for value in found.values() if isinstance(value, threading.Event)]
    return [*events, *(value for value in found.values() if not isinstance(value, threading.Event))]


def collected_while_every_lock_is_held(mine: Any) -> str | None:
    """Collect garbage in a thread that holds every lock that is free; where the thread then waits, None for nowhere."""

    def collect() -> None:
        held = [lock for lock in [*locks_of_fastlane(), mine] if lock.acquire(blocking=False)]
        try:
            gc.collect(0)
            gc.collect()
        finally:
            for lock in held:
                with suppress(RuntimeError):  # a signal, which another thread has given meanwhile
                    lock.release()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if not thread.is_alive():
        return None
    assert thread.ident is not None
    return "".join(traceback.format_stack(sys._current_frames()[thread.ident]))


class Heard:
    """A hook that takes a lock of the application's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: list[CallRecord] = []
        self.threads: list[int] = []
        self.has_heard = threading.Event()

    def __call__(self, record: CallRecord) -> None:
        with self.lock:
            self.records.append(record)
            self.threads.append(threading.get_ident())
            self.has_heard.set()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINALIZERS_KEY", "sk-test")


@pytest.fixture(autouse=True)
def nothing_is_collected_by_chance() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("leave", LEAVINGS)
@pytest.mark.parametrize("play", PLAYS)
def test_stream_collected_under_a_lock_deadlocks_nothing(
    play: str, leave: Callable[[openai.OpenAI], None], provider: Emulator, arguments: dict[str, Any]
) -> None:
    heard = Heard()
    plays = [PLAYS[play](provider)] if play == "connection" else [Connection(), PLAYS[play](provider)]
    with fastlane.OpenAI(**arguments, plays=plays, on_call_end=[heard], default_headers=SLOW) as client:
        leave(client)
        assert heard.records == []

        assert collected_while_every_lock_is_held(heard.lock) is None
        # No further call is made.
        assert heard.has_heard.wait(PATIENCE_S)
        assert [record.outcome for record in heard.records] == ["abandoned" if leave is unread else "closed"]
        opened(client).close()  # in the place of the one before, where there is but one

        assert [record.call_id for record in client.calls] == [record.call_id for record in heard.records]
        assert len(heard.records) == 2


def test_lines_collected_under_a_lock_deadlock_nothing(arguments: dict[str, Any]) -> None:
    heard = Heard()
    with fastlane.OpenAI(**arguments, plays=[Connection()], on_call_end=[heard], default_headers=SLOW) as client:
        lines_half_read(client)

        assert collected_while_every_lock_is_held(heard.lock) is None
        assert heard.has_heard.wait(PATIENCE_S)


def test_stream_closed_by_the_application_is_reported_at_once(arguments: dict[str, Any]) -> None:
    heard = Heard()
    with fastlane.OpenAI(**arguments, on_call_end=[heard], default_headers=SLOW) as client:
        stream = opened(client)
        next(stream)
        stream.close()
        with opened(client) as stream:
            next(stream)

    assert heard.threads == [threading.get_ident()] * 2


def test_stream_left_by_break_is_in_calls_and_actions(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, default_headers=SLOW) as client:
        for number in range(1, 30):
            with fastlane.user_action("search") as action:
                for _ in opened(client):
                    break

            assert action.call_count == 1
            assert [record.outcome for record in action.calls] == ["closed"]
            assert len(client.calls) == number
            assert client.last_call is action.calls[0]


@pytest.mark.parametrize("asks", ["unread", "half_read", "unanswered"])
def test_async_stream_collected_is_reported_on_its_loop(asks: str, arguments: dict[str, Any]) -> None:
    """The hook may use what belongs to the loop, such as an asyncio.Queue."""
    heard = Heard()

    async def main() -> None:
        headers = {"x-emulator-prefill-ms": "600000"} if asks == "unanswered" else SLOW
        async with fastlane.AsyncOpenAI(**arguments, on_call_end=[heard], default_headers=headers) as client:
            call = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            if asks == "unanswered":
                call.send(None)
            else:
                stream = await call
                if asks == "half_read":
                    await anext(stream)
                in_a_cycle(stream)
                del stream
            del call
            gc.collect()
            await asyncio.to_thread(heard.has_heard.wait, PATIENCE_S)

    asyncio.run(main())
    assert heard.threads == [threading.get_ident()]


@pytest.mark.parametrize("play", PLAYS)
def test_async_call_collected_under_a_lock_deadlocks_nothing(
    play: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    heard = Heard()
    plays = [PLAYS[play](provider)] if play == "connection" else [Connection(), PLAYS[play](provider)]

    async def main() -> Any:
        headers = {"x-emulator-prefill-ms": "600000"}
        client = fastlane.AsyncOpenAI(**arguments, plays=plays, on_call_end=[heard], default_headers=headers)
        model = "fastlane/auto" if play == "routing" else MODEL
        await client.models.list()  # there is a connection
        call = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        call.send(None)
        in_a_cycle(call)
        return client

    client = asyncio.run(main())
    heard.records.clear()
    heard.has_heard.clear()
    assert collected_while_every_lock_is_held(heard.lock) is None
    assert heard.has_heard.wait(PATIENCE_S)
    assert [record.outcome for record in heard.records] == ["cancelled"]
    asyncio.run(client.close())
