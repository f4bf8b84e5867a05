"""The slot of a call: taken before it is sent, released whenever and however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import openai
import pytest

import fastlane
from fastlane import (
    BoundedOutput,
    Connection,
    Hedging,
    InvalidOutputError,
    OpenAI,
    QueueFullError,
    QueueTimeoutError,
    Routing,
    Urgency,
    urgency,
)
from fastlane.catalog import Catalog  # fmt: skip
from fastlane.emulator import Emulator
from fastlane.plays.urgency.slots import SlotQueue, queues
from tests.attempts.scripted import Upstream, answer, model_at, refuse, say_nothing, two_upstreams
from tests.waiting import Form, until

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]
ONE = Urgency(max_concurrency=1)
# Ends a test that waits for ever, and nothing else.
PATIENCE_S = 30.0


def create(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **more})


def queue_of(model: str = "m") -> SlotQueue:
    (found,) = (queue for (_, _, name), queue in queues.items() if name == model)
    return found


def under_way(model: str = "m") -> int:
    return sum(queue_of(model).in_flight)


def waiting(model: str = "m") -> int:
    return sum(queue_of(model).queued)


@pytest.fixture
def client(arguments: dict[str, Any]) -> Iterator[Any]:
    with OpenAI(**arguments, only_plays=[Connection(), ONE], max_retries=0, raise_play_errors=True) as made:
        yield made


@asynccontextmanager
async def async_client(arguments: dict[str, Any], *plays: Any) -> AsyncIterator[fastlane.AsyncOpenAI]:
    plays = (Connection(), *(plays or (ONE,)))
    async with fastlane.AsyncOpenAI(**arguments, only_plays=plays, max_retries=0, raise_play_errors=True) as made:
        yield made


# Given back


def left_early(client: Any) -> None:
    with create(client, stream=True) as stream:
        next(iter(stream))


def read_by_itself(client: Any) -> None:
    with client.chat.completions.with_streaming_response.create(model="m", messages=MESSAGES) as response:
        response.read()


def raw(client: Any) -> None:
    client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)


def failing(fault: str) -> Callable[[Any], None]:
    def call(client: Any) -> None:
        with pytest.raises(openai.OpenAIError):
            create(client, extra_headers={"x-emulator-fault": fault})

    return call


ENDS: dict[str, Callable[[Any], None]] = {
    "whole": create, "left early": left_early, "read by itself": read_by_itself, "raw": raw,
    **{fault: failing(fault) for fault in ("status=400", "status=500", "reset")},
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_call_releases_its_slot(form: Form, arguments: dict[str, Any], end: str) -> None:
    """There is one slot, and no call waits for it."""
    plays = [Connection(), Urgency(max_concurrency=1, max_wait_s=0.0)]
    with form.make(fastlane, **arguments, only_plays=plays, max_retries=0, raise_play_errors=True) as client:
        ENDS[end](client)
        create(client)
        with create(client, stream=True), pytest.raises(QueueTimeoutError):
            create(client)
        assert client.calls[1].urgency.admission.concurrency == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("seconds", [None, 1e308, float("inf")])
async def test_infinite_timeout_waits_for_a_slot(arguments: dict[str, Any], seconds: float | None) -> None:
    async with async_client(arguments) as client:
        stream = await create(client, stream=True)
        second = asyncio.ensure_future(create(client, timeout=seconds))
        await asyncio.to_thread(until, lambda: waiting() == 1)
        await stream.close()
        await second
    assert under_way() == 0


# Waited for


@contextmanager
def in_a_thread(function: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Call a function in a thread, and wait for it at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(function)


def test_call_waits_for_a_slot_and_records_the_wait(client: Any) -> None:
    stream = create(client, stream=True)
    with in_a_thread(lambda: create(client)) as got:
        until(lambda: waiting() == 1)
        assert under_way() == 1
        list(stream)
    assert isinstance(got.result(), openai.types.chat.ChatCompletion)
    record = client.last_call
    admission = record.urgency.admission
    assert admission.waited_s > 0
    assert record.savings["queue_s"].value == admission.waited_s
    # The wait is the call's and none of its attempt's.
    assert record.duration_s > admission.waited_s
    first = record.attempts[0].wire
    assert first.started_ns - record.timeline.started_ns >= admission.waited_s * 1e9 * 0.99


def test_interactive_call_overtakes_waiting_background_calls(client: Any) -> None:
    stream = create(client, stream=True)
    order: list[str] = []

    def call(level: Any) -> None:
        with urgency(level), client.chat.completions.create(model="m", messages=MESSAGES, stream=True) as answers:
            order.append(level)
            list(answers)

    with in_a_thread(lambda: call("background")):
        until(lambda: waiting() == 1)
        with in_a_thread(lambda: call("interactive")):
            until(lambda: waiting() == 2)
            list(stream)
    assert order == ["interactive", "background"]


@pytest.mark.asyncio
async def test_sync_and_async_clients_share_the_slots(client: Any, arguments: dict[str, Any]) -> None:
    stream = create(client, stream=True)
    async with async_client(arguments) as other:
        task = asyncio.create_task(create(other))
        await asyncio.to_thread(until, lambda: waiting() == 1)
        list(stream)
        await task
    assert under_way() == 0


def test_keys_have_separate_slots(client: Any, arguments: dict[str, Any]) -> None:
    with (
        create(client, stream=True),
        OpenAI(**{**arguments, "api_key": "sk-other"}, only_plays=[Connection(), ONE]) as other,
    ):
        create(other)
        create(client.with_options(api_key="sk-third"))
        for header in ("Authorization", "authorization"):
            create(client, extra_headers={header: "Bearer sk-fourth"})
        create(client.with_options(project="p"))
        other.api_key = "sk-fifth"
        create(other)
    assert len([name for (_, _, name), _ in queues.items() if name == "m"]) == 6
    assert "sk-" not in repr(queues.items())


@pytest.mark.asyncio
async def test_cancelled_waiting_call_leaves_no_ticket(arguments: dict[str, Any]) -> None:
    async with async_client(arguments) as client:
        stream = await create(client, stream=True)
        task = asyncio.create_task(create(client))
        await asyncio.to_thread(until, lambda: waiting() == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting() == 0
        assert client.calls[-1].outcome == "cancelled"
        assert client.calls[-1].attempts == ()
        await stream.close()
        await create(client)


def test_full_queue_refuses_and_is_not_tried_again(provider: Emulator, arguments: dict[str, Any]) -> None:
    play = Urgency(max_concurrency=1, max_queued=1)
    with OpenAI(**arguments, only_plays=[Connection(), play], max_retries=5) as client:
        stream = create(client, stream=True)
        with in_a_thread(lambda: create(client)):
            until(lambda: waiting() == 1)
            with pytest.raises(QueueFullError) as raised:
                create(client)
            list(stream)
    assert raised.value.queued == 1
    refused = next(record for record in client.calls if record.error == "QueueFullError")
    assert (refused.outcome, refused.attempts) == ("failed", ())
    assert len(provider.log()) == 2


@pytest.mark.parametrize("by", ["the play", "the call", "the client"])
def test_slot_granted_too_late_is_a_timeout_error(arguments: dict[str, Any], by: str) -> None:
    play = Urgency(max_concurrency=1, max_wait_s=0.05) if by == "the play" else ONE
    options: dict[str, Any] = {"timeout": 0.05} if by == "the client" else {}
    with OpenAI(**arguments, **options, only_plays=[Connection(), play], max_retries=2) as client:
        with client.with_options(timeout=PATIENCE_S).chat.completions.create(model="m", messages=MESSAGES, stream=True):
            with pytest.raises(QueueTimeoutError) as raised:
                create(client, **({"timeout": 0.05} if by == "the call" else {}))
            assert isinstance(raised.value, openai.APITimeoutError)
            assert client.calls[-1].attempts == ()
        assert under_way() == 0


# Retries and repairs


def test_retry_waits_without_holding_a_slot(client: Any, provider: Emulator) -> None:
    retrying = client.with_options(max_retries=1)
    fault = {"x-emulator-fault": "status=503;times=1;retry_after=1", "x-emulator-tag": "retry-place"}
    with in_a_thread(lambda: create(retrying, extra_headers=fault)):
        # The first attempt has failed, and no call is in flight while it waits for the next.
        until(lambda: len(provider.log()) == 1 and under_way() == 0)
        stream = create(client, stream=True)
        until(lambda: waiting() == 1)
        list(stream)
    record = client.last_call
    assert [attempt.status_code for attempt in record.attempts] == [503, 200]
    assert record.urgency.admission.waited_s > 0
    assert under_way() == 0


def test_repair_takes_a_new_slot(provider: Emulator, arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}
    with OpenAI(**arguments, only_plays=[Connection(), BoundedOutput(reasks=1), ONE]) as client:
        with pytest.raises(InvalidOutputError):
            create(client, response_format=form, extra_headers={"x-emulator-output-text": "no JSON"})
        assert len(provider.log()) == 2
        assert under_way() == 0
        create(client)


@pytest.mark.parametrize("kind", ["status", "connection"])
def test_retry_without_a_slot_is_not_sent(client: Any, provider: Emulator, kind: str) -> None:
    fault = "status=500;times=1" if kind == "status" else "reset;times=1"
    headers = {"x-emulator-fault": fault, "x-emulator-tag": f"unretried-{kind}"}
    expected = openai.InternalServerError if kind == "status" else openai.APIConnectionError
    held: list[Any] = []
    retrying = client.with_options(max_retries=1, timeout=PATIENCE_S)
    play = Urgency(max_concurrency=1, max_wait_s=0.05)
    with in_a_thread(lambda: create(retrying.copy(only_plays=[Connection(), play]), extra_headers=headers)) as got:
        until(lambda: len(provider.log()) == 1 and under_way() == 0)
        held.append(create(client, stream=True))
    error = got.exception()
    assert isinstance(error, expected)
    assert isinstance(error.__cause__, QueueTimeoutError)
    held[0].close()


# Beside other plays


@pytest.mark.usefixtures("trusting_peers")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_each_attempt_of_a_routed_call_uses_its_upstream_slot(stream: bool) -> None:
    with two_upstreams() as (near, far):
        near.scripts = [refuse(500)]
        catalog = Catalog(models=(model_at(near, first_token_s=0.01), model_at(far, first_token_s=0.02)))
        with OpenAI(
            api_key="sk-test", only_plays=[Connection(), Routing(catalog), ONE], raise_play_errors=True
        ) as client:
            result = create(client, model="fastlane/auto", stream=stream)
            if stream:
                assert under_way("far-1") == 1
                list(result)
        assert {model: sum(queue.in_flight) for (_, _, model), queue in queues.items()} == {"near-1": 0, "far-1": 0}


@pytest.mark.usefixtures("trusting_peers")
def test_routed_call_falls_back_when_upstream_has_no_slot() -> None:
    with two_upstreams() as (near, far):
        catalog = Catalog(models=(model_at(near, first_token_s=0.01), model_at(far, first_token_s=0.02)))
        plays = [Connection(), Routing(catalog, exploration=0.0), Urgency(max_concurrency=1, max_wait_s=0.0)]
        with OpenAI(api_key="sk-test", only_plays=plays, raise_play_errors=True) as client:
            with create(client, model="fastlane/auto", stream=True):
                create(client, model="fastlane/auto")
            record: Any = next(one for one in client.calls if not one.stream)
        assert [(one.model, one.why) for one in record.routing.fallbacks] == [("near", "queue")]
        assert record.routing.model == "far"
        assert [attempt.kind for attempt in record.attempts] == ["fallback"]
        # That is no failure of the upstream.
        assert len(near.asked) == 1
        assert len(far.asked) == 1


def hedged(upstream: Upstream, play: Urgency) -> Any:
    plays = [Connection(), Hedging(budget=1.0, minimum_delay_s=0.05), play]
    return OpenAI(api_key="sk-test", base_url=upstream.url, only_plays=plays, raise_play_errors=True, max_retries=0)


@pytest.mark.usefixtures("trusting_peers")
def test_hedge_takes_a_separate_slot_and_the_loser_releases() -> None:
    with Upstream("one") as upstream, hedged(upstream, Urgency(max_concurrency=4, reserved=0)) as client:
        for _ in range(25):
            create(client, stream=False)
        upstream.scripts = [say_nothing]
        create(client)
        record = client.last_call
        assert record.hedging.won
        until(lambda: under_way() == 0)


@pytest.mark.usefixtures("trusting_peers")
def test_hedge_without_a_free_slot_is_skipped() -> None:
    with Upstream("one") as upstream, hedged(upstream, ONE) as client:
        for _ in range(25):
            create(client)
        upstream.scripts = [_late]
        create(client)
        record = client.last_call
        assert (record.hedging.hedged, record.hedging.why_not) == (False, "no place was free")
        assert under_way() == 0


def _late(upstream: Upstream, stream: Any, body: Any) -> None:
    stream.hold_for(0.5)
    answer("late")(upstream, stream, body)
