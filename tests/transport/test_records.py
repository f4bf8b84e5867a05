"""However a call ends, it leaves exactly one record, and the client keeps no more than its last calls."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

from fastlane import CallRecord
from fastlane.engine import pipeline
from tests.transport.callers import CALLERS, Caller

# It goes on for longer than a test may take.
UNENDING = {"output_tokens": 10_000, "token_ms": 20}


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
