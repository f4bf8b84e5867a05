"""Replicas with one store keep to one limit: they tell each other what they spend and know, and when they rest."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane._clock import now_ns
from fastlane.knowledge.stores._pacing_sharing import share
from fastlane.knowledge.stores._shared import SharedStore
from fastlane.knowledge.stores._store import store_of
from fastlane.plays.urgency.pacing import Pacer
from scripts.redis_server import RedisServer
from tests.stores.conftest import eventually

AWAY = "redis://127.0.0.1:1/0"
NS = 1_000_000_000
HEADERS = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "300",
    "x-ratelimit-reset-requests": "30s",
}


@pytest.fixture
def stores(redis_server: RedisServer, namespace: str) -> Iterator[list[SharedStore]]:
    """Two of what two processes would have."""
    made = [store_of(redis_server.url, namespace=namespace) for _ in range(2)]
    yield [store for store in made if isinstance(store, SharedStore)]
    for store in made:
        store.close()


def replicas(
    stores: list[SharedStore], *, keys: tuple[str, str] = ("k", "k"), requests_per_minute: float | None = None
) -> list[Pacer]:
    made = [Pacer(jitter=Random(0), requests_per_minute=requests_per_minute) for _ in stores]
    for pacer, store, key in zip(made, stores, keys, strict=True):
        share(pacer, store, key=key)
    return made


def wait_s(pacer: Pacer) -> float:
    now = now_ns()
    return (pacer.ready_ns(now, tokens=10, level="interactive") - now) / NS


def test_what_one_spends_the_other_has_not(stores: list[SharedStore]) -> None:
    one, other = replicas(stores, requests_per_minute=60)
    for _ in range(2):
        one.spend(now_ns(), tokens=10)
    one.settled(now_ns() + NS, one.spend(now_ns(), tokens=10), None)

    assert eventually(lambda: wait_s(other) > 0)


def test_a_rest_that_was_asked_of_one_is_kept_by_the_other(stores: list[SharedStore]) -> None:
    one, other = replicas(stores)
    one.answered(now_ns(), one.spend(now_ns(), tokens=10), 429, {"retry-after": "600"})

    assert eventually(lambda: wait_s(other) > 50)
    assert wait_s(other) <= 60.5


def test_one_that_comes_later_knows_the_limits_before_its_first_call(stores: list[SharedStore]) -> None:
    one, other = replicas(stores)
    one.answered(now_ns(), one.spend(now_ns(), tokens=10), 200, HEADERS)
    one.answered(now_ns() + NS, one.spend(now_ns() + NS, tokens=10), 200, HEADERS)

    assert eventually(lambda: wait_s(other) == 0 and [limit.limit for limit in other.limits().limits] == [600])


def test_other_models_and_accounts_have_limits_of_their_own(stores: list[SharedStore]) -> None:
    one, other = replicas(stores, keys=("a", "b"))
    one.answered(now_ns(), one.spend(now_ns(), tokens=10), 429, {"retry-after": "600"})

    assert eventually(lambda: stores[1].traffic.received >= 1)
    assert wait_s(other) == 0


def test_events_that_none_of_ours_has_written_are_left_out(stores: list[SharedStore]) -> None:
    _, other = replicas(stores)
    bad: list[Any] = [
        {"requests": -1, "tokens": 0},
        {"requests": "many", "tokens": 0},
        {"requests": 1},
        {"requests": 1, "tokens": 1, "rest_s": 1e300},
        {"requests": 1, "tokens": float("1e300")},
        {"requests": 0, "tokens": 0, "limits": [["requests", 0, 60, 1]]},
        {"requests": 0, "tokens": 0, "limits": "requests"},
    ]
    for event in bad:
        stores[0].publish({"kind": "pacing", "key": "k", "by": "x", **event})
    stores[0].publish({"kind": "sighting"})
    stores[0].start()

    assert eventually(lambda: stores[1].traffic.received >= len(bad) + 1)
    assert wait_s(other) == 0
    assert other.limits().limits == ()
    assert stores[1].traffic.failed == 0


def test_without_its_store_a_replica_goes_on_alone() -> None:
    pytest.importorskip("redis")
    alone = Pacer(requests_per_minute=600)
    share(alone, AWAY, key="k")
    alone.spend(now_ns(), tokens=10)

    assert wait_s(alone) == 0


def test_all_models_of_a_process_share_one_store_and_a_pacer_is_shared_once() -> None:
    pytest.importorskip("redis")
    from fastlane.knowledge.stores import _pacing_sharing

    one, other = Pacer(), Pacer()
    share(one, AWAY, key="a")
    share(other, AWAY, key="b")
    share(one, AWAY, key="c")

    assert one.is_shared
    assert len([url for url in _pacing_sharing._stores if url == AWAY]) == 1


def test_a_pacer_that_is_gone_hears_nothing_and_its_store_ends() -> None:
    pytest.importorskip("redis")
    from fastlane.knowledge.stores import _pacing_sharing

    pacer = Pacer()
    share(pacer, AWAY, key="a")
    store, gone = weakref.ref(_pacing_sharing._stores[AWAY]), weakref.ref(pacer)
    del pacer

    assert eventually(lambda: gc.collect() >= 0 and gone() is None and store() is None)


@pytest.mark.parametrize("store", [3, object(), ["redis://localhost"]])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Urgency\(store=...\) takes an address such as"):
        share(Pacer(), store, key="k")
