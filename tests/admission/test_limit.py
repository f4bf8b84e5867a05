"""What is found out of providers that queue, refuse, change and answer unevenly, in simulated time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.admission import AdmissionSettings
from fastlane.admission._evidence import Sample, shift
from fastlane.admission._limit import ConcurrencyLimit
from tests.admission.simulated import Load, Simulation


@pytest.mark.parametrize("places", [2, 4, 16, 64])
@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_places_of_a_provider_are_found(places: int, refuses: bool, seed: int) -> None:
    load = Load(places=lambda _: places, refuses=refuses, interactive_per_s=places / 24, seed=seed)
    outcome = Simulation(load).run(300)
    assert outcome.limit(150) == pytest.approx(places, abs=max(1.1, 0.15 * places))


@pytest.mark.parametrize("places", [4, 16])
def test_unstreamed_answers_find_them_too(places: int) -> None:
    outcome = Simulation(Load(places=lambda _: places, streamed=False, interactive_per_s=places / 24)).run(400)
    assert outcome.limit(200) == pytest.approx(places, abs=max(1.5, 0.25 * places))


@pytest.mark.parametrize("seed", [1, 2])
def test_prompts_of_which_some_take_five_times_as_long_do_not_shrink_it(seed: int) -> None:
    outcome = Simulation(Load(places=lambda _: 16, long_share=0.3, seed=seed)).run(400)
    assert outcome.limit(200) > 12


@pytest.mark.parametrize("seed", [1, 2])
def test_a_change_of_all_prompts_is_not_taken_for_a_queue(seed: int) -> None:
    outcome = Simulation(Load(places=lambda _: 16, long_from_s=200, seed=seed)).run(600)
    assert outcome.limit(300) > 12


@pytest.mark.parametrize("seed", [1, 2])
def test_it_shrinks_with_the_provider_and_grows_again(seed: int) -> None:
    load = Load(places=lambda at: 6 if 200 <= at < 400 else 24, seed=seed, interactive_per_s=0.2)
    outcome = Simulation(load).run(700)
    assert outcome.limit(100, 200) > 19
    assert outcome.limit(320, 400) < 10
    assert outcome.limit(600) > 19


@given(
    places=st.sampled_from([3, 10, 30]),
    decode_s=st.floats(min_value=0.1, max_value=3),
    jitter=st.floats(min_value=0, max_value=1),
    long_share=st.floats(min_value=0, max_value=0.5),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=12, deadline=None)
def test_it_never_collapses_and_never_runs_away(
    places: int, decode_s: float, jitter: float, long_share: float, seed: int
) -> None:
    load = Load(
        places=lambda _: places, decode_s=decode_s, jitter=jitter, long_share=long_share, seed=seed, background=100,
        interactive_per_s=0.1,
    )  # fmt: skip
    outcome = Simulation(load).run(150)
    assert places / 3 <= outcome.limit(75) <= 2.5 * places


def test_an_interactive_call_hardly_waits_beside_a_flood_where_there_is_room() -> None:
    outcome = Simulation(Load(places=lambda _: 64, interactive_per_s=2 / 3)).run(400)
    waited = sorted(waited for at, waited in outcome.waited if at > 150)
    assert waited[int(0.95 * len(waited))] < 0.1


def test_interactive_calls_alone_do_not_wait_before_a_bound_is_met() -> None:
    outcome = Simulation(Load(places=lambda _: 100, background=0, interactive_per_s=20)).run(60)
    waited = sorted(waited for _, waited in outcome.waited)
    assert waited[int(0.99 * len(waited))] < 0.01


def test_calls_of_which_hardly_two_are_of_one_size_find_more_places_too() -> None:
    outcome = Simulation(Load(places=lambda _: 64, sizes=24, interactive_per_s=0.2)).run(200)
    assert outcome.limit(100) > 45


def test_calls_of_one_size_are_compared_where_there_are_enough() -> None:
    low = [Sample("kind", 3, 1.0, 2.0, 4)] * 20 + [Sample("kind", 6, 5.0, 6.0, 4)] * 20
    high = [Sample("kind", 3, 1.0, 2.0, 8)] * 4 + [Sample("kind", 6, 5.0, 6.0, 8)] * 36
    found = shift(high, low)
    assert found is not None
    assert found.later_s == 0


def test_the_application_s_bound_holds_from_the_first_call_on() -> None:
    load = Load(places=lambda _: 64, settings=AdmissionSettings(max_concurrency=5), interactive_per_s=3)
    assert Simulation(load).run(60).most_under_way == 5


def test_a_call_that_is_refused_alone_teaches_nothing_of_places() -> None:
    limit = ConcurrencyLimit()
    before = limit.places
    mark = limit.sent(0, 1)
    limit.refused(mark, limit.number, 1)
    assert limit.places == before


def test_calls_refused_together_are_one_lesson() -> None:
    limit = ConcurrencyLimit()
    sent = [(limit.sent(0, number), limit.number, number) for number in range(1, 41)]
    for told in sent[20:]:
        limit.refused(*told)
    assert limit.places == 20


def test_one_refusal_alone_is_none() -> None:
    limit = ConcurrencyLimit()
    sent = [(limit.sent(0, number), limit.number, number) for number in range(1, 41)]
    before = limit.places
    limit.refused(*sent[20])
    assert limit.places == before
    assert limit.learning


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("share", [0.02, 0.05])
def test_a_provider_that_refuses_a_few_whatever_is_under_way_is_used_all_the_same(share: float, seed: int) -> None:
    outcome = Simulation(Load(places=lambda _: 32, refused_share=share, interactive_per_s=1.3, seed=seed)).run(300)
    assert outcome.limit(150) > 20


@given(
    low=st.lists(st.floats(min_value=0.1, max_value=10), min_size=8, max_size=64),
    later=st.floats(min_value=0, max_value=20),
)
def test_what_makes_all_first_tokens_later_is_what_is_found(low: list[float], later: float) -> None:
    sides = [[Sample("kind", 3, one + more, 20.0, 5) for one in low] for more in (later, 0.0)]
    found = shift(*sides)
    assert found is not None
    assert found.later_s == pytest.approx(later, abs=1e-9)


def test_calls_of_different_kinds_are_not_compared() -> None:
    high = [Sample("long", 3, 5.0, 9.0, 8)] * 20
    low = [Sample("short", 3, 1.0, 2.0, 4)] * 20
    assert shift(high, low) is None
