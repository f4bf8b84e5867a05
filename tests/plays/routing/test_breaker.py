from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.routing.router import Breaker

S = 1_000_000_000


def opened(now: int = 0) -> Breaker:
    breaker = Breaker(Random(0))
    breaker.failed(None, now)
    breaker.failed(None, now)
    return breaker


@pytest.mark.parametrize(
    ("events", "at_s", "state"),
    [
        ("f", 0, "closed"),
        ("ff", 0, "open"),
        ("ff", 2, "half-open"),
        ("fa-f", 2, "closed"),
        ("f" + 61 * "-" + "f", 61, "closed"),
        ("r", 29, "open"),
        ("r", 31, "half-open"),
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


def test_every_probe_that_fails_makes_the_pause_longer_up_to_a_minute() -> None:
    breaker = opened()
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


def test_many_clients_do_not_come_back_at_once() -> None:
    pauses = set()
    for seed in range(20):
        breaker = Breaker(Random(seed))
        breaker.failed(None, 0)
        breaker.failed(None, 0)
        pauses.add(breaker.rest_s(0))
    assert len(pauses) == 20


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("apfr"), st.integers(0, 30)), max_size=40))
def test_it_never_rests_longer_than_a_minute_and_a_fifth_unless_it_is_asked_to(events: list[tuple[str, int]]) -> None:
    breaker = Breaker(Random(0))
    now = 0
    for what, seconds in events:
        now += seconds * S
        if what == "a":
            breaker.answered(now)
        elif what == "p":
            breaker.begin_probe(now)
        else:
            breaker.failed(70.0 if what == "r" else None, now)
        assert 0 <= breaker.rest_s(now) <= 72
