"""Pools come and go with their clients and their event loops, and nothing waits for a lock in a finaliser."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
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
def test_clients_that_are_dropped_while_others_are_made_never_wait_for_each_other() -> None:
    def make_and_drop() -> None:
        for _ in range(60):
            # The resources refer back to their client: it goes when garbage is collected, wherever that is.
            _ = fastlane.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1").chat.completions
        done.set()

    done = threading.Event()
    threading.Thread(target=make_and_drop, daemon=True).start()

    assert done.wait(30)


def sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the directory's own descriptor is gone by now
            count += str(descriptor.readlink()).startswith("socket:")
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_a_client_that_lives_through_many_event_loops_leaves_nothing_open(arguments: dict[str, Any]) -> None:
    client = fastlane.AsyncOpenAI(**arguments)

    async def call() -> None:
        await client.chat.completions.create(model="m", messages=MESSAGES)

    asyncio.run(call())
    after_one = sockets()
    for _ in range(5):
        asyncio.run(call())

    assert sockets() <= after_one
    assert [record.connection_reused for record in client.calls] == [False] * 6
    asyncio.run(client.close())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_counts_the_clients_that_it_inherited(provider: Emulator, arguments: dict[str, Any]) -> None:
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
