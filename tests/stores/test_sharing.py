"""What one replica has learned of a model, the others know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from fastlane import Catalog, CatalogModel, Price, Routing, score
from fastlane._clock import now_ns
from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.stores._sharing import digest_of
from fastlane.knowledge.stores._store import Receive, State
from fastlane.plays.routing._question import Question
from fastlane.plays.routing.catalog import scoreboard
from scripts.redis_server import RedisServer

CATALOG = Catalog(
    models=tuple(
        CatalogModel(
            name=name, base_url=f"https://{name}.example/v1", first_token_s=((1_000, seconds),), tokens_per_s=99.0
        )
        for name, seconds in (("near", 0.1), ("far", 0.4))
    )
)


class Wire:
    """Several processes' stores, without a server: what one says, the others hear at once."""

    def __init__(self) -> None:
        self.ends: list[End] = []

    def end(self) -> End:
        self.ends.append(End(self))
        return self.ends[-1]


class End:
    """The store of one process."""

    state: State = "connected"

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.receivers: list[Receive] = []
        self.said: list[Mapping[str, Any]] = []

    def publish(self, event: Mapping[str, Any]) -> None:
        self.said.append(event)
        for end in self.wire.ends:
            for receive in end.receivers if end is not self else ():
                receive(event, 0.5)

    def subscribe(self, receive: Receive) -> None:
        self.receivers.append(receive)

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_scores() -> Iterator[None]:
    scoreboard.clear()
    yield
    scoreboard.clear()


def chosen(play: Routing) -> str:
    return play.knowledge.memory.decide(Question(input_tokens=1_000), now_ns()).ranked[0].name


def seen(name: str, **more: Any) -> Sighting:
    return Sighting(model=name, origin=f"https://{name}.example:443", **more)


def within_two_seconds(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + 2
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    return is_so()


def test_a_replica_that_has_made_no_call_leaves_alone_what_asks_for_a_rest() -> None:
    wire = Wire()
    busy, idle = (Routing(CATALOG, exploration=0.0, store=wire.end()) for _ in range(2))
    assert chosen(idle) == "near"
    busy.knowledge.note(seen("near", failure="rate_limit", rest_s=60.0), now_ns())
    assert chosen(busy) == chosen(idle) == "far"


def test_another_replicas_own_network_is_no_failure_of_the_provider() -> None:
    wire = Wire()
    sick, well = (Routing(CATALOG, exploration=0.0, store=wire.end()) for _ in range(2))
    for _ in range(4):
        sick.knowledge.note(seen("near", failure="connection"), now_ns())
    assert chosen(sick) == "far"
    assert chosen(well) == "near"


def test_an_evaluation_is_told_once_however_many_plays_a_process_has() -> None:
    first, second = Wire(), Wire()
    plays = [Routing(CATALOG, store=wire.end()) for wire in (first, second)]
    heard: list[Mapping[str, Any]] = []
    for wire in (first, second):
        wire.end().subscribe(lambda event, age_s: heard.append(event))
    score("triage", "near", True)
    assert len({event["number"] for event in heard}) == 1
    assert scoreboard.of("triage", "near").count == 1
    # As another process would tell it, by two stores.
    event = {"kind": "score", "task": "triage", "model": "near", "passed": True, "number": "another-1-1"}
    for wire in (first, second):
        wire.end().publish(event)
    assert scoreboard.of("triage", "near").count == 2
    assert len(plays) == 2


def test_a_corrected_price_keeps_what_was_learned() -> None:
    near, far = CATALOG.models
    corrected = Catalog(models=(far, near.model_copy(update={"price": Price(input=1.0, output=2.0)})))
    moved = Catalog(models=(near.model_copy(update={"base_url": "https://elsewhere.example/v1"}), far))
    assert digest_of(CATALOG) == digest_of(corrected)
    assert len({digest_of(CATALOG), digest_of(moved), digest_of(Catalog(models=(near,)))}) == 3


def test_what_a_replica_expects_of_a_cache_is_its_own_affair() -> None:
    wire = Wire()
    teller, hearer = (Routing(CATALOG, store=wire.end()) for _ in range(2))
    upstream = Upstream("near", "https://near.example:443")
    before = hearer.knowledge.asking._sizes.cached_share(upstream, True)
    for _ in range(30):
        expected = 1_000 * teller.knowledge.asking._sizes.cached_share(upstream, True)
        teller.knowledge.note(seen("near", expected_cached_tokens=expected, cached_tokens=100), now_ns())
    assert teller.knowledge.asking._sizes.cached_share(upstream, True) == pytest.approx(0.1, abs=0.05)
    assert hearer.knowledge.asking._sizes.cached_share(upstream, True) == before


def test_replicas_share_speeds_and_rests_over_a_real_server(redis_server: RedisServer) -> None:
    first, second = (Routing(CATALOG, exploration=0.0, store=redis_server.url) for _ in range(2))
    for _ in range(6):
        first.knowledge.note(seen("near", uncached_tokens=1_000, first_token_s=3.0), now_ns())
    assert chosen(first) == "far"
    assert within_two_seconds(lambda: chosen(second) == "far")
    first.knowledge.note(seen("far", failure="rate_limit", rest_s=60.0), now_ns())
    assert within_two_seconds(lambda: chosen(second) == "near")
    for play in (first, second):
        assert play.knowledge.shares is not None
        play.knowledge.shares.close()  # type: ignore[attr-defined]
