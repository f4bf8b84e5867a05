"""Replicas of `Hedging` on a real server, and with none: what one has seen, another knows, and nobody waits for it."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator
from fastlane.errors import ConfigurationError
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.stores import _hedging_sharing, _shared
from fastlane.knowledge.stores._shared import SharedStore
from fastlane.knowledge.stores._store import store_of
from fastlane.plays.hedging._governor import SPENT, TOO_LITTLE_SEEN
from fastlane.plays.hedging.play import Hedging
from scripts.redis_server import RedisServer
from tests.hedging.simulated import ORIGIN, run, usual
from tests.stores.conftest import eventually

HERE = Upstream("m", ORIGIN)
AWAY = "redis://somebody:hunter2@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def own_world(monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
    monkeypatch.setattr(_hedging_sharing, "_NAMESPACE", namespace)
    monkeypatch.setattr(_shared, "_EVERY_S", 0.02)
    monkeypatch.setattr(_shared, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(_shared, "_LOOK_S", 0.05)


def store_of_play(play: Hedging) -> SharedStore:
    assert play.memory._fleet is not None
    store = play.memory._fleet._shares
    assert isinstance(store, SharedStore)
    return store


@pytest.fixture
def plays() -> Iterator[list[Hedging]]:
    made: list[Hedging] = []
    yield made
    for play in made:
        store_of_play(play).close()


def why_not(play: Hedging) -> str | None:
    return play.memory.governor(HERE).delay(1_000, time.perf_counter_ns())[1]


def test_a_replica_that_has_seen_nothing_knows_when_a_call_is_late(
    redis_server: RedisServer, plays: list[Hedging]
) -> None:
    plays.append(Hedging(store=redis_server.url))
    run(plays[0], usual(), calls=60)
    assert eventually(lambda: store_of_play(plays[0]).traffic.sent >= 60)
    plays.append(Hedging(store=redis_server.url))

    assert why_not(Hedging()) == TOO_LITTLE_SEEN
    assert eventually(lambda: why_not(plays[1]) is None)


def test_tokens_go_to_who_needs_them_and_no_more_than_there_are(
    redis_server: RedisServer, plays: list[Hedging]
) -> None:
    plays += [Hedging(store=redis_server.url) for _ in range(2)]
    rich, poor = plays
    for _ in range(400):
        rich.memory.budget.earn(1_000)
    poor.memory.budget.earn(1_000)
    all_left = rich.memory.budget.left + poor.memory.budget.left
    assert poor.memory._fleet is not None

    def is_given() -> bool:
        rich.memory._fleet.tell(HERE, None, None)  # type: ignore[union-attr]
        poor.memory._fleet.ask(time.perf_counter_ns())  # type: ignore[union-attr]
        return poor.memory.budget.left > 5_000

    assert poor.memory.governor(HERE).late(5_000, time.perf_counter_ns()) == SPENT
    assert eventually(is_given)
    assert poor.memory.governor(HERE).late(5_000, time.perf_counter_ns()) is None
    assert eventually(lambda: rich.memory.budget.left + poor.memory.budget.left == pytest.approx(all_left - 5_000))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_is_a_replica_of_its_own(redis_server: RedisServer, plays: list[Hedging]) -> None:
    plays += [Hedging(store=redis_server.url) for _ in range(2)]
    parent, other = plays
    run(parent, usual(), calls=30)
    assert eventually(lambda: why_not(other) is None)
    assert parent.memory._fleet is not None
    assert parent.memory.budget.left > 0
    if (child := os.fork()) == 0:
        code = 1
        try:
            began, sent = parent.memory.budget.left, store_of_play(parent).traffic.sent
            run(parent, usual(), calls=30)
            said = eventually(lambda: store_of_play(parent).traffic.sent >= sent + 30)
            code = 0 if said and began == 0 else 2
        finally:
            os._exit(code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    known = other.memory._fleet
    assert known is not None
    name = f"{parent.memory._fleet.name}-{child}"
    assert eventually(lambda: {parent.memory._fleet.name, name} <= known._spare.keys())  # type: ignore[union-attr]


def test_without_a_server_each_has_its_own_knowledge_and_its_own_budget(plays: list[Hedging]) -> None:
    pytest.importorskip("redis")
    plays.append(Hedging(store=AWAY))
    with_store = run(plays[0], usual(0.08), calls=300)
    alone = run(Hedging(), usual(0.08), calls=300)

    assert sum(alone.hedged) > 0
    assert with_store.hedged == alone.hedged
    assert with_store.first_tokens_s == alone.first_tokens_s
    assert store_of_play(plays[0]).state == "away"


def test_what_a_server_forgets_is_not_spent_twice(redis_of_its_own: RedisServer, plays: list[Hedging]) -> None:
    plays += [Hedging(store=redis_of_its_own.url) for _ in range(2)]
    rich, poor = plays
    for _ in range(400):
        rich.memory.budget.earn(1_000)
    poor.memory.budget.earn(1_000)
    all_left = rich.memory.budget.left + poor.memory.budget.left
    fleets = [play.memory._fleet for play in plays]

    def ask() -> bool:
        fleets[0].tell(HERE, None, None)  # type: ignore[union-attr]
        fleets[1].ask(time.perf_counter_ns())  # type: ignore[union-attr]
        return rich.memory.budget.left < 20_000

    assert eventually(ask)
    redis_of_its_own.kill()
    assert rich.memory.budget.left + poor.memory.budget.left <= all_left
    run(plays[1], usual(0.08), calls=50)
    redis_of_its_own.start()
    assert eventually(lambda: all(store_of_play(play).state == "connected" for play in plays))

    assert rich.memory.budget.left + poor.memory.budget.left <= all_left + 0.05 * 50 * 1_300


def test_the_second_call_of_a_new_replica_has_a_second_chance(
    redis_server: RedisServer, provider: Emulator, arguments: dict[str, Any], plays: list[Hedging]
) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Is water wet? " * 60}]}
    plays += [Hedging(store=redis_server.url, budget=1.0) for _ in range(2)]
    old, new = ([fastlane.Connection(), play] for play in plays)
    with fastlane.OpenAI(**arguments, only_plays=old, strict=True) as client:
        for _ in range(25):
            client.chat.completions.create(**asked)
    upstream = next(iter(plays[0].memory._governors))
    assert eventually(lambda: plays[1].memory.governor(upstream).delay(100, time.perf_counter_ns())[1] is None)
    with fastlane.OpenAI(**arguments, only_plays=new, strict=True) as client:
        # After which it asks for the tokens that the next is paid with.
        client.chat.completions.create(**asked)
        new_play = plays[1].memory
        assert eventually(lambda: new_play.budget.left > 1_500)
        late = {"x-emulator-fault": "hang=30;times=1", "x-emulator-tag": "late"}
        client.chat.completions.create(**asked, extra_headers=late)
        record = client.last_call

    assert record is not None
    assert record.hedging is not None
    assert (record.hedging.hedged, record.hedging.won) == (True, True)


# The play


def test_the_repr_and_the_errors_say_nothing_of_the_address(
    plays: list[Hedging], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("redis")
    plays.append(Hedging(store=AWAY))
    assert eventually(lambda: "away" in caplog.text)
    with pytest.raises(ConfigurationError) as raised:
        Hedging(store="http://somebody:hunter2@127.0.0.1:1/0")

    assert repr(plays[0]) == ("Hedging(budget=0.05, quantile=0.95, minimum_delay_s=0.1, not_with_tools=(), store=...)")
    assert "hunter2" not in repr(plays[0]) + caplog.text + str(raised.value)


@pytest.mark.parametrize("store", [3, object(), ["redis://localhost"]])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Hedging\(store=...\) takes an address such as"):
        Hedging(store=store)


def test_a_store_that_routing_has_too_is_taken_as_it_is(redis_server: RedisServer, namespace: str) -> None:
    store = store_of(redis_server.url, namespace=f"{namespace}-both")
    play = Hedging(store=store)
    stranger = store_of(redis_server.url, namespace=f"{namespace}-both")
    stranger.publish({"kind": "sighting", "model": "m", "origin": ORIGIN, "first_token_s": 1.0})
    assert isinstance(store, SharedStore)
    assert eventually(lambda: store.traffic.received == 1)

    assert why_not(play) == TOO_LITTLE_SEEN
    assert store.traffic.failed == 0
    store.close()
    stranger.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda play: pickle.loads(pickle.dumps(play))])
def test_a_copy_is_another_replica(copied: Any, plays: list[Hedging]) -> None:
    pytest.importorskip("redis")
    plays.append(Hedging(store=AWAY, quantile=0.9))
    plays.append(copied(plays[0]))
    names = {play.memory._fleet.name for play in plays if play.memory._fleet is not None}

    assert plays[0] == plays[1]
    assert len(names) == 2


def test_a_play_that_is_gone_hears_nothing_and_its_store_ends() -> None:
    pytest.importorskip("redis")
    play = Hedging(store=AWAY)
    memory, store = weakref.ref(play.memory), weakref.ref(store_of_play(play))
    del play

    assert eventually(lambda: gc.collect() >= 0 and memory() is None and store() is None)
