from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.catalog import Catalog, CatalogModel, Task
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.routing.router import Breaker, RouteQuery, Router

S = 1_000_000_000
SHOWN: tuple[dict[str, Any], ...] = (
    {"failure": "server"},
    {"first_token_s": 2.0},
    {"failure": "timeout", "late_s": 9.0},
)


def model(name: str, first_s: float = 1.0, pace: float = 100.0, **known: Any) -> CatalogModel:
    known = {"base_url": f"https://{name}.example.com/v1", **known}
    return CatalogModel(name=name, first_token_s=((1_000, first_s),), tokens_per_s=pace, **known)


def router(
    *models: CatalogModel, exploration: float = 0.0, tasks: dict[str, Task] | None = None, **known: Any
) -> Router:
    return Router(Catalog(models=models, tasks=tasks or {}), exploration=exploration, **known)


def sighting(name: str, **shown: Any) -> Sighting:
    return Sighting(model=name, origin=f"https://{name}.example.com:443", **shown)


def names(known: Router, now: int = 0, **asked: Any) -> list[str]:
    return [candidate.name for candidate in known.decide(RouteQuery(input_tokens=1_000, **asked), now).ranked]


def why_not(known: Router, name: str, now: int = 0, **asked: Any) -> str | None:
    question = RouteQuery(**{"input_tokens": 1_000, **asked})
    return next(one.why_not for one in known.decide(question, now).rejected if one.name == name)


def test_the_fastest_is_first_and_the_others_follow_in_order() -> None:
    known = router(model("slow", 3.0), model("fast", 0.5), model("medium", 1.0))
    assert names(known) == ["fast", "medium", "slow"]
    assert known.decide(RouteQuery(), 0).reason == "fastest"


def test_a_short_and_a_long_answer_have_different_models() -> None:
    known = router(model("quick-to-begin", 0.3, 50.0), model("quick-to-end", 2.0, 1_000.0))
    assert names(known, max_output_tokens=10)[0] == "quick-to-begin"
    assert names(known, max_output_tokens=500)[0] == "quick-to-end"


def test_a_short_and_a_long_prompt_have_different_models() -> None:
    small = CatalogModel(name="small", base_url="https://a.example.com", first_token_s=((100, 0.2), (100_000, 20.0)), tokens_per_s=100.0)  # fmt: skip  # noqa: E501
    large = CatalogModel(name="large", base_url="https://b.example.com", first_token_s=((100, 1.0), (100_000, 2.0)), tokens_per_s=100.0)  # fmt: skip  # noqa: E501
    known = router(small, large)
    assert known.decide(RouteQuery(input_tokens=200), 0).ranked[0].name == "small"
    assert known.decide(RouteQuery(input_tokens=50_000), 0).ranked[0].name == "large"


def test_a_prompt_that_is_cached_makes_the_slower_model_the_faster_one() -> None:
    first = ((1_000, 0.5), (100_000, 10.0))
    one, two = (CatalogModel(name=name, base_url=f"https://{name}.example.com", first_token_s=first, tokens_per_s=100.0) for name in ("one", "two"))  # fmt: skip  # noqa: E501
    question = RouteQuery(input_tokens=50_000, cached_tokens={"two": 49_000})
    assert router(one, two).decide(question, 0).ranked[0].name == "two"


def test_at_a_high_quantile_the_steady_one_is_before_the_one_that_is_mostly_faster() -> None:
    known = router(model("steady", 1.0), model("wild", 1.0))
    random = Random(0)
    for number in range(300):
        known.note(
            sighting("steady", uncached_tokens=1_000.0, first_token_s=random.lognormvariate(0.1, 0.05)), number * S
        )
        known.note(sighting("wild", uncached_tokens=1_000.0, first_token_s=random.lognormvariate(0.0, 0.9)), number * S)
    assert names(known, 300 * S, max_output_tokens=1, quantile=0.95)[0] == "steady"


def test_what_cannot_answer_is_rejected_with_the_reason() -> None:
    known = router(
        model("good", quality=50, capabilities=("tools",), context_tokens=100_000),
        model("dull", quality=30, capabilities=("tools",)),
        model("clumsy", quality=50),
        model("small", quality=50, capabilities=("tools",), context_tokens=1_100),
        model("other", quality=50, capabilities=("tools",), endpoints=("/responses",)),
        model("odd", quality=50, capabilities=("tools",)),
    )
    asked: dict[str, Any] = {"min_quality": 45, "needs": frozenset({"tools"}), "unfit": {"odd": "refuses n"}}
    assert names(known, **asked) == ["good"]
    assert known.decide(RouteQuery(input_tokens=1_000, **asked), 0).reason == "only"
    assert why_not(known, "dull", **asked) == "quality 30 is below 45"
    assert why_not(known, "clumsy", **asked) == 'its capabilities in the catalog lack "tools"'
    assert why_not(known, "small", **asked) == "1,100 tokens of context are too few"
    assert why_not(known, "other", **asked) == 'its endpoints in the catalog lack "/chat/completions"'
    assert why_not(known, "odd", **asked) == "refuses n"


