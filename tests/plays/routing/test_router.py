from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.catalog import Catalog, CatalogModel
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.routing.router import Breaker, RouteQuery, Router

S = 1_000_000_000


def model(name: str, first_s: float = 1.0, pace: float = 100.0, **known: Any) -> CatalogModel:
    known = {"base_url": f"https://{name}.example.com/v1", **known}
    return CatalogModel(name=name, first_token_s=((1_000, first_s),), tokens_per_s=pace, **known)


def router(*models: CatalogModel, exploration: float = 0.0, **known: Any) -> Router:
    return Router(Catalog(models=models), exploration=exploration, **known)


def sighting(name: str, **shown: Any) -> Sighting:
    return Sighting(model=name, origin=f"https://{name}.example.com:443", **shown)


def names(known: Router, now: int = 0, **asked: Any) -> list[str]:
    return [candidate.name for candidate in known.decide(RouteQuery(input_tokens=1_000, **asked), now).ranked]


def test_high_quantile_prefers_the_steady_model() -> None:
    known = router(model("steady", 1.0), model("wild", 1.0))
    random = Random(0)
    for number in range(300):
        known.note(
            sighting("steady", uncached_tokens=1_000.0, first_token_s=random.lognormvariate(0.1, 0.05)), number * S
        )
        known.note(sighting("wild", uncached_tokens=1_000.0, first_token_s=random.lognormvariate(0.0, 0.9)), number * S)
    assert names(known, 300 * S, max_output_tokens=1, quantile=0.95)[0] == "steady"


@given(st.data())
def test_breaker_has_at_most_one_probe_in_flight(data: st.DataObject) -> None:
    """A law: as long as a third model is well, no more than one call is in flight to one that is not."""
    known, now, probes = router(model("a", 0.5), model("b", 0.6), model("well", 0.7)), 0, {"a": 0, "b": 0}
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from((0, S // 10, S // 2)))
        name = data.draw(st.sampled_from(("a", "b")))
        action = data.draw(st.sampled_from(("decide", "admit", "fail", "answer")))
        if action == "decide":
            decision = known.decide(RouteQuery(input_tokens=1_000), now)
            name = decision.ranked[0].name
            went = decision.reason == "probed"
        elif action == "admit":
            went = known.states[name].breaker.until_ns is not None and known.admit(known._catalog.named(name), now)
        else:
            went, probes[name] = False, 0
            known.note(sighting(name, **({"failure": "server"} if action == "fail" else {"first_token_s": 0.5})), now)
        if went:
            probes[name] += 1
            assert probes[name] == 1


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 100), share=st.sampled_from((0.0, 0.02, 0.1)))
def test_no_more_calls_explore_than_their_share(seed: int, share: float) -> None:
    random = Random(seed)
    known = router(
        *(model(f"m{at}", random.uniform(0.5, 1.5)) for at in range(5)), exploration=share, random=Random(seed)
    )
    explored = 0
    for number in range(400):
        decision = known.decide(RouteQuery(input_tokens=1_000), number * S)
        explored += decision.reason == "explored"
        known.note(sighting(decision.ranked[0].name, uncached_tokens=1_000.0, first_token_s=random.uniform(0.3, 3.0)), number * S)  # fmt: skip  # noqa: E501
    assert explored <= 400 * share + 1e-6


def test_call_that_waits_in_vain_keeps_the_next_one_away() -> None:
    known = router(model("hangs", 0.5), model("works", 0.8))
    end = known.began(known._catalog.named("hangs"), 1_000, 0)
    assert names(known, S // 10)[0] == "hangs"
    assert names(known, 6 * S)[0] == "works"
    end(True)
    assert names(known, 6 * S)[0] == "hangs"


@pytest.mark.parametrize(("has_token", "chosen"), [(True, "hangs"), (False, "works")])
def test_waiting_call_counts_unless_a_later_one_was_answered(has_token: bool, chosen: str) -> None:
    known = router(model("hangs", 0.5), model("works", 0.6))
    known.began(known._catalog.named("hangs"), 1_000, 0)
    end = known.began(known._catalog.named("hangs"), 1_000, 0)
    end(has_token)
    end(False)
    assert names(known, 6 * S)[0] == chosen


@pytest.mark.parametrize(
    ("events", "at_s", "state"),
    [
        ("f", 0, "closed"),
        ("ff", 0, "open"),
        ("ff", 2, "half-open"),
        ("fa-f", 2, "closed"),
        ("f" + 61 * "-" + "f", 61, "closed"),
        ("r", 29, "open"),
        ("r", 36, "half-open"),
        # An answer that was under way does not end a rest that the provider asked for.
        ("r-a", 2, "open"),
        # A rest of hours is one of a minute.
        ("R", 59, "open"),
        ("R", 73, "half-open"),
        ("R" + 74 * "-" + "a", 74, "closed"),
    ],
)
def test_breaker_opens_and_closes(events: str, at_s: int, state: str) -> None:
    """f: a failure; r and R: with a rest of 30 s, and of two hours; a: an answer; -: a second."""
    breaker, now = Breaker(Random(0)), 0
    for event in events:
        if event == "a":
            breaker.answered(now)
        elif event != "-":
            breaker.failed({"f": None, "r": 30.0, "R": 7_200.0}[event], now)
        now += S if event == "-" else 0

    assert breaker.state(at_s * S) == state


def test_failed_probes_lengthen_the_pause_up_to_a_minute() -> None:
    breaker = Breaker(Random(0))
    for _ in range(2):
        breaker.failed(None, 0)
    now, pauses = 0, []
    for _ in range(20):
        pauses.append(breaker.rest_s(now))
        now += round(pauses[-1] * S) + 1
        assert breaker.state(now) == "half-open"
        breaker.begin_probe(now)
        breaker.failed(None, now)
    assert 0.8 <= pauses[0] <= 1.2
    assert pauses[8] > 5 * pauses[0]
    assert 48 <= pauses[-1] <= 72
