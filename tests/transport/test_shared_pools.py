"""Pools come and go with their clients, and nothing waits for a lock in a finaliser."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.knowledge.forks import in_child

MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


@pytest.fixture
def collecting_at_every_turn() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collecting_at_every_turn")
def test_dropped_clients_cause_no_deadlock() -> None:
    def make_and_drop() -> None:
        for _ in range(60):
            # The resources refer back to their client: it goes when garbage is collected, wherever that is.
            _ = fastlane.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1").chat.completions
        done.set()

    done = threading.Event()
    threading.Thread(target=make_and_drop, daemon=True).start()

    assert done.wait(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_child_counts_the_clients_that_it_inherited(provider: Emulator, arguments: dict[str, Any]) -> None:
    one, other = fastlane.OpenAI(**arguments), fastlane.OpenAI(**arguments)

    def work() -> bool | None:
        one.models.list()
        other.close()  # must not close the connections that `one` uses
        one.models.list()
        return one.calls[-1].connection_reused

    assert in_child(work)
    one.close()
    other.close()

    assert len(provider.log()) == 2
