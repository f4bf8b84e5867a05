"""However a call ends, it leaves exactly one record, and the client keeps no more than its last calls."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from typing import Any

import pytest

from fastlane import CallRecord
from fastlane.emulator import Emulator
from fastlane.engine import pipeline
from tests.transport.callers import CALLERS, Caller, comes_true_for, open_connections
from tests.transport.conftest import PLAYS

# It goes on for longer than a test may take.
UNENDING = {"output_tokens": 10_000, "token_ms": 20}


def test_dropped_async_streams_cancel_upstream_silently(
    arguments: dict[str, Any], protocol: str, provider: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Caller("async", **arguments, only_plays=[PLAYS[protocol]]) as caller,
        caplog.at_level(logging.WARNING),
    ):
        for number in range(1, 6):
            stream = caller.start(2, **UNENDING)
            del stream
            gc.collect()
            assert comes_true_for(caller, lambda number=number: len(caller.calls) == number)  # type: ignore[misc]
            assert comes_true_for(caller, lambda: all(request.reset_ns is not None for request in provider.log()))
        caller.sleep(0.05)
    assert {record.outcome for record in caller.calls} <= {"closed", "abandoned"}
    assert caplog.messages == []


def test_threads_that_close_a_stream_at_once(arguments: dict[str, Any]) -> None:
    reported: list[CallRecord] = []
    with Caller("sync", **arguments, on_call_end=[reported.append], raise_play_errors=True) as caller:
        for _ in range(20):
            stream = caller.start(1, **UNENDING)
            barrier = threading.Barrier(3)

            def close(stream: Any = stream, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                stream.close()

            threads = [threading.Thread(target=close) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert [record.outcome for record in reported] == ["closed"] * 20
        caller.ask(output_tokens=1)


@pytest.mark.slow
@pytest.mark.parametrize("form", CALLERS)
def test_memory_stays_flat_over_thousands_of_calls(
    form: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is remembered fills up early, so that only what is kept besides can grow.
    monkeypatch.setattr(pipeline, "REMEMBERED_CALLS", 50)

    def ask(count: int) -> int:
        for _ in range(count):
            calls.ask(output_tokens=1)
        gc.collect()
        return sys.getallocatedblocks()

    with CALLERS[form](**arguments, max_retries=0) as calls:
        ask(200)
        filled = ask(50)
        later = ask(1_500)

    # One call that is kept whole is dozens of blocks of memory. pydantic's parser remembers up to 16,384 short strings:
    # every answer brings it a new one, its id.
    assert later - filled < 2 * 1_500


@pytest.mark.slow
def test_streams_that_are_dropped_unread_never_freeze_the_client(
    caller: Any, provider: Emulator, protocol: str, make_caller: Any
) -> None:
    # HTTP/2 has windows and a number of streams to run out of.
    rounds, at_once = (30 if protocol == "HTTP/2" else 10), 10
    for _ in range(rounds):
        streams = [caller.start(0, output_tokens=2_000, token_ms=1) for _ in range(at_once)]
        del streams
        gc.collect()
    caller.ask(output_tokens=1)

    assert 1 <= open_connections(caller) <= at_once + 2
    assert caller.last_call.outcome == "completed"
    outcomes = [call.outcome for call in caller.calls]
    assert outcomes.count("abandoned") == rounds * at_once
    assert len(outcomes) == rounds * at_once + 1
