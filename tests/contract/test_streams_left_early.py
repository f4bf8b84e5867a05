"""However a stream ends, its call is recorded exactly once, and the connection stays usable."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
import time
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
from fastlane.emulator import Emulator, RequestLog
from tests.contract.entry_points import MESSAGES, MODEL
from tests.knowledge.forks import in_child
from tests.waiting import Form, comes_true, until

# Long enough that no test reads it to its end.
SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}


class Interrupted(BaseException):
    """What a signal handler may raise anywhere."""


@pytest.fixture
def either(form: Form, arguments: dict[str, Any], reported: list[CallRecord]) -> Iterator[Any]:
    with form.make(
        fastlane, **arguments, on_call_end=[reported.append], raise_play_errors=True, default_headers=SLOW
    ) as client:
        yield client


def gave_up(provider: Emulator) -> bool:
    def given_up(request: RequestLog) -> bool:
        return request.reset_ns is not None and request.output_tokens < 3000

    return all(map(given_up, provider.log()))


def outcomes(client: Any) -> list[str]:
    return [record.outcome for record in client.calls]


# Left in order


def unread(stream: Any) -> None:
    stream.close()
    stream.close()


def after_one_chunk(stream: Any) -> None:
    next(stream)
    stream.close()


def by_break(stream: Any) -> None:
    with stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break


def by_an_error(stream: Any) -> None:
    with contextlib.suppress(Interrupted), stream:
        for _ in stream:
            raise Interrupted


@pytest.mark.parametrize(("leave", "events"), [(unread, 0), (after_one_chunk, 1), (by_break, 2), (by_an_error, 1)])
def test_stream_left_early_is_closed_and_recorded_once(
    provider: Emulator, either: Any, reported: list[CallRecord], leave: Callable[[Any], None], events: int
) -> None:
    stream = either.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert either.calls == ()
    leave(stream)
    assert len(reported) == 1
    del stream
    gc.collect()

    assert outcomes(either) == ["closed"]
    assert len(reported) == 1
    assert reported[0].events == events
    assert (reported[0].time_to_first_token_s is None) == (events < 2), "the first event has the role alone"
    until(lambda: gave_up(provider))


@pytest.mark.parametrize("read", ["nothing", "a line", "a part", "an event"])
def test_streaming_response_left_early_is_closed(provider: Emulator, arguments: dict[str, Any], read: str) -> None:
    client = fastlane.OpenAI(**arguments, raise_play_errors=True, default_headers=SLOW)
    chat: Any = client.chat.completions
    ask = {"model": MODEL, "messages": MESSAGES}
    of_helper = read == "an event"
    with chat.stream(**ask) if of_helper else chat.with_streaming_response.create(**ask, stream=True) as opened:
        if of_helper:
            next(iter(opened))
        elif read == "a line":
            next(opened.iter_lines())
        elif read == "a part":
            next(opened.iter_bytes(1))

    assert outcomes(client) == ["closed"]
    until(lambda: gave_up(provider))
    client.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_cancelled_call_is_recorded_and_client_still_works(
    provider: Emulator, arguments: dict[str, Any], reported: list[CallRecord], stream: bool
) -> None:
    headers = SLOW if stream else {"x-emulator-prefill-ms": "60000"}
    client: Any
    async with fastlane.AsyncOpenAI(**arguments, on_call_end=[reported.append], raise_play_errors=True) as client:
        begun = asyncio.Event()

        async def read() -> None:
            ask = {"model": MODEL, "messages": MESSAGES, "stream": stream, "extra_headers": headers}
            async for _ in await client.chat.completions.create(**ask):
                begun.set()

        task = asyncio.create_task(read())
        if stream:
            await begun.wait()
            await asyncio.sleep(0.05)
        assert await asyncio.to_thread(comes_true, lambda: bool(provider.log()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert [(record.outcome, record.error) for record in reported] == [("cancelled", "CancelledError")]
        assert len(reported[0].attempts) == 1
        until(lambda: gave_up(provider))
        await client.models.list()
        assert outcomes(client) == ["cancelled", "completed"]


# A stream that Python cleans up calls no play and no hook there and then, and waits for no lock


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


def stream_of(client: openai.OpenAI) -> Any:
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


def dropped_unread(client: openai.OpenAI) -> None:
    in_a_cycle(stream_of(client))


def half_read(client: openai.OpenAI) -> None:
    stream = stream_of(client)
    next(stream)
    in_a_cycle(stream)


def left_in_a_with_block(client: openai.OpenAI) -> None:
    """By a generator of the caller, whose `with` closes the stream when Python closes the generator."""

    def texts() -> Iterator[Any]:
        with stream_of(client) as stream:
            yield from stream

    reading = texts()
    next(reading)
    in_a_cycle(reading)


LEAVINGS = [dropped_unread, half_read, left_in_a_with_block]


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


class Recorder:
    """A hook that takes a lock of the application's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: list[CallRecord] = []
        self.threads: list[int] = []
        self.has_record = threading.Event()

    def __call__(self, record: CallRecord) -> None:
        with self.lock:
            self.records.append(record)
            self.threads.append(threading.get_ident())
            self.has_record.set()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, no_collection: None) -> None:
    monkeypatch.setenv("FINALIZERS_KEY", "sk-test")


