from __future__ import annotations

from random import Random

from hypothesis import given, settings, strategies as st

from fastlane.plays.routing.breaker import Breaker

S = 1_000_000_000


def opened(now: int = 0) -> Breaker:
    breaker = Breaker(Random(0))
    breaker.failed(None, now)
    breaker.failed(None, now)
    return breaker


def test_one_failure_does_not_open_it() -> None:
    breaker = Breaker(Random(0))
    breaker.failed(None, 0)
    assert breaker.is_closed
    assert breaker.rest_s(0) == 0


def test_the_second_failure_without_an_answer_in_between_opens_it() -> None:
    assert opened().state(0) == "open"
    breaker = Breaker(Random(0))
    breaker.failed(None, 0)
    breaker.answered(S)
    breaker.failed(None, 2 * S)
    assert breaker.is_closed


def test_two_failures_far_apart_do_not_open_it() -> None:
    breaker = Breaker(Random(0))
    breaker.failed(None, 0)
    breaker.failed(None, 61 * S)
    assert breaker.is_closed


def test_a_rest_that_the_provider_asks_for_opens_it_at_once_and_for_as_long() -> None:
    breaker = Breaker(Random(0))
    breaker.failed(30.0, 0)
    assert breaker.state(29 * S) == "open"
    assert breaker.state(31 * S) == "half-open"


def test_breaker_rests_a_minute_at_most_when_asked_for_hours() -> None:
    breaker = Breaker(Random(0))
    breaker.failed(7_200.0, 0)
    assert breaker.state(59 * S) == "open"
    assert breaker.state(73 * S) == "half-open"
    breaker.answered(74 * S)
    assert breaker.state(74 * S) == "closed"


def test_an_answer_that_was_on_its_way_does_not_end_such_a_rest() -> None:
    breaker = Breaker(Random(0))
    breaker.failed(30.0, 0)
    breaker.answered(S)
    assert breaker.state(2 * S) == "open"


def test_one_call_at_a_time_sees_whether_it_is_over() -> None:
    breaker = opened()
    assert breaker.state(2 * S) == "half-open"
    breaker.begin_probe(2 * S)
    assert breaker.state(3 * S) == "open"
    assert breaker.state(33 * S) == "half-open", "a call that never came back is not waited for longer"


def test_a_probe_that_is_answered_closes_it() -> None:
    breaker = opened()
    breaker.begin_probe(2 * S)
    breaker.answered(3 * S)
    assert breaker.is_closed


def test_a_call_that_went_to_see_and_was_called_back_lets_the_next_one_go() -> None:
    breaker = opened()
    breaker.begin_probe(2 * S)
    breaker.end_probe()
    assert breaker.state(2 * S) == "half-open"


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
