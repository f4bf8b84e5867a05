"""What goes wrong in the midst of an answer reaches the application as openai's own error, and the next call works."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from fastlane.emulator import Emulator
from tests.transport.callers import text_of

WORDS = ", ".join(["one two three four five six seven eight nine ten"] * 4)


def tokens(events: list[Any]) -> int:
    return sum(bool(event.choices and event.choices[0].delta.content) for event in events)


@pytest.mark.parametrize(
    "fault", ["drop;after=3", "reset;after=3;code=8", "reset;after=3;code=2", "goaway=hard;after=3"]
)
def test_a_stream_that_breaks(caller: Any, fault: str) -> None:
    with pytest.raises(openai.APIConnectionError) as raised:
        caller.read(fault=fault, token_ms=5)
    record = caller.last_call
    caller.read(output_tokens=2)

    assert not isinstance(raised.value, openai.APITimeoutError)
    assert record.outcome == "failed"
    assert record.error == "APIConnectionError"
    assert record.finish_reason is None
    assert record.timeline.answer_ended_ns is None
    assert record.attempts[-1].error is not None
    assert len(record.timeline.token_ns) <= 3
    assert caller.last_call.outcome == "completed"


def test_a_stream_that_stalls_runs_into_the_time_out(caller: Any) -> None:
    # The time-out is that of each read, so it must be longer than a busy machine takes for the tokens before.
    caller.client = caller.client.with_options(timeout=openai.Timeout(40, read=3))
    with pytest.raises(openai.APITimeoutError):
        caller.read(fault="stall;after=3")
    record = caller.last_call

    assert record.outcome == "failed"
    assert record.error == "APITimeoutError"
    assert record.attempts[-1].error == "ReadTimeout"
    assert len(record.timeline.token_ns) == 3
    assert len(record.attempts) == 1
    assert record.api_end_to_end_s is not None
    assert record.api_end_to_end_s < record.duration_s


def test_a_stream_that_pauses_goes_on(caller: Any) -> None:
    events = caller.read(fault="stall=0.3;after=3", output_tokens=6)
    timeline = caller.last_call.timeline

    assert tokens(events) == len(timeline.token_ns) == 6
    assert caller.last_call.outcome == "completed"
    assert timeline.token_ns[3] - timeline.started_ns >= 290_000_000


def test_a_stream_that_ends_early_in_good_order_was_cut_off(caller: Any) -> None:
    events = caller.read(fault="truncate;after=3")

    assert tokens(events) == 3
    assert caller.last_call.outcome == "truncated"
    assert caller.last_call.error is None


def test_a_stream_without_done_and_without_usage_is_whole(caller: Any) -> None:
    caller.read(fault="no_done,no_usage", output_tokens=3)
    record = caller.last_call
    caller.read(output_tokens=3)

    assert record.outcome == "completed"
    assert record.usage.output_tokens is None
    assert caller.last_call.connection_reused is True


def test_a_role_that_comes_before_the_model_has_begun_is_no_first_token(caller: Any) -> None:
    caller.close_stream(caller.start(1, fault="early_role", prefill_ms=600_000))
    timeline = caller.last_call.timeline

    assert timeline.first_event_ns is not None
    assert timeline.first_token_ns is None
    assert caller.last_call.time_to_first_token_s is None


def test_comments_that_keep_the_connection_alive_are_no_tokens(caller: Any) -> None:
    caller.read(fault="keepalive=0.05", prefill_ms=300, output_tokens=3)
    record = caller.last_call

    assert record.time_to_first_token_s >= 0.29
    assert record.timeline.first_event_ns - record.timeline.started_ns >= 290_000_000
    assert len(record.timeline.token_ns) == 3


def test_headers_that_come_late_are_waited_for(caller: Any) -> None:
    caller.read(fault="slow_headers=0.3", output_tokens=3)

    wire = caller.last_call.attempts[0].wire
    assert wire.headers_received_ns - wire.started_ns >= 290_000_000
    assert wire.wait_s <= (wire.headers_received_ns - wire.started_ns) / 1e9
    assert caller.last_call.outcome == "completed"


def test_a_server_that_says_goodbye_in_good_order_ends_the_answer_it_has_begun(caller: Any, provider: Emulator) -> None:
    """The stock client drops the answer over HTTP/2; see RFC 9113, 6.8 for what the server means."""
    events = caller.read(fault="goaway=graceful;after=3", output_text=WORDS, token_ms=2)
    first = caller.last_call
    caller.read(output_tokens=2)

    assert text_of(events) == WORDS
    assert first.outcome == "completed"
    assert len(first.attempts) == 1
    assert caller.last_call.outcome == "completed"
    assert caller.last_call.connection_reused is False
    assert len({entry.connection_id for entry in provider.log()}) == 2


def test_a_goodbye_that_leaves_a_call_out_is_never_answered_silently(
    make_caller: Any, arguments: dict[str, Any]
) -> None:
    with make_caller(**arguments, max_retries=0) as caller:
        with pytest.raises(openai.APIConnectionError):
            caller.read(fault="goaway=hard;after=0;last=0")

        assert caller.last_call.outcome == "failed"
        assert caller.ask(output_tokens=1).choices