def test_where_nothing_is_eligible_there_is_no_choice_and_no_reason() -> None:
    decision = router(model("dull", quality=30)).decide(RouteQuery(min_quality=45), 0)
    assert (decision.ranked, decision.reason) == ((), None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_breaker_has_one_probe_under_way_at_most(data: st.DataObject) -> None:
    """A law: as long as a third model is well, no more than one call is on its way to one that is not."""
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


def test_a_provider_that_asks_for_a_rest_gets_it_at_once() -> None:
    known = router(model("fast", 0.5), model("slow", 3.0))
    known.note(sighting("fast", failure="rate_limit", rest_s=20.0), 0)
    assert names(known, 19 * S) == ["slow"]
    assert not known.admit(known._catalog.named("fast"), 19 * S)
    assert known.admit(known._catalog.named("fast"), 21 * S)


def test_where_everything_has_failed_a_call_is_still_sent_somewhere() -> None:
    known = router(model("one"), model("two"))
    known.note(sighting("one", failure="rate_limit", rest_s=50.0), 0)
    known.note(sighting("two", failure="rate_limit", rest_s=10.0), 0)
    decision = known.decide(RouteQuery(), S)
    assert [candidate.name for candidate in decision.ranked] == ["two", "one"]
    assert decision.reason == "probed"


def test_a_model_that_nobody_asks_any_more_is_found_to_have_recovered() -> None:
    known = router(model("usual", 2.0), model("recovered", 1.0), exploration=0.02)
    now = 0
    for _ in range(30):
        now += S
        known.note(sighting("recovered", uncached_tokens=1_000.0, first_token_s=8.0), now)
    chosen = []
    for _ in range(600):
        now += S
        decision = known.decide(RouteQuery(input_tokens=1_000, max_output_tokens=10), now)
        chosen.append(decision.ranked[0].name)
        first_s = 2.0 if chosen[-1] == "usual" else 0.5
        known.note(sighting(chosen[-1], uncached_tokens=1_000.0, first_token_s=first_s), now)
    assert chosen[0] == "usual"
    assert chosen[-100:].count("recovered") >= 95


def calls_until_it_is_back(count: int, spell: int, pause_s: float, seed: int) -> int:
    """The first of `count` models is the fastest, then slow for a spell of calls; those after it that miss it."""
    random = Random(seed)
    usual = [1.0, *(1.3 + 0.1 * at for at in range(count - 1))]
    known = router(*(model(f"m{at}", first) for at, first in enumerate(usual)), exploration=0.02, random=Random(seed))
    now, well_again = 0, 200 + spell
    for number in range(well_again + 500):
        now += round(pause_s * S)
        tokens = random.choice((20, 100, 400))
        chosen = int(known.decide(RouteQuery(input_tokens=1_000, max_output_tokens=tokens), now).ranked[0].name[1:])
        if number >= well_again and chosen == 0:
            return number - well_again
        slow = 4.0 if chosen == 0 and number >= 200 else 1.0
        shown = {"first_token_s": slow * usual[chosen] * random.lognormvariate(0, 0.25), "output_tokens": tokens}
        known.note(sighting(f"m{chosen}", uncached_tokens=1_000.0, decode_s=slow * tokens / 100, **shown), now)
    return 500


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("pause_s", [0.02, 5.0])
def test_what_was_the_fastest_before_a_bad_spell_is_found_again_soon(count: int, pause_s: float) -> None:
    calls = sorted(calls_until_it_is_back(count, 200, pause_s, seed) for seed in range(5))
    assert calls[2] <= 150
    assert calls[-1] <= 300


def test_a_model_whose_calls_all_timed_out_at_once_is_used_again_when_it_answers() -> None:
    known = router(model("fast", 0.15), model("slow", 0.25))
    now = 0
    for number in range(100):
        now = number * S // 50
        known.note(sighting("fast", uncached_tokens=1_000.0, first_token_s=0.15), now)
    for number in range(12):
        known.note(sighting("fast", uncached_tokens=1_000.0, late_s=1.0, failure="timeout"), now + number * S // 20)
    assert names(known, now + 3 * S // 5)[0] == "slow"
    assert known.decide(RouteQuery(input_tokens=1_000), now + 4 * S).ranked[0].name == "fast"
    known.note(sighting("fast", uncached_tokens=1_000.0, first_token_s=0.15), now + 4 * S)
    assert names(known, now + 5 * S)[0] == "fast"


def test_a_prompt_that_is_too_long_says_nothing_of_the_upstreams_health() -> None:
    known = router(model("fast", 0.5), model("slow", 3.0))
    for _ in range(3):
        known.note(sighting("fast", failure="too_long"), 0)
    assert names(known, S)[0] == "fast"


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


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_model_is_ranked_or_rejected_and_the_ranking_is_by_time(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    known = router(*(model(f"m{at}", data.draw(st.floats(0.01, 20)), quality=float(at)) for at in range(count)))
    for _ in range(data.draw(st.integers(0, 10))):
        shown = data.draw(st.sampled_from(SHOWN))
        known.note(sighting(f"m{data.draw(st.integers(0, count - 1))}", uncached_tokens=1_000.0, **shown), 0)
    decision = known.decide(RouteQuery(input_tokens=500, min_quality=data.draw(st.sampled_from((None, 3.0)))), 0)
    assert {one.name for one in (*decision.ranked, *decision.rejected)} == {f"m{at}" for at in range(count)}
    if decision.reason == "fastest":
        totals = [one.total_s for one in decision.ranked]
        assert totals == sorted(totals)


def test_the_same_seed_and_the_same_sightings_make_the_same_decisions() -> None:
    def run() -> list[str]:
        known = router(model("a"), model("b", 1.1), model("c", 1.2), exploration=0.1, random=Random(7))
        random = Random(1)
        chosen = []
        for number in range(200):
            chosen.append(names(known, number * S)[0])
            failed = random.random() < 0.1
            shown: dict[str, Any] = {"failure": "server"} if failed else {"first_token_s": random.uniform(0.5, 2)}
            known.note(sighting(chosen[-1], uncached_tokens=1_000.0, **shown), number * S)
        return chosen

    assert run() == run()


def test_a_first_token_is_waited_for_longer_where_little_is_known() -> None:
    known = router(model("one", 1.0))
    before = known.first_token_timeout(known._catalog.named("one"), 1_000, 0)
    for number in range(200):
        known.note(sighting("one", uncached_tokens=1_000.0, first_token_s=1.0 + 0.1 * (number % 3)), number * S)
    after = known.first_token_timeout(known._catalog.named("one"), 1_000, 200 * S)
    assert 1.0 < after < before
    assert before >= 3.5
    assert router(model("quick", 0.01)).first_token_timeout(model("quick", 0.01), 10, 0) == 1.0


def test_a_sighting_of_a_stranger_is_left_out_and_one_at_the_applications_own_place_is_not() -> None:
    own = CatalogModel(name="own", first_token_s=((1_000, 1.0),), tokens_per_s=100.0)
    known = router(own)
    known.note(Sighting(model="stranger", origin="https://x.example.com:443", first_token_s=9.0), 0)
    known.note(Sighting(model="own", origin="https://wherever.example.com:443", first_token_s=1.0), 0)
    assert [row["seen"] for row in known.report(0)] == [1]


def test_the_report_says_of_each_model_what_is_known() -> None:
    known = router(model("one"), model("two", 5.0))
    names(known)
    known.note(sighting("two", failure="rate_limit", rest_s=20.0), 0)
    one, two = known.report(S)
    assert (one["name"], one["breaker"], one["share_of_calls"]) == ("one", "closed", 1.0)
    assert (two["seen"], two["breaker"], two["tokens_per_s"]) == (0, "open", pytest.approx(100.0))


def test_threads_may_note_and_decide_at_once() -> None:
    known = router(*(model(f"m{at}") for at in range(6)), exploration=0.1)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        random = Random(seed)
        try:
            for number in range(150):
                decision = known.decide(RouteQuery(task=f"t{number % 7}", input_tokens=1_000), number * S)
                chosen = decision.ranked[0].name
                shown: dict[str, Any] = {"failure": "server"} if random.random() < 0.2 else {"first_token_s": 1.0}
                known.note(sighting(chosen, task=f"t{number % 7}", output_tokens=9, **shown), number * S)
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(row["share_of_calls"] for row in known.report(0)) == pytest.approx(1.0)


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
