"""Calls beside each other: none waits for another's tokens, and none is lost."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from fastlane.emulator import Emulator
from tests.transport.callers import open_connections


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
