"""Plays that share what they learn: each pair stands for two processes with one server."""

from __future__ import annotations

import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest

from fastlane import ConfigurationError, RateLimits, Routing
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, CatalogModel, ModelPrice, score
from fastlane.knowledge import redis as redis_module
from fastlane.knowledge.redis import Redis
from fastlane.knowledge.sightings import SharedSightings, Sighting, Upstream
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.limiter import RateLimiter
from fastlane.plays.rate_limits.queue import RateLimitQueue, RateLimitTicket
from fastlane.plays.routing.catalog.scores import scoreboard
from fastlane.plays.routing.knowledge import digest_of
from fastlane.plays.routing.router import RouteQuery
from scripts.redis_server import RedisServer
from tests.knowledge.redis_servers import eventually
from tests.plays.hedging.simulated import ORIGIN

AWAY = "redis://somebody:hunter2@127.0.0.1:1/0"
HERE = Upstream("m", ORIGIN)
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
def nothing_is_kept(redis_server: RedisServer) -> Iterator[None]:
    gc.collect()  # what earlier tests have shared through the same server
    redis_server.ask("FLUSHALL")
    scoreboard.clear()
    yield
    scoreboard.clear()


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


# Sightings


def seen(name: str = "near", **more: Any) -> Sighting:
    return Sighting(model=name, origin=f"https://{name}.example:443", **more)


def test_sightings_arrive_rounded_and_as_often_as_they_were_seen(redis_server: RedisServer) -> None:
    found: list[Sighting] = []
    one = SharedSightings(Redis(redis_server.url), "test", lambda sighting, at_ns: None)
    other = SharedSightings(Redis(redis_server.url), "test", lambda sighting, at_ns: found.append(sighting))
    other.watch(Upstream("near", "https://near.example:443"))
    random = Random(0)
    given = [random.lognormvariate(0.0, 0.5) for _ in range(150)]
    for seconds in given:
        one.add(seen(uncached_tokens=1_000.0, first_token_s=seconds))

    assert eventually(lambda: len(found) == len(given))
    read = sorted(sighting.first_token_s or 0.0 for sighting in found)
    assert read == pytest.approx(sorted(given), rel=0.05)
    assert [sighting.uncached_tokens for sighting in found] == [pytest.approx(1_000, rel=0.13)] * len(given)
    assert len(set(read)) < 40


def test_sightings_of_many_calls_are_an_even_share_of_them(redis_server: RedisServer) -> None:
    found: list[Sighting] = []
    one = SharedSightings(Redis(redis_server.url), "test", lambda sighting, at_ns: None)
    for number in range(5_000):
        one.add(seen(uncached_tokens=1_000.0, first_token_s=0.5 if number % 5 else 4.0))
    assert eventually(lambda: one._redis.exchanges > 0 and not one._redis._pending)
    one._redis.exchange()
    late = SharedSightings(Redis(redis_server.url), "test", lambda sighting, at_ns: found.append(sighting))
    late.watch(Upstream("near", "https://near.example:443"))

    assert eventually(lambda: len(found) >= 150)
    counts = Counter(round(sighting.first_token_s or 0.0) for sighting in found)
    assert len(found) <= 201
    assert counts[4] == pytest.approx(len(found) / 5, abs=4)


@pytest.mark.parametrize(
    "field",
    ["", "[]", "7", "{", '{"first_token_s": "1"}', '{"first_token_s": -1}', '{"late_s": 1e999}'],
)
def test_sightings_that_no_process_of_ours_writes_are_left_out(redis_server: RedisServer, field: str) -> None:
    found: list[Sighting] = []
    shared = SharedSightings(Redis(redis_server.url), "test", lambda sighting, at_ns: found.append(sighting))
    upstream = Upstream("near", "https://near.example:443")
    other = Redis(redis_server.url)
    other.add(shared.counters(upstream), {field: 1})
    other.add(shared.counters(upstream), {'{"first_token_s":1.0}': 1})
    shared.watch(upstream)

    assert eventually(lambda: len(found) >= 1)
    assert [sighting.first_token_s for sighting in found] == [1.0]


# Routing


def routing(server: RedisServer) -> Routing:
    return Routing(CATALOG, exploration=0.0, store=server.url)


def chosen(play: Routing) -> str:
    return play.knowledge.router.decide(RouteQuery(input_tokens=1_000), now_ns()).ranked[0].name


def is_resting(play: Routing, name: str) -> bool:
    return play.knowledge.router.states[name].breaker.rest_s(now_ns()) > 0


def test_routing_shares_speeds_and_rests(redis_server: RedisServer, two: Any) -> None:
    first, second = two(lambda: routing(redis_server))
    for _ in range(6):
        first.knowledge.note(seen("near", uncached_tokens=1_000, first_token_s=3.0), now_ns())
    assert chosen(first) == "far"
    assert eventually(lambda: chosen(second) == "far")
    first.knowledge.note(seen("far", failure="rate_limit", rest_s=60.0), now_ns())

    assert eventually(lambda: chosen(second) == "near")


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


def test_routing_shares_scores_once_however_many_plays_there_are(redis_server: RedisServer) -> None:
    plays = [routing(redis_server) for _ in range(2)]
    score("triage", "near", True)
    other = Redis(redis_server.url)
    other.add(redis_module.Counters("fastlane:scores", 86_400), {'["triage", "near", false]': 2, "[]": 1, "x": 1})

    assert eventually(lambda: scoreboard.of("triage", "near").count == 3)
    assert scoreboard.of("triage", "near").passed == 1
    assert len(plays) == 2


def test_routing_with_other_prices_keeps_what_was_learned() -> None:
    near, far = CATALOG.models
    corrected = Catalog(models=(far, near.model_copy(update={"price": ModelPrice(input=1.0, output=2.0)})))
    moved = Catalog(models=(near.model_copy(update={"base_url": "https://elsewhere.example/v1"}), far))

    assert digest_of(CATALOG) == digest_of(corrected)
    assert len({digest_of(CATALOG), digest_of(moved), digest_of(Catalog(models=(near,)))}) == 3


def test_routing_does_not_share_what_a_cache_holds(redis_server: RedisServer, two: Any) -> None:
    first, second = two(lambda: routing(redis_server))
    upstream = Upstream("near", "https://near.example:443")
    before = second.knowledge._cached_share(upstream, None)
    for _ in range(30):
        expected = 1_000 * first.knowledge._cached_share(upstream, None)
        first.knowledge.note(seen("near", expected_cached_tokens=expected, cached_tokens=100), now_ns())
    first.knowledge.note(seen("far", failure="rate_limit", rest_s=60.0), now_ns())

    assert eventually(lambda: is_resting(second, "far"))
    assert first.knowledge._cached_share(upstream, None) == pytest.approx(0.1, abs=0.05)
    assert second.knowledge._cached_share(upstream, None) == before


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
