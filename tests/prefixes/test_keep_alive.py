"""Whether re-warming a prefix pays is what comes out if it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.errors import ConfigurationError
from fastlane.plays.prompt_cache.prefixes._keep_alive import KeepAlivePlan, Prices, plan_keep_alive

PRICES = Prices(input=2.0, cached=0.2, write=2.5)
PREFIX = 50_000
LIFETIME_S = 300.0


def lived_through(gaps_s: Sequence[float], every_s: float, most_requests: float) -> tuple[float, float]:
    """What an hour of calls with these times between them costs, without and with re-warming, step by step."""
    read, write = PREFIX * PRICES.cached / 1e6, PREFIX * (PRICES.write or 0) / 1e6
    without = with_requests = 0.0
    for gap_s in gaps_s:
        without += read if gap_s <= LIFETIME_S else write
        last_use_s = 0.0
        sent = 0
        while last_use_s + every_s < gap_s and sent < most_requests:
            last_use_s += every_s
            sent += 1
            with_requests += read
        with_requests += read if gap_s - last_use_s <= LIFETIME_S else write
    hours = math.fsum(gaps_s) / 3600
    return without / hours, with_requests / hours


def plan(**given: Any) -> KeepAlivePlan:
    return plan_keep_alive(
        **{"prefix_tokens": PREFIX, "lifetime_s": LIFETIME_S, "prices": PRICES, "output_tokens": 0, **given}
    )


@pytest.mark.parametrize("mean_s", [60, 300, 900, 2_400, 7_200])
def test_of_calls_at_random_cost_and_saving_are_what_a_simulation_finds(mean_s: float) -> None:
    random = Random(mean_s)
    gaps_s = [random.expovariate(1 / mean_s) for _ in range(60_000)]
    planned = plan(calls_per_hour=3600 / mean_s)
    without, with_requests = lived_through(gaps_s, planned.every_s, math.inf)

    assert planned.saves_per_hour - planned.cost_per_hour == pytest.approx(without - with_requests, abs=0.02 * without)
    assert planned.worth is (with_requests < without)
    assert planned.most_requests == (None if planned.worth else 0)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_of_measured_times_cost_and_saving_are_those_of_living_through_them(spread: float) -> None:
    random = Random(7)
    gaps_s = [random.lognormvariate(math.log(400), spread) for _ in range(500)]
    planned = plan(gaps_s=gaps_s)
    assert planned.most_requests is not None
    without, with_requests = lived_through(gaps_s, planned.every_s, planned.most_requests)

    assert planned.worth
    assert planned.saves_per_hour - planned.cost_per_hour == pytest.approx(without - with_requests)


@given(gaps_s=st.lists(st.floats(0, 5_000), min_size=1, max_size=30).filter(lambda gaps: math.fsum(gaps) > 1))
def test_no_other_number_of_requests_leaves_more(gaps_s: list[float]) -> None:
    planned = plan(gaps_s=gaps_s)
    without, best = lived_through(gaps_s, planned.every_s, planned.most_requests or 0)

    for most in range(25):
        assert best <= lived_through(gaps_s, planned.every_s, most)[1] + 1e-9
    assert planned.worth is (best < without - 1e-12) or math.isclose(best, without, rel_tol=1e-9)


def test_it_pays_between_calls_that_are_frequent_and_calls_that_are_rare() -> None:
    worth = [plan(calls_per_hour=rate).worth for rate in (0.01, 0.2, 2, 6, 20, 1_000, 5_000)]

    assert worth == [False, False, True, True, True, False, False]


def test_bursts_with_long_silences_are_given_up_on() -> None:
    gaps_s = ([5.0] * 20 + [500.0] * 3 + [50_000.0]) * 10
    planned = plan(gaps_s=gaps_s)

    assert planned.worth
    assert planned.most_requests == 1
    # Who knows the mean alone would go on through the long ones, and lose by it.
    assert plan(calls_per_hour=3600 * len(gaps_s) / math.fsum(gaps_s)).most_requests is None
    without, for_ever = lived_through(gaps_s, planned.every_s, math.inf)
    assert for_ever > without


def test_time_can_be_what_makes_it_worth_it() -> None:
    free = {"prices": Prices(1.0, 1.0), "calls_per_hour": 6.0}

    assert not plan(**free).worth
    assert plan(**free, seconds_per_uncached_token=1e-4, value_per_s=0.05).worth


def test_writing_costs_what_input_does_unless_it_is_said() -> None:
    one, other = plan(calls_per_hour=6.0, prices=Prices(2.0, 0.2)), plan(calls_per_hour=6.0, prices=Prices(9, 0.2, 2.0))

    assert one == other


def test_what_requests_generate_is_paid_for() -> None:
    dear = Prices(2.0, 0.2, 2.5, output=1000.0)

    assert plan(calls_per_hour=6.0, prices=dear).worth
    assert not plan(calls_per_hour=6.0, prices=dear, output_tokens=500).worth


def test_the_next_request_comes_before_the_prefix_is_gone() -> None:
    assert 0 < plan(calls_per_hour=6.0).every_s < LIFETIME_S


@pytest.mark.parametrize("given", [{"calls_per_hour": 0.0}, {"gaps_s": [0.0]}, {"calls_per_hour": 1e12}])
def test_where_nothing_can_be_saved_it_is_not_worth_it(given: dict[str, Any]) -> None:
    planned = plan(**given)

    assert (planned.worth, planned.most_requests, planned.saves_per_hour) == (False, 0, 0.0)


def test_the_reason_has_the_numbers() -> None:
    assert plan(calls_per_hour=6.0).reason == (
        "a call comes every 600 s on average, the prefix is kept for 300 s, and re-warming it after every 270 s of "
        "silence costs 0.106 an hour and saves 0.419"
    )
    assert plan(calls_per_hour=0).reason == "no calls are to come"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "either calls_per_hour"),
        ({"calls_per_hour": 1.0, "gaps_s": [1.0]}, "either calls_per_hour"),
        ({"calls_per_hour": -1.0}, "calls_per_hour=...\\) takes a number from 0, got -1.0"),
        ({"calls_per_hour": math.nan}, "calls_per_hour"),
        ({"gaps_s": []}, "at least one time"),
        ({"gaps_s": [1.0, -1.0]}, "at least one time"),
        ({"calls_per_hour": 1.0, "lifetime_s": 0}, "seconds above 0"),
        ({"calls_per_hour": 1.0, "prefix_tokens": -5}, "prefix_tokens"),
        ({"calls_per_hour": 1.0, "prices": Prices(1.0, -0.1)}, "prices.cached"),
        ({"calls_per_hour": 1.0, "value_per_s": math.inf}, "value_per_s"),
        ({"calls_per_hour": "4"}, "calls_per_hour=...\\) takes a number from 0, got '4'"),
        ({"calls_per_hour": 1.0, "lifetime_s": "5m"}, "seconds above 0, got '5m'"),
        ({"gaps_s": ["5"]}, "at least one time"),
        ({"calls_per_hour": 1.0, "prices": (2.0, 0.5)}, "takes fastlane.Prices\\(input=..., cached=...\\), got tuple"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        plan(**given)


def test_a_request_is_due_when_the_silence_has_been_long_enough() -> None:
    planned = plan(gaps_s=[5.0, 500.0])

    assert (planned.worth, planned.every_s, planned.most_requests) == (True, 270.0, 1)
    assert [planned.next_in_s(silence_s, 0) for silence_s in (0.0, 200.0, 270.0, 900.0)] == [270.0, 70.0, 0.0, 0.0]
    assert planned.next_in_s(900.0, 1) is None


def test_what_is_not_worth_it_is_never_due() -> None:
    assert plan(calls_per_hour=0.0).next_in_s(1e9, 0) is None


def test_calls_at_random_are_not_given_up_on() -> None:
    assert plan(calls_per_hour=6.0).next_in_s(270.0, 1_000) == 0.0
