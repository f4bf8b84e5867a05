"""The rate limiter by itself: what it learns from responses, and what it holds back for that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane._clock import wall_ns
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.headers import announcement_of, limits_of, reset_s
from fastlane.plays.rate_limits.limiter import RateLimiter, Reservation
from fastlane.plays.rate_limits.session import counted_tokens
from fastlane.protocol.header_times import retry_after_s, wall_of
from fastlane.providers import facts_named
from fastlane.providers.facts import RateLimit, ResetFormat
from tests.plays.rate_limits.simulated import NS, duration

T0 = 1_000 * NS
STATED: Any = (("requests", 60.0),)


def limit_headers(
    remaining: float, *, limit: float = 600, window_s: float = 60.0, what: str = "requests"
) -> dict[str, str]:
    """The headers of a bucket."""
    return {
        f"x-ratelimit-limit-{what}": f"{limit:.0f}",
        f"x-ratelimit-remaining-{what}": f"{remaining:.0f}",
        f"x-ratelimit-reset-{what}": duration((limit - remaining) / limit * window_s),
    }


def limiter(provider: str | None = None) -> RateLimiter:
    return RateLimiter(None if provider is None else facts_named(provider).rate_limits, jitter=Random(0))


def wait_s(of: RateLimiter, now_ns: int, *, tokens: float = 10, stated: Any = (), patient: bool = False) -> float:
    return (of.ready_ns(now_ns, RequestCost(tokens=tokens), patient=patient, stated=stated) - now_ns) / NS


def ask(
    of: RateLimiter, now_ns: int, headers: Mapping[str, str], *, status: int = 200, tokens: float = 10
) -> Reservation:
    sent = of.spend(now_ns, RequestCost(tokens=tokens))
    of.answered(now_ns + NS // 100, sent, status, headers)
    return sent


# What is announced


@given(st.permutations(range(12)), st.integers(0, 300))
def test_estimate_ends_at_the_truth_in_any_order_of_responses(order: list[int], used: int) -> None:
    of = limiter()
    ask(of, T0, limit_headers(599 - used))
    sent = [of.spend(T0 + (1 + number) * NS, RequestCost()) for number in range(12)]
    for number in order:
        of.answered(T0 + (13 + number) * NS, sent[number], 200, limit_headers(599 - used - number))
    assert of._announced["requests"].level == pytest.approx(588 - used, abs=1)


def test_fixed_window_from_facts_is_waited_for() -> None:
    of = limiter("azure_openai")
    empty = {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20"}
    ask(of, T0, empty)
    assert wait_s(of, T0 + NS) == pytest.approx(20, abs=0.2)
    assert of.waits_for == "tokens_per_minute"


def test_limit_of_each_second_is_spread_from_the_beginning() -> None:
    of = limiter("azure_openai")
    ask(of, T0, {"x-ratelimit-limit-requests": "600", "x-ratelimit-remaining-requests": "599"})
    of.spend(T0 + NS // 50, RequestCost())
    assert 0 < wait_s(of, T0 + NS // 50) < 0.2


@pytest.mark.parametrize(
    ("provider", "counted"), [("openai", 700), ("azure_openai", 1_000), ("gemini", 300), ("unknown", 1_000)]
)
def test_tokens_are_counted_as_the_provider_adds_them_up(provider: str, counted: int) -> None:
    assert counted_tokens(facts_named(provider).rate_limits, prompt=300, output=700) == counted


# What is stated


def test_stated_tokens_that_were_not_used_come_back() -> None:
    of = limiter()
    stated: Any = (("tokens", 6_000.0),)
    wait_s(of, T0, stated=stated)
    sent = ask(of, T0, {}, tokens=300)
    assert wait_s(of, T0 + NS // 50, tokens=250, stated=stated) > 2
    for _ in range(2):  # counted once
        of.settled(T0 + NS // 50, sent, RequestCost(tokens=20))
    assert wait_s(of, T0 + 2 * NS, tokens=250, stated=stated) == 0
    assert [one.level for one, _ in of._stated.values()] == [pytest.approx(300, abs=1)]


# Refusals


def test_repeated_429_without_retry_after_backs_off() -> None:
    of, waits, now = limiter(), [], T0
    for _ in range(9):
        of.answered(now, of.spend(now, RequestCost()), 429, {})
        waits.append(wait_s(of, now))
        now = of.ready_ns(now, RequestCost())
    assert waits[0] < waits[2] < waits[4]
    assert max(waits) <= 45


# What is not believed for long


def far_away(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(wall_ns() // NS + seconds, UTC), usegmt=True)


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "10"}, 10),
        ({"retry-after": "7200"}, 60),
        ({"retry-after-ms": "7200000"}, 60),
        ({"retry-after": far_away(7_200)}, 60),
    ],
)
def test_rest_is_what_was_asked_and_a_minute_at_most(status: int, headers: dict[str, str], seconds: float) -> None:
    of = limiter()
    ask(of, T0, headers, status=status)
    assert seconds - 1 <= wait_s(of, T0 + NS // 100) <= seconds + 0.5


def test_rest_that_was_cut_short_ends_with_one_request() -> None:
    of = limiter()
    ask(of, T0, {"retry-after": "7200"}, status=503)
    now = T0 + 61 * NS
    assert wait_s(of, now) == 0
    probe = of.spend(now, RequestCost())
    assert wait_s(of, now) == 60
    of.answered(now + NS, probe, 503, {"retry-after": "7139"})
    assert wait_s(of, now + NS) > 58
    now += 62 * NS
    of.answered(now + NS, of.spend(now, RequestCost()), 200, {})
    assert wait_s(of, now + NS) == 0


@pytest.mark.parametrize(("served", "expected_s"), [("earlier", 60), ("later", 0)])
def test_rest_ends_with_a_response_to_a_later_request(served: str, expected_s: int) -> None:
    of = limiter()
    earlier, refused, later = (of.spend(T0, RequestCost()) for _ in range(3))
    of.answered(T0 + NS, refused, 503, {"retry-after": "7200"})
    of.answered(T0 + NS, earlier if served == "earlier" else later, 200, {})
    assert wait_s(of, T0 + NS) == pytest.approx(expected_s, abs=0.5)


@pytest.mark.parametrize("reset", ["7200s", "30d", "2700000", "719h59m59s"])
def test_limit_with_hour_long_reset_is_probed_each_minute(reset: str) -> None:
    """Its header may be wrong: after a minute at most one request finds out."""
    of = limiter("groq")
    empty = {**limit_headers(0, limit=14_400), "x-ratelimit-reset-requests": reset}
    now = T0
    for _ in range(3):
        ask(of, now, empty, status=429)
        now += NS
        waited = wait_s(of, now)
        assert 2 < waited <= 60
        now += int(waited * NS) + 1
        assert wait_s(of, now) == 0
    ask(of, now, limit_headers(14_000, limit=14_400, window_s=86_400))
    assert wait_s(of, now + NS) == 0


# What other processes share: anybody who can write into the store may have written it


@pytest.mark.parametrize("stated", [(), STATED], ids=["nothing", "stated"])
@pytest.mark.parametrize("forged", ["rest", "spent"])
def test_forged_values_hold_back_for_a_minute_at_most(forged: str, stated: Any) -> None:
    of = limiter()
    now, last, longest, sent = T0, T0, 0, 0
    while now < T0 + 600 * NS:
        if forged == "rest":
            of.others_rest(now, 86_400.0)
        else:
            of.others_spent(now, RequestCost(1e5, 1e9))
        if wait_s(of, now, stated=stated) == 0:
            longest, last, sent = max(longest, now - last), now, sent + 1
            ask(of, now, {})
        now += NS // 20
    assert max(longest, now - last) <= 61 * NS
    # A twentieth of a stated limit stays in any case, and a rest is ignored once a response has shown it to be wrong.
    assert sent >= (25 if stated else 1_000)


# Limit headers are read as the facts define them; malformed values are ignored


NOW_S = 1_795_341_600.0
TOKENS = limits_of(None)["tokens"]


def wall() -> float:
    return NOW_S


@pytest.mark.parametrize(
    ("written", "form", "seconds"),
    [
        ("6m0s", "duration", 360.0),
        ("12ms", "duration", 0.012),
        ("1s", None, 1.0),
        ("1h0m0.5s", "duration", 3600.5),
        ("1d2h", None, 93_600.0),
        ("11.38", "seconds", 11.38),
        ("1500", "milliseconds", 1.5),
        ("1795341630", None, 30.0),
        ("1795341630000", None, 30.0),
        ("1795341630", "unix", 30.0),
        ("1795341630000", "unix_milliseconds", 30.0),
        ("2026-11-22T10:00:30Z", "rfc3339", 30.0),
        ("2026-11-22T11:00:30+01:00", None, 30.0),
        # A server known for numbers may write durations by now.
        ("7.5s", "seconds", 7.5),
    ],
)
def test_reset_is_read_in_the_form_that_it_has(written: str, form: ResetFormat | None, seconds: float) -> None:
    assert reset_s(written, form, lambda: 1_795_341_600.0) == pytest.approx(seconds)


def test_reset_of_zero_is_ignored_while_tokens_are_used() -> None:
    written = limit_headers(59_000, limit=60_000, what="tokens") | {"x-ratelimit-reset-tokens": "0"}
    announced: Any = announcement_of(TOKENS, written, wall)

    assert announced.reset_s is None


def test_limit_for_each_second_is_one_for_the_window() -> None:
    limit = RateLimit(
        counts="input_tokens", window_s=60.0, limit_header="x-limit", limit_per_s=1.0, remaining_header="x-left"
    )
    announced: Any = announcement_of(limit, {"x-limit": "15000", "x-left": "800000"}, wall)

    assert announced.limit == 900_000


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after-ms": "603", "retry-after": "1"}, 0.603),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 22 Nov 2026 09:00:30 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:00 +99991795341600"}, None),
        ({}, None),
    ],
)
def test_retry_after_headers_are_parsed(written: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(("retry-after-ms", "retry-after"), written, wall) == seconds


def test_moments_are_read_by_the_clock_of_the_answer() -> None:
    assert wall_of({"date": "Sun, 22 Nov 2026 10:00:00 GMT"})() == NOW_S
