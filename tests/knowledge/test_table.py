"""The table of what is learned: bounded, expiring, safe for threads, finalizers and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastlane.knowledge import table as module
from fastlane.knowledge.table import Table
from tests.knowledge.forks import in_child

S = 1_000_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in nanoseconds, which the test sets."""
    now = [0]
    monkeypatch.setattr(module, "now_ns", lambda: now[0])
    return now


def test_table_full_drops_what_was_used_longest_ago() -> None:
    table: Table[str, int] = Table("t", max_entries=2)
    table.put("a", 1)
    table.put("b", 2)
    table.fetch("a", lambda: 7)
    table.put("c", 3)

    assert table.items() == [("a", 1), ("c", 3)]


def test_table_entry_is_renewed_by_fetching_and_not_by_reading(clock: list[int]) -> None:
    table: Table[str, int] = Table("t", max_entries=9, expires_s=10)
    table.put("a", 5)
    for seconds in (9, 18):
        clock[0] = seconds * S
        assert table.fetch("a", lambda: 1) == 5
    clock[0] = 27 * S
    assert table.get("a") == 5
    clock[0] = 28 * S

    assert table.get("a") is None
    assert table.items() == []


def test_table_expired_entries_are_removed_by_later_writes(clock: list[int]) -> None:
    table: Table[int, int] = Table("t", max_entries=1_000, expires_s=10)
    for number in range(100):
        table.put(number, number)
    clock[0] = 10 * S
    for number in range(100, 120):
        table.put(number, number)

    assert len(table) == 20


def test_table_entry_in_use_is_neither_dropped_nor_expires(clock: list[int]) -> None:
    used = {"a"}
    table: Table[str, str] = Table("t", max_entries=2, expires_s=10, in_use=used.__contains__)
    table.put("a", "a")
    for name in "bcd":
        table.put(name, name)
    clock[0] = 100 * S
    table.put("e", "e")

    assert table.get("a") == "a"
    assert len(table) == 2
    used.clear()
    clock[0] = 200 * S
    assert table.get("a") is None


def test_table_update_loses_nothing_between_threads() -> None:
    table: Table[str, int] = Table("t", max_entries=9)

    def count(_: int) -> None:
        for _ in range(2_000):
            table.update("a", lambda before: (before or 0) + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))

    assert table.get("a") == 8_000


def test_table_fetch_by_threads_gives_all_the_same_value() -> None:
    for _ in range(50):
        table: Table[str, object] = Table("t", max_entries=9)
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(table.fetch("a", object))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(set(map(id, found))) == 1


@pytest.mark.parametrize(
    "remove",
    [lambda table: table.put("a", None), lambda table: table.put("b", 1), Table.clear, lambda table: table.pop("a")],
    ids=["overwrite", "drop", "clear", "pop"],
)
def test_table_runs_value_finalizers_without_its_lock(remove: Callable[[Table[str, Any]], None]) -> None:
    table: Table[str, Any] = Table("t", max_entries=1)

    class Value:
        def __del__(self) -> None:
            table.put("left", 1)

    table.put("a", Value())
    remove(table)

    assert table.get("left") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_table_lock_is_free_in_a_forked_child() -> None:
    table: Table[str, int] = Table("t", max_entries=9)
    inside, leave = threading.Event(), threading.Event()

    def change(before: int | None) -> int:
        inside.set()
        leave.wait(30)
        return 1

    holder = threading.Thread(target=table.update, args=("a", change))
    holder.start()
    assert inside.wait(30)

    assert in_child(lambda: table.update("b", lambda before: 2)) == 2
    leave.set()
    holder.join()
    assert table.get("a") == 1
