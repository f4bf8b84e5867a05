"""Plays that share what they learn: each pair stands for two processes with one server."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from fastlane import ConfigurationError, RateLimits, Routing
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, CatalogModel
from fastlane.knowledge import redis as redis_module
from fastlane.knowledge.redis import Redis
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.limiter import RateLimiter
from fastlane.plays.rate_limits.queue import RateLimitQueue, RateLimitTicket
from fastlane.plays.routing.router import RouteQuery
from scripts.redis_server import RedisServer
from tests.knowledge.redis_servers import eventually

AWAY = "redis://somebody:hunter2@127.0.0.1:1/0"
NS = 1_000_000_000
CATALOG = Catalog(
    models=tuple(
        CatalogModel(
            name=name, base_url=f"https://{name}.example/v1", first_token_s=((1_000, seconds),), tokens_per_s=99.0
        )
        for name, seconds in (("near", 0.1), ("far", 0.4))
    )
)


@pytest.fixture(autouse=True)
def nothing_is_kept(redis_server: RedisServer) -> None:
    gc.collect()  # what earlier tests have shared through the same server
    redis_server.ask("FLUSHALL")


@pytest.fixture
def two(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[Any]]:
    """Makes two of something, each with a connection of its own to the server, as two processes have."""

    def make(one: Callable[[], Any]) -> list[Any]:
        made = []
        for _ in range(2):
            monkeypatch.setattr(redis_module, "_by_url", weakref.WeakValueDictionary())
            made.append(one())
        return made

    return make


def seen(name: str = "near", **more: Any) -> Sighting:
    return Sighting(model=name, origin=f"https://{name}.example:443", **more)


# Routing


def routing(server: RedisServer) -> Routing:
    return Routing(CATALOG, exploration=0.0, store=server.url)


def chosen(play: Routing) -> str:
    return play.knowledge.router.decide(RouteQuery(input_tokens=1_000), now_ns()).ranked[0].name


def is_resting(play: Routing, name: str) -> bool:
    return play.knowledge.router.states[name].breaker.rest_s(now_ns()) > 0


def test_routing_shares_rests(redis_server: RedisServer, two: Any) -> None:
    first, second = two(lambda: routing(redis_server))
    assert chosen(second) == "near"
    first.knowledge.note(seen("near", failure="rate_limit", rest_s=60.0), now_ns())

    assert eventually(lambda: chosen(second) == "far")


def test_routing_few_failures_among_many_answers_open_no_breaker(redis_server: RedisServer, two: Any) -> None:
    first, second = two(lambda: routing(redis_server))
    for number in range(60):
        failed = {"failure": "server"} if number % 20 == 0 else {"first_token_s": 0.1}
        first.knowledge.note(seen("near", uncached_tokens=1_000, **failed), now_ns())
    first.knowledge.note(seen("far", failure="rate_limit", rest_s=60.0), now_ns())

    assert eventually(lambda: is_resting(second, "far"))
    assert not is_resting(second, "near")


def test_routing_connection_failures_are_not_shared(redis_server: RedisServer, two: Any) -> None:
    sick, well = two(lambda: routing(redis_server))
    for _ in range(4):
        sick.knowledge.note(seen("near", failure="connection"), now_ns())
    sick.knowledge.note(seen("far", failure="rate_limit", rest_s=60.0), now_ns())
    assert chosen(sick) == "near"

    assert eventually(lambda: is_resting(well, "far"))
    assert not is_resting(well, "near")


def test_routing_with_other_catalogs_shares_nothing(redis_server: RedisServer, two: Any) -> None:
    other = Catalog(models=CATALOG.models[::-1])
    catalogs = iter([CATALOG, other])
    first, second = two(lambda: Routing(next(catalogs), exploration=0.0, store=redis_server.url))
    first.knowledge.note(seen("near", failure="rate_limit", rest_s=60.0), now_ns())
    time.sleep(0.2)

    assert not is_resting(second, "near")


# Pacing


def limit_queues(server: RedisServer, *, keys: tuple[str, str] = ("k", "k")) -> list[RateLimitQueue]:
    queues = [RateLimitQueue(limiter=RateLimiter(jitter=Random(0))) for _ in keys]
    for queue, key in zip(queues, keys, strict=True):
        queue.share(Redis(server.url), key)
    return queues


def ask(queue: RateLimitQueue, status: int, headers: Mapping[str, str]) -> None:
    ticket = RateLimitTicket(queue, 0, RequestCost(tokens=10), STATED)
    ticket.start(bool)
    if status:
        queue.answered(ticket, status, headers)


def wait_s(queue: RateLimitQueue) -> float:
    with queue.lock:
        now = now_ns()
        return (queue.limiter.ready_ns(now, RequestCost(tokens=10), stated=STATED) - now) / NS


STATED: Any = (("requests", 60.0),)


def test_rate_limits_what_one_spends_the_other_has_not(redis_server: RedisServer, two: Any) -> None:
    one, other = limit_queues(redis_server)
    for _ in range(3):
        wait_s(other)  # both state the limit
        ask(one, 0, {})

    assert eventually(lambda: wait_s(other) > 0)


def test_rate_limits_rest_is_shared_until_a_response(redis_server: RedisServer, two: Any) -> None:
    one, other = limit_queues(redis_server)
    ticket = RateLimitTicket(other, 0, RequestCost())
    ticket.start(bool)
    ask(one, 429, {"retry-after": "600"})

    assert eventually(lambda: wait_s(other) > 50)
    assert wait_s(other) <= 60.5
    with other.lock:
        later = other.limiter.spend(now_ns(), RequestCost())
        other.limiter.answered(now_ns(), later, 200, {})
    assert wait_s(other) < 5
    time.sleep(0.2)  # in which it is read ten times more
    assert wait_s(other) < 5


def test_rate_limits_of_other_models_and_accounts_are_their_own(redis_server: RedisServer, two: Any) -> None:
    one, other = limit_queues(redis_server, keys=("a", "b"))
    third, _ = limit_queues(redis_server, keys=("a", "a"))
    ask(one, 429, {"retry-after": "600"})

    assert eventually(lambda: wait_s(third) > 50)
    assert wait_s(other) == 0


# Settings


@pytest.mark.parametrize(
    "make",
    [
        lambda store: Routing(CATALOG, store=store),
        lambda store: RateLimits(store=store),
    ],
    ids=["routing", "rate_limits"],
)
def test_store_of_a_play_is_checked_and_never_quoted(make: Callable[[Any], Any]) -> None:
    pytest.importorskip("redis")
    for store in (3, object(), "http://somebody:hunter2@127.0.0.1:1/0"):
        with pytest.raises(ConfigurationError, match=r"(takes|expects) an address such as") as raised:
            make(store)
        assert "hunter2" not in str(raised.value)

    assert "hunter2" not in repr(make(AWAY))
