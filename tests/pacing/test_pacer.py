"""A pacer knows nothing at first, reads answers, counts what is under way, and waits where a refusal asks for it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane._clock import wall_ns
from fastlane.knowledge.redis import shared
from fastlane.plays.urgency.pacing import Pacer, Spent
from fastlane.plays.urgency.pacing._sharing import SharedPace
from fastlane.providers import facts_named
from fastlane.records.urgency import Level
from tests.pacing.simulated import NS, duration

T0 = 1_000 * NS


def told(remaining: float, *, limit: float = 600, window_s: float = 60.0, what: str = "requests") -> dict[str, str]:
    """The headers of a bucket."""
    return {
        f"x-ratelimit-limit-{what}": f"{limit:.0f}",
        f"x-ratelimit-remaining-{what}": f"{remaining:.0f}",
        f"x-ratelimit-reset-{what}": duration((limit - remaining) / limit * window_s),
    }


def pacer(requests_per_minute: float | None = None, tokens_per_minute: float | None = None) -> Pacer:
    return Pacer(jitter=Random(0), requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)


def left(of: Pacer, name: str = "requests") -> float:
    return next(limit.left for limit in of.limits().limits if limit.name == name)


def wait_s(of: Pacer, now_ns: int, *, tokens: int = 10, level: Level = "interactive") -> float:
    return (of.ready_ns(now_ns, tokens=tokens, level=level) - now_ns) / NS


def ask(of: Pacer, now_ns: int, headers: dict[str, str], *, status: int = 200, tokens: int = 10) -> Spent:
    spent = of.spend(now_ns, tokens=tokens)
    of.answered(now_ns + NS // 100, spent, status, headers)
    return spent


def test_nothing_is_held_back_before_something_is_known() -> None:
    unknowing = pacer()
    for _ in range(1_000):
        assert wait_s(unknowing, T0) == 0
        unknowing.spend(T0, tokens=10_000)

    assert unknowing.limits().limits == ()


def test_a_limit_is_known_from_the_first_answer() -> None:
    learning = pacer()
    ask(learning, T0, {**told(599), **told(59_990, limit=60_000, what="tokens")})

    known = {limit.name: (limit.limit, limit.window_s, limit.kind) for limit in learning.limits().limits}
    assert known == {"requests": (600, 60, "bucket"), "tokens": (60_000, 60, "bucket")}


def test_what_is_under_way_counts_before_any_answer_tells_of_it() -> None:
    busy = pacer()
    first = busy.spend(T0, tokens=10)
    for _ in range(20):
        busy.spend(T0 + 1, tokens=10)
    busy.answered(T0 + NS // 10, first, 200, told(100))

    assert left(busy) == pytest.approx(80 + 1, abs=0.2)


def test_an_answer_that_was_overtaken_changes_nothing() -> None:
    overtaken = pacer()
    ask(overtaken, T0, told(599))
    old = overtaken.spend(T0 + NS, tokens=10)
    new = overtaken.spend(T0 + 3 * NS, tokens=10)
    overtaken.answered(T0 + 4 * NS, new, 200, told(300))
    before = left(overtaken)
    overtaken.answered(T0 + 4 * NS, old, 200, told(599))

    assert left(overtaken) == before


@given(st.permutations(range(12)), st.integers(0, 300))
def test_in_whatever_order_answers_come_the_estimate_ends_at_the_truth(order: list[int], used: int) -> None:
    shuffled = pacer()
    ask(shuffled, T0, told(599 - used))
    sent = [shuffled.spend(T0 + (1 + number) * NS, tokens=10) for number in range(12)]
    # A bucket of 600 a minute: ten come back in each second, and one is taken.
    truth = [min(599.0, 599 - used + 9.0 * (1 + number)) for number in range(12)]
    for number in order:
        shuffled.answered(T0 + 13 * NS, sent[number], 200, told(truth[number]))

    assert left(shuffled) == pytest.approx(min(600.0, truth[-1] + 10), abs=3)


def test_a_request_waits_where_too_little_is_left_and_no_longer_than_that_takes() -> None:
    empty = pacer()
    ask(empty, T0, told(0))

    waited = wait_s(empty, T0 + NS // 50)
    # A hundredth of the limit is kept, and one comes back in a tenth of a second.
    assert 0.6 <= waited <= 0.8
    assert wait_s(empty, T0 + NS // 50 + int(waited * NS) + 1) == 0


def test_tokens_are_waited_for_by_how_many_they_are() -> None:
    empty = pacer()
    ask(empty, T0, told(0, limit=60_000, what="tokens"))

    assert wait_s(empty, T0 + NS // 50, tokens=5_000) == pytest.approx(5.6, rel=0.1)


def test_a_request_that_is_larger_than_the_limit_goes_when_all_is_there() -> None:
    small = pacer()
    ask(small, T0, told(1_000, limit=1_000, what="tokens"))

    assert wait_s(small, T0 + 2 * NS, tokens=5_000) == 0


def test_of_what_was_sent_before_anything_was_known_no_more_than_one_limit_is_waited_for() -> None:
    ignorant = pacer()
    first = ignorant.spend(T0, tokens=10)
    for _ in range(5_000):
        ignorant.spend(T0, tokens=10)
    ignorant.answered(T0 + NS // 100, first, 200, told(599))

    # Ten come back in a second: five thousand would take eight minutes.
    assert 55 <= wait_s(ignorant, T0 + NS // 50) <= 65


def test_background_leaves_a_share_to_calls_that_somebody_waits_for() -> None:
    shared = pacer()
    ask(shared, T0, told(50))

    assert wait_s(shared, T0 + NS // 50) == 0
    assert wait_s(shared, T0 + NS // 50, level="background") > 0
    assert wait_s(shared, T0 + NS // 50, level="offline") > 0


@pytest.mark.parametrize("level", ["interactive", "background"])
def test_a_days_budget_is_not_spread_over_the_day(level: Level) -> None:
    daily = Pacer(facts=facts_named("groq").rate_limits, jitter=Random(0))
    now = T0
    for number in range(1_000):
        assert wait_s(daily, now, level=level) == 0
        ask(daily, now, told(14_400 - 1 - number, limit=14_400, window_s=86_400))
        now += NS // 50

    assert [limit.window_s for limit in daily.limits().limits] == [86_400]


def test_a_day_that_is_used_up_is_waited_for() -> None:
    daily = Pacer(facts=facts_named("groq").rate_limits, jitter=Random(0))
    ask(daily, T0, told(0, limit=14_400, window_s=86_400))

    assert wait_s(daily, T0 + NS) > 5


def test_a_limit_per_day_is_told_from_one_per_minute_by_its_resets() -> None:
    learning = Pacer(facts=facts_named("openai").rate_limits, jitter=Random(0))
    for number in range(30):
        ask(learning, T0 + number * NS, told(9_999 - number, limit=10_000, window_s=86_400))

    assert [limit.window_s for limit in learning.limits().limits] == [86_400]


def test_a_limit_that_changes_is_taken_as_it_is() -> None:
    changing = pacer()
    ask(changing, T0, told(599))
    ask(changing, T0 + NS, told(5_999, limit=6_000))
    assert left(changing) == pytest.approx(5_999, abs=3)
    ask(changing, T0 + 2 * NS, told(10, limit=100))

    assert [limit.limit for limit in changing.limits().limits] == [100]
    assert left(changing) == pytest.approx(10, abs=1)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_nothing_is_sent_before_the_provider_said_and_little_later(status: int) -> None:
    resting = pacer()
    ask(resting, T0, {"retry-after": "10"}, status=status)

    assert 10 <= wait_s(resting, T0 + NS // 100) <= 10.5


def test_a_refusal_without_a_word_is_waited_out_longer_each_time() -> None:
    refused = pacer()
    waits, now = [], T0
    for _ in range(9):
        spent = refused.spend(now, tokens=10)
        refused.answered(now, spent, 429, {})
        waits.append(wait_s(refused, now))
        now = refused.ready_ns(now, tokens=10, level="interactive")

    assert waits[0] < waits[2] < waits[4]
    assert max(waits) <= 45


def test_refusals_of_one_burst_slow_down_once() -> None:
    burst = pacer()
    sent = [burst.spend(T0 + number, tokens=10) for number in range(50)]
    for spent in sent[20:]:
        burst.answered(T0 + NS // 10, spent, 429, {})
    once = burst.limits().requests_per_s

    assert once is not None
    assert 20 < once < 50
    assert burst.limits().refused == 30


@pytest.mark.parametrize("headers", [{}, {"retry-after": "1"}], ids=["silent", "retry-after"])
def test_pace_is_not_learned_from_one_refusal(headers: dict[str, str]) -> None:
    """The few requests before a single refusal say nothing of how many the provider accepts."""
    refused = pacer()
    ask(refused, T0, headers, status=429)
    now = T0 + 2 * NS
    for _ in range(100):
        assert wait_s(refused, now) == 0
        ask(refused, now, {})


def test_a_refusal_though_enough_is_left_spreads_what_follows() -> None:
    quantized = pacer()
    ask(quantized, T0, told(590))
    ask(quantized, T0 + NS // 10, {**told(589), "retry-after-ms": "100"}, status=429)
    assert [limit.is_spread for limit in quantized.limits().limits] == [True]
    now = T0 + 5 * NS
    for _ in range(3):  # what is late by up to a quarter of a second may catch up
        assert wait_s(quantized, now) == 0
        quantized.spend(now, tokens=10)
    assert wait_s(quantized, now) == pytest.approx(3 / 9.7 - 0.25, abs=0.01)


def test_a_limit_that_is_said_to_be_enforced_each_second_is_spread_from_the_beginning() -> None:
    spread = Pacer(facts=facts_named("azure_openai").rate_limits, jitter=Random(0))
    ask(spread, T0, {"x-ratelimit-limit-requests": "600", "x-ratelimit-remaining-requests": "599"})

    assert [limit.is_spread for limit in spread.limits().limits] == [True]


def test_whatever_nonsense_answers_hold_nothing_is_held_back_for_it() -> None:
    nonsense = {"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1", "retry-after": "nan"}
    unharmed = pacer()
    for number in range(100):
        ask(unharmed, T0 + number, {**nonsense, "x-ratelimit-remaining-tokens": "NaN"})

    assert wait_s(unharmed, T0 + 200) == 0
    assert unharmed.limits().limits == ()


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(1, 700), st.text(max_size=8), st.sampled_from([200, 429]))))
def test_no_answer_makes_a_wait_that_has_no_end(answers: list[tuple[int, int, str, int]]) -> None:
    tried = pacer()
    now = T0
    for remaining, limit, reset, status in answers:
        written = {"x-ratelimit-limit-requests": f"{limit}", "x-ratelimit-remaining-requests": f"{remaining}"}
        ask(tried, now, {**written, "x-ratelimit-reset-requests": reset}, status=status)
        now += NS // 3

    for _ in range(200):
        ready = tried.ready_ns(now, tokens=10, level="background")
        if ready == now:
            return
        assert ready > now
        now = ready
    raise AssertionError("it waits for ever")


# Limits that the application states


def test_stated_limits_hold_without_any_header() -> None:
    stated = pacer(requests_per_minute=600)
    now, sent = T0, 0
    while now < T0 + 60 * NS:
        now = stated.ready_ns(now, tokens=10, level="interactive")
        ask(stated, now, {})
        sent += 1

    assert 600 <= sent <= 632


def test_tokens_that_were_not_used_come_back() -> None:
    stated = pacer(tokens_per_minute=6_000)
    spent = ask(stated, T0, {}, tokens=300)
    assert wait_s(stated, T0 + NS // 50, tokens=300) > 2
    stated.settled(T0 + NS // 50, spent, 20)
    stated.settled(T0 + NS // 50, spent, 20)  # once

    assert wait_s(stated, T0 + NS // 50, tokens=270) == 0
    assert wait_s(stated, T0 + NS // 50, tokens=300) > 0


def test_answers_that_tell_of_a_smaller_limit_know_better_than_the_application() -> None:
    stated = pacer(requests_per_minute=1_000)
    ask(stated, T0, told(599))

    assert [limit.name for limit in stated.limits().limits] == ["requests"]


def test_the_applications_own_limit_holds_where_it_is_smaller() -> None:
    own = pacer(requests_per_minute=60)
    for _ in range(3):
        ask(own, T0, told(599))

    assert wait_s(own, T0 + NS // 50) == pytest.approx(1, abs=0.1)


def test_stated_limits_can_be_changed_and_taken_back() -> None:
    stated = pacer(requests_per_minute=60)
    stated.state(requests_per_minute=6_000, tokens_per_minute=None)
    assert [limit.limit for limit in stated.limits().limits] == [6_000]
    stated.state(requests_per_minute=None, tokens_per_minute=None)

    assert stated.limits().limits == ()


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "600"])
def test_what_is_no_limit_is_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="requests_per_minute expects a number above 0"):
        pacer(requests_per_minute=bad)


# Limits of some tokens alone


def test_what_counts_towards_a_limit_of_input_alone_is_learned() -> None:
    apart = Pacer(facts=facts_named("anthropic").rate_limits, jitter=Random(0))
    remaining, now = 200_000.0, T0
    for _ in range(60):
        # A tenth of what is estimated is input.
        remaining = min(200_000.0, remaining + 3_334) - 800
        limits = {f"anthropic-ratelimit-input-tokens-{what}": text for what, text in (("limit", "200000"),)}
        limits["anthropic-ratelimit-input-tokens-remaining"] = f"{remaining - 20_000:.0f}"
        ask(apart, now, limits, tokens=8_000)
        now += NS

    assert wait_s(apart, now, tokens=8_000) == 0


def test_a_refusal_that_says_that_nothing_is_left_and_all_of_it_is_back_already_is_read_like_any_other() -> None:
    asked = pacer()
    nothing = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "0s"}
    ask(asked, T0, nothing)
    ask(asked, T0 + NS, nothing, status=429)

    assert 0 < wait_s(asked, T0 + NS) < 120


def test_what_was_sent_before_a_limit_is_known_is_waited_for_no_longer_than_that_limit_twice() -> None:
    asked = pacer()
    early = [asked.spend(T0, tokens=10_000_000) for _ in range(5)]
    asked.answered(T0 + NS, early[0], 200, told(10, limit=100, what="tokens"))

    assert wait_s(asked, T0 + NS, tokens=10) < 4 * 60


def test_a_limit_of_less_than_one_is_none() -> None:
    asked = pacer()
    ask(asked, T0, {"x-ratelimit-limit-requests": "0.001", "x-ratelimit-remaining-requests": "0"})

    assert asked.limits().limits == ()


# What is not believed for long


def far_away(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(wall_ns() // NS + seconds, UTC), usegmt=True)


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "7200"},
        {"retry-after": "86400"},
        {"retry-after-ms": "7200000"},
        {"retry-after": far_away(7_200)},
    ],
    ids=["seconds", "a day", "milliseconds", "date"],
)
def test_rest_is_a_minute_at_most(status: int, headers: dict[str, str]) -> None:
    resting = pacer()
    ask(resting, T0, headers, status=status)
    assert 59 <= wait_s(resting, T0 + NS // 100) <= 60.5


def test_rest_that_was_cut_short_ends_with_one_request() -> None:
    resting = pacer()
    ask(resting, T0, {"retry-after": "7200"}, status=503)
    now = T0 + 61 * NS
    assert wait_s(resting, now) == 0
    probe = resting.spend(now, tokens=10)
    assert wait_s(resting, now) == 60
    resting.answered(now + NS, probe, 200, {})
    assert wait_s(resting, now + NS) == 0
    ask(resting, now + 2 * NS, {"retry-after": "10"}, status=503)
    assert wait_s(resting, now + 2 * NS) > 10


def test_rest_goes_on_where_its_one_request_is_refused() -> None:
    resting = pacer()
    ask(resting, T0, {"retry-after": "7200"}, status=503)
    ask(resting, T0 + 61 * NS, {"retry-after": "7139"}, status=503)
    assert wait_s(resting, T0 + 62 * NS) > 58


def test_next_request_goes_where_the_one_has_no_answer() -> None:
    resting = pacer()
    ask(resting, T0, {"retry-after": "7200"}, status=503)
    now = T0 + 61 * NS
    resting.settled(now + NS, resting.spend(now, tokens=10), None)
    assert wait_s(resting, now + NS) == 0


@pytest.mark.parametrize(("served", "expected_s"), [("earlier", 60), ("later", 0)])
def test_rest_ends_with_an_answer_to_a_later_request(served: str, expected_s: int) -> None:
    resting = pacer()
    earlier, refused, later = (resting.spend(T0, tokens=10) for _ in range(3))
    resting.answered(T0 + NS, refused, 503, {"retry-after": "7200"})
    resting.answered(T0 + NS, earlier if served == "earlier" else later, 200, {})
    assert wait_s(resting, T0 + NS) == pytest.approx(expected_s, abs=0.5)


@pytest.mark.parametrize("reset", ["7200s", "30d", "2700000", "719h59m59s"])
def test_limit_that_resets_in_hours_is_asked_about(reset: str) -> None:
    """Its header may be wrong: after a minute one request finds out, and others still know how long it may take."""
    held = Pacer(facts=facts_named("groq").rate_limits, jitter=Random(0))
    empty = {**told(0, limit=14_400), "x-ratelimit-reset-requests": reset}
    for second in range(3):
        ask(held, T0 + second * NS, empty)
    now = T0 + 3 * NS
    assert 50 < wait_s(held, now) <= 60
    assert held.ready_ns(now, tokens=10, level="interactive", is_next=False) > now + 65 * NS

    now += 60 * NS
    assert wait_s(held, now) == 0
    ask(held, now, empty, status=429)
    assert wait_s(held, now + NS) > 50

    now += 61 * NS
    assert wait_s(held, now) == 0
    ask(held, now, told(500))
    assert wait_s(held, now + NS) == 0


# What other processes may have shared


def replica(requests_per_minute: float | None = None) -> tuple[Pacer, SharedPace]:
    pytest.importorskip("redis")
    made = pacer(requests_per_minute)
    pace = SharedPace(shared("redis://127.0.0.1:1/0", setting="store"), "k")
    made.share(pace)
    return made, pace


FORGED: dict[str, tuple[str, Any]] = {
    "rest": ("rest", 86_400.0),
    "spent": ("spent", {"requests": 1e5, "tokens": 1e9}),
    "limit": ("limits", b'[["requests", 1, 2000000, 0], ["tokens", 1, 2000000, 0]]'),
    "small limit": ("limits", b'[["requests", 1, 60, 0]]'),
}


@pytest.mark.parametrize("known", ["nothing", "headers", "refusal", "stated"])
@pytest.mark.parametrize("forged", FORGED)
def test_pacer_forged_values_hold_back_for_a_minute_at_most(forged: str, known: str) -> None:
    """A hundred a second, from somebody who can write into the store; one call is made after the other."""
    misled, pace = replica(600 if known == "stated" else None)
    headers = told(590) if known == "headers" else {}
    ask(misled, T0, headers)
    if known == "refusal":
        ask(misled, T0 + NS, {}, status=429)
    now, longest, sent = T0 + 10 * NS, 0, 0
    last = now
    while now < T0 + 600 * NS:
        pace.heard.append((*FORGED[forged], now))
        if wait_s(misled, now) == 0:
            longest, last, sent = max(longest, now - last), now, sent + 1
            ask(misled, now, headers)
        now += NS // 100
    assert max(longest, now - last) <= 61 * NS
    # After the first minute it is found out; a twentieth of a limit that the application shares stays in any case.
    assert sent > (250 if known == "stated" else 1_000)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("spent", {"requests": -1}),
        ("spent", {"requests": "1"}),
        ("spent", {"requests": True}),
        ("spent", {"requests": float("nan")}),
        ("spent", {"requests": float("inf")}),
        ("spent", {"requests": 1e6}),
        ("spent", {"requests": 10**400}),
        ("spent", {"tokens": 1e10}),
        ("spent", {"tokens": None}),
        ("rest", "nan"),
        ("rest", -5),
        ("rest", 1e300),
        ("rest", [60]),
        ("limits", b'[["requests", 0, 60, 0]]'),
        ("limits", b'[["requests", 0.5, 60, 0]]'),
        ("limits", b'[["requests", 600, 0, 0]]'),
        ("limits", b'[["requests", 600, 1e12, 0]]'),
        ("limits", b'[["requests", 1e13, 60, 0]]'),
        ("limits", b'[["requests", 600, 60, "nan"]]'),
        ("limits", b'[["requests", 600, 60, null]]'),
        ("limits", b'[["requests", 600, 60]]'),
        ("limits", b'{"requests": 600}'),
        ("limits", b"7"),
        ("limits", b"\xff"),
        ("limits", b""),
    ],
    ids=str,
)
def test_pacer_values_that_no_process_of_ours_writes_are_ignored(kind: str, what: Any) -> None:
    unharmed, pace = replica(600)
    pace.heard.append((kind, what, T0))
    assert wait_s(unharmed, T0) == 0
    assert [one.name for one in unharmed.limits().limits] == ["stated"]


def test_pacer_shared_limit_is_replaced_by_a_response() -> None:
    corrected, pace = replica()
    pace.heard.append(("limits", b'[["requests", 5, 60, 5]]', T0))
    assert wait_s(corrected, T0) == 0
    assert [one.limit for one in corrected.limits().limits] == [5]
    ask(corrected, T0, told(599))
    assert [one.limit for one in corrected.limits().limits] == [600]