@pytest.mark.parametrize("leave", LEAVINGS)
@pytest.mark.parametrize("play", PLAYS)
def test_stream_collected_under_a_lock_causes_no_deadlock(
    play: str, leave: Callable[[openai.OpenAI], None], provider: Emulator, arguments: dict[str, Any]
) -> None:
    reported = Recorder()
    plays = [PLAYS[play](provider)] if play == "connection" else [Connection(), PLAYS[play](provider)]
    with fastlane.OpenAI(**arguments, plays=plays, on_call_end=[reported], default_headers=SLOW) as client:
        leave(client)
        assert reported.records == []

        assert collected_while_every_lock_is_held(reported.lock) is None
        # No further call is made.
        assert reported.has_record.wait(PATIENCE_S)
        assert [record.outcome for record in reported.records] == ["abandoned" if leave is dropped_unread else "closed"]
        # (A route does not forward the headers that have the provider answer slowly.)
        assert play == "routing" or comes_true(lambda: gave_up(provider))
        stream_of(client).close()  # in the place of the one before, where there is but one

        assert [record.call_id for record in client.calls] == [record.call_id for record in reported.records]
        assert len(reported.records) == 2


def test_hook_of_a_collected_stream_can_read_the_calls(arguments: dict[str, Any]) -> None:
    found: list[tuple[CallRecord, ...]] = []

    def hook(_: CallRecord) -> None:
        found.append(client.calls)

    client: fastlane.OpenAI
    with fastlane.OpenAI(**arguments, on_call_end=[hook], default_headers=SLOW) as client:
        dropped_unread(client)
        gc.collect()

        assert client.last_call is not None
        assert found == [(client.last_call,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_report_during_a_fork_is_made_by_the_parent_alone(arguments: dict[str, Any]) -> None:
    """Though the thread that was making it, and has a lock for that, does not live on in the child."""
    seen: list[CallRecord] = []
    begun, go_on = threading.Event(), threading.Event()

    def hook(record: CallRecord) -> None:
        seen.append(record)
        begun.set()
        go_on.wait(PATIENCE_S)

    def read() -> tuple[int, float]:
        started_s = time.monotonic()
        assert client.calls is not None
        return len(seen), time.monotonic() - started_s

    with fastlane.OpenAI(**arguments, on_call_end=[hook], default_headers=SLOW) as client:
        for _ in range(2):
            dropped_unread(client)
        gc.collect()
        assert begun.wait(PATIENCE_S)
        seen_by_child, waited_s = in_child(read)
        go_on.set()

        assert len(client.calls) == len(seen) == 2
    assert seen_by_child == 1
    assert waited_s < 0.9


@pytest.mark.asyncio
@pytest.mark.parametrize("asks", ["unread", "half_read", "unanswered"])
async def test_async_stream_collected_is_reported_on_its_loop(asks: str, arguments: dict[str, Any]) -> None:
    """The hook may use what belongs to the loop, such as an asyncio.Queue."""
    reported = Recorder()
    headers = {"x-emulator-prefill-ms": "600000"} if asks == "unanswered" else SLOW
    async with fastlane.AsyncOpenAI(**arguments, on_call_end=[reported], default_headers=headers) as client:
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
        await asyncio.to_thread(reported.has_record.wait, PATIENCE_S)
    assert reported.threads == [threading.get_ident()]


@pytest.mark.parametrize("play", PLAYS)
def test_async_call_collected_under_a_lock_causes_no_deadlock(
    play: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    reported = Recorder()
    plays = [PLAYS[play](provider)] if play == "connection" else [Connection(), PLAYS[play](provider)]

    async def main() -> Any:
        headers = {"x-emulator-prefill-ms": "600000"}
        client = fastlane.AsyncOpenAI(**arguments, plays=plays, on_call_end=[reported], default_headers=headers)
        model = "fastlane/auto" if play == "routing" else MODEL
        await client.models.list()  # there is a connection
        call = client.chat.completions.create(model=model, messages=MESSAGES, stream=True)
        call.send(None)
        in_a_cycle(call)
        return client

    client = asyncio.run(main())
    reported.records.clear()
    reported.has_record.clear()
    assert collected_while_every_lock_is_held(reported.lock) is None
    assert reported.has_record.wait(PATIENCE_S)
    assert [record.outcome for record in reported.records] == ["cancelled"]
    asyncio.run(client.close())
