"""A second attempt beside one that is late: whose content comes first wins, and the other is reset."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest

from fastlane import AsyncOpenAI, Connection, Hedging
from tests.attempts.scripted import (
    MESSAGES,
    Asked,
    Upstream,
    answer,
    answer_after,
    break_off_before,
    once,
    refuse,
    routing,
    say_nothing,
    used_to,
    used_to_routes,
)
from tests.waiting import comes_true, until

CANCEL = 8
with_and_without_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def hedging() -> Hedging:
    """A second attempt after 0.05 s, whatever it costs."""
    return Hedging(budget=1.0, minimum_delay_s=0.05)


def the_reset_of(upstream: Upstream, number: int = 0) -> int | None:
    """How the client left an unanswered request."""
    until(lambda: len(upstream.silent) > number and upstream.silent[number].reset is not None)
    return upstream.silent[number].reset


@with_and_without_stream
def test_hedge_wins_and_first_attempt_is_reset(kind: str, stream: bool, near: Upstream) -> None:
    with Asked(kind, near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        near.scripts = [say_nothing, answer("second")]
        assert asked.text("m", stream=stream).strip() == "second"
        record = asked.record
        assert the_reset_of(near) == CANCEL
    hedged = record.hedging
    assert (hedged.hedged, hedged.won, hedged.why_not) == (True, True, None)
    assert [(one.kind, one.given_up) for one in record.attempts] == [("first", "lost"), ("hedge", None)]
    assert record.outcome == "completed"
    assert record.time_to_first_token_s is not None
    assert record.time_to_first_token_s >= 0.05
    assert len(set(near.connections)) == 2, "the second attempt goes by another connection"


@with_and_without_stream
def test_first_attempt_may_still_win(kind: str, stream: bool, near: Upstream) -> None:
    with Asked(kind, near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        near.scripts = [once(lambda: len(near.asked) == 2, answer("first")), say_nothing]
        assert asked.text("m", stream=stream).strip() == "first"
        record = asked.record
        assert the_reset_of(near, 1) == CANCEL
    assert (record.hedging.hedged, record.hedging.won) == (True, False)
    assert [one.kind for one in record.attempts] == ["hedge", "first"], "the last one is the one that answered"
    assert record.attempts[0].given_up == "lost"


def test_hedge_delay_begins_when_the_first_request_is_sent(near: Upstream) -> None:
    with Asked("sync", near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        first = iter([0.5])

        def prepared(request: Any) -> None:
            time.sleep(next(first, 0.0))

        asked.client._prepare_request = prepared
        near.scripts = [say_nothing, answer("there")]
        assert asked.text("m").strip() == "there"
        record = asked.record
    assert sorted((one.number, one.kind) for one in record.attempts) == [(1, "first"), (2, "hedge")]
    begun_ns = {one.kind: one.wire.started_ns for one in record.attempts}
    assert begun_ns["hedge"] - begun_ns["first"] >= 50_000_000


def test_second_attempt_that_fails_leaves_the_first_alone(kind: str, near: Upstream) -> None:
    with Asked(kind, near.url, hedging()) as asked:
        used_to(asked, near, model="m")
        near.scripts = [once(lambda: len(near.answered) == 1, answer("first")), refuse(500)]
        assert asked.text("m").strip() == "first"
        record = asked.record
    assert (record.hedging.hedged, record.hedging.won) == (True, False)


def test_failed_first_attempt_is_not_retried_beside_a_hedge(kind: str, near: Upstream) -> None:
    with Asked(kind, near.url, hedging(), max_retries=2) as asked:
        used_to(asked, near, model="m")
        near.scripts = [
            once(lambda: len(near.asked) == 2, refuse(500)),
            once(lambda: len(near.answered) == 1, answer("second")),
        ]
        assert asked.text("m").strip() == "second"
        record = asked.record
    assert record.hedging.won
    assert len(near.asked) == 2, "openai's own loop does not try the first one again beside the second"


@with_and_without_stream
def test_call_whose_attempts_both_time_out_has_timed_out(kind: str, stream: bool, near: Upstream) -> None:
    with Asked(kind, near.url, hedging(), max_retries=0, timeout=1) as asked:
        used_to(asked, near, model="m")
        near.scripts = [say_nothing, say_nothing]
        with pytest.raises(openai.APITimeoutError):
            asked.text("m", stream=stream)
        record = asked.record
    assert sorted(one.kind for one in record.attempts) == ["first", "hedge"]
    assert [one.error for one in record.attempts] == ["ReadTimeout"] * 2
    assert record.error == "APITimeoutError"


def test_failure_before_the_hedge_delay_is_retried(kind: str, near: Upstream) -> None:
    # A hedge is due before the retry, and long after the failure.
    with Asked(kind, near.url, Hedging(budget=1.0, minimum_delay_s=2.0), max_retries=2) as asked:
        used_to(asked, near, model="m")
        near.scripts = [refuse(500, ("retry-after-ms", "2200")), answer("again")]
        assert asked.text("m").strip() == "again"
        record = asked.record
    assert [one.kind for one in record.attempts] == ["first", "retry"]
    assert not record.hedging.hedged


@pytest.mark.asyncio
async def test_cancelled_call_resets_both_attempts(near: Upstream) -> None:
    plays = [Connection(http2="require"), hedging()]
    client: Any
    async with AsyncOpenAI(api_key="sk-own", base_url=near.url, only_plays=plays, raise_play_errors=True) as client:
        for _ in range(22):
            await client.chat.completions.create(model="m", messages=MESSAGES)
        near.usually = say_nothing
        call = asyncio.create_task(client.chat.completions.create(model="m", messages=MESSAGES))
        assert await asyncio.to_thread(comes_true, lambda: len(near.silent) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        resets = [await asyncio.to_thread(the_reset_of, near, number) for number in (0, 1)]
        assert resets == [CANCEL, CANCEL]
        assert client.last_call.outcome == "cancelled"


def test_hedging_is_skipped_with_custom_http_client(near: Upstream) -> None:
    with openai.DefaultHttpxClient(http2=True) as http_client:
        asked = Asked("sync", near.url, hedging(), http_client=http_client)
        used_to(asked, near, model="m")
        near.scripts = [answer_after(0.2, "first")]  # well behind the delay
        assert asked.text("m").strip() == "first"
        assert not asked.record.hedging.hedged
        assert asked.record.hedging.why_not
    assert len(near.asked) == 1


def test_first_token_timeout_applies_while_hedging(kind: str, near: Upstream, far: Upstream) -> None:
    play = routing(near, far, first_token_timeout_s=0.3)
    with Asked(kind, near.url, play, hedging()) as asked:
        used_to_routes(asked, near)
        near.usually = say_nothing
        assert asked.text().strip() == "from far"
        assert asked.record.routing.model == "far"


def test_stream_broken_before_first_token_is_not_retried(kind: str, near: Upstream) -> None:
    near.scripts = [break_off_before]
    with Asked(kind, near.url, Hedging(budget=1.0, minimum_delay_s=20), max_retries=2) as asked:
        stream = asked.opened("m")  # as with the stock client: it has begun
        with pytest.raises(openai.APIConnectionError):
            list(stream)
        record = asked.record

    assert len(near.asked) == 1
    assert (record.outcome, record.error) == ("failed", "APIConnectionError")
    assert [(attempt.kind, attempt.status_code) for attempt in record.attempts] == [("first", 200)]
    assert record.attempts[0].error is not None
