"""Many threads, tasks and event loops on one client: each call gets its own answer and leaves one record."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, CallRecord, Connection, Hedging, PromptCache, Urgency
from fastlane.engine.drivers import _waits
from fastlane.plays.urgency.slots import queues
from tests.attempts.scripted import EVENTS, JSON, Upstream, chunk, end, wants_usage, whole
from tests.transport.peer import Stream
from tests.transport.resources import threads
from tests.waiting import HANG_S, until

THREADS = 64
PLAYS: tuple[tuple[Any, ...], ...] = (
    (),
    (PromptCache(),),
    (BoundedOutput(),),
    (Urgency(max_concurrency=8),),
    (Hedging(),),
)


def echo(upstream: Upstream, stream: Stream, body: dict[str, Any]) -> None:
    """Answer with the question's own word."""
    word = body["messages"][0]["content"]
    if not body.get("stream"):
        stream.answer(whole(body["model"], word), 200, (JSON,))
        return
    stream.head(200, (EVENTS,))
    for piece in (word, " ", word):
        stream.data(chunk(body["model"], {"content": piece}))
    end(stream, body["model"], 3 if wants_usage(body) else None)


@pytest.fixture
def echoing(upstream: Upstream) -> Upstream:
    upstream.usually = echo
    return upstream


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    until(lambda: not any(sum(queue.in_flight) + sum(queue.queued) for _, queue in queues.items()))
    assert not _waits


def client_of(kind: Any, upstream: Upstream, on_call_end: Any = ()) -> Any:
    options = {"api_key": "sk-test", "base_url": upstream.url, "timeout": 2 * HANG_S, "max_retries": 0}
    return kind(only_plays=[Connection()], on_call_end=on_call_end, **options)


def asked_of(word: str) -> dict[str, Any]:
    return {"model": f"m-{word}", "messages": [{"role": "user", "content": word}], "temperature": 0}


def variant(client: Any, chance: random.Random) -> Any:
    """The client, or a copy that differs in one thing."""
    variant_number = chance.randrange(3)
    if variant_number == 0:
        return client
    if variant_number == 1:
        return client.with_options(timeout=chance.choice([2 * HANG_S, 3 * HANG_S]))
    return client.copy(only_plays=[Connection(), *chance.choice(PLAYS)])


def test_sixty_four_threads_share_a_client(echoing: Upstream) -> None:
    reported: list[CallRecord] = []
    before = threads()
    client = client_of(fastlane.OpenAI, echoing, [reported.append])
    begin = threading.Barrier(THREADS)

    def work(number: int) -> list[str]:
        """What went wrong."""
        chance, wrong = random.Random(number), []
        begin.wait(HANG_S)
        for turn in range(4):
            word, one, variant_number = f"word-{number}-{turn}", variant(client, chance), chance.randrange(4)
            if one._fastlane.pipeline.on_call_end != (reported.append,):
                wrong.append("a copy has lost on_call_end")
            if variant_number == 0:
                text = one.chat.completions.create(**asked_of(word)).choices[0].message.content
                wrong += [] if text.strip() in (word, f"{word} {word}") else [f"{text} for {word}"]
                continue
            stream = one.chat.completions.create(**asked_of(word), stream=True)
            if variant_number == 1:
                assert word in next(stream).choices[0].delta.content
                stream.close()
                continue
            text = "".join(choice.delta.content or "" for event in stream for choice in event.choices)
            wrong += [] if text == f"{word} {word}" else [f"{text} for {word}"]
            if variant_number == 2 and turn == 3:
                # Another client of the same connections comes and goes beside the others.
                with client_of(fastlane.OpenAI, echoing) as other:
                    other.chat.completions.create(**asked_of(word))
        return wrong

    with ThreadPoolExecutor(THREADS) as pool:
        assert [wrong for found in pool.map(work, range(THREADS)) for wrong in found] == []

    # Each call has one record, in which nothing is of another.
    assert len({record.call_id for record in reported}) == len(reported) == 4 * THREADS
    words = Counter(record.model for record in reported)
    assert words == Counter(f"m-word-{number}-{turn}" for number in range(THREADS) for turn in range(4))
    assert {record.outcome for record in reported} <= {"completed", "closed"}
    assert all(record in reported for record in client.calls)
    client.close()
    until(lambda: not [thread for thread in threads() - before if "fastlane 127" in thread.name])


def test_client_closes_while_its_threads_call(echoing: Upstream) -> None:
    """A later call gets an answer, or the error of a closed client, at once."""
    reported: list[CallRecord] = []
    client = client_of(fastlane.OpenAI, echoing, [reported.append])
    begin = threading.Barrier(THREADS + 1)

    def work(number: int) -> int:
        begin.wait(HANG_S)
        chance = random.Random(number)
        for turn in range(1_000):
            word, one = f"word-{number}-{turn}", variant(client, chance)
            try:
                text = one.chat.completions.create(**asked_of(word)).choices[0].message.content
            except (openai.APIConnectionError, RuntimeError):
                return turn + 1
            assert word in text
        return 1_000

    with ThreadPoolExecutor(THREADS) as pool:
        calls = [pool.submit(work, number) for number in range(THREADS)]
        begin.wait(HANG_S)
        until(lambda: len(reported) >= THREADS)
        client.close()
        made = sum(call.result(HANG_S) for call in calls)

    assert len({record.call_id for record in reported}) == len(reported) == made
    assert Counter(record.outcome for record in reported)["failed"] == THREADS


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_client_works_in_many_loops_that_leave_streams_open(echoing: Upstream, loop: str) -> None:
    factory = None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    reported: list[CallRecord] = []
    client = client_of(fastlane.AsyncOpenAI, echoing, [reported.append])
    kept: list[Any] = []

    async def work(number: int) -> None:
        word = f"word-{number}"
        answer = await client.chat.completions.create(**asked_of(word))
        assert answer.choices[0].message.content == word
        stream = await client.chat.completions.create(**asked_of(word), stream=True)
        await anext(stream)
        if number % 2:
            kept.append(stream)  # it stays open until its loop has ended

    for number in range(6):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work(number))
    kept.clear()
    gc.collect()

    async def last() -> None:
        async with client:
            await client.chat.completions.create(**asked_of("last"))

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(last())
    assert len({record.call_id for record in reported}) == len(reported) == 13
    assert Counter(record.outcome for record in reported)["completed"] >= 7
