"""What headers say of limits is read as facts say it; whatever makes no sense was not said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.rate_limits.headers import (
    MAX_LIMIT,
    announcement_of,
    limits_of,
    reset_s,
    retry_headers_of,
)
from fastlane.protocol.header_times import MAX_RETRY_S, retry_after_s, wall_of
from fastlane.providers import facts_named, names
from fastlane.providers.facts import RateLimit, ResetFormat

NOW_S = 1_795_341_600.0
TOKENS = limits_of(None)["tokens"]


def wall() -> float:
    return NOW_S


def headers(limit: str = "60000", remaining: str = "59000", reset: str = "1s") -> dict[str, str]:
    return {
        "x-ratelimit-limit-tokens": limit,
        "x-ratelimit-remaining-tokens": remaining,
        "x-ratelimit-reset-tokens": reset,
    }


@pytest.mark.parametrize(
    ("written", "form", "seconds"),
    [
        ("6m0s", "duration", 360.0),
        ("12ms", "duration", 0.012),
        ("1s", None, 1.0),
        ("2m59.56s", "duration", 179.56),
        ("1h0m0.5s", "duration", 3600.5),
        ("1d2h", None, 93_600.0),
        ("11.38", "seconds", 11.38),
        ("33011.382867", None, 33_011.382867),
        ("1500", "milliseconds", 1.5),
        ("1795341630", None, 30.0),
        ("1795341630000", None, 30.0),
        ("1795341630", "unix", 30.0),
        ("1795341630000", "unix_milliseconds", 30.0),
        ("2026-11-22T10:00:30Z", "rfc3339", 30.0),
        ("2026-11-22T11:00:30+01:00", None, 30.0),
        # A server that is said to write numbers may write durations since.
        ("7.5s", "seconds", 7.5),
    ],
)
def test_a_reset_is_read_in_the_form_that_it_has(written: str, form: ResetFormat | None, seconds: float) -> None:
    assert reset_s(written, form, lambda: 1_795_341_600.0) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "bad",
    [
        headers(limit="0"),
        headers(limit="-1", remaining="-1", reset="0"),
        headers(limit="nan"),
        headers(limit="1e300"),
        headers(limit="9223372036854775807", remaining="9223372036854775807"),
        headers(remaining="60001"),
        headers(remaining="-3"),
        headers(remaining="many"),
        {"x-ratelimit-limit-tokens": "60000"},
        {},
    ],
)
def test_nonsense_says_nothing(bad: Mapping[str, str]) -> None:
    assert announcement_of(TOKENS, bad, wall) is None


def test_no_reset_is_now_while_something_is_used() -> None:
    announced: Any = announcement_of(TOKENS, headers(reset="0"), wall)

    assert announced.reset_s is None


def test_a_limit_for_each_second_is_one_for_the_window() -> None:
    limit = RateLimit(
        counts="input_tokens", window_s=60.0, limit_header="x-limit", limit_per_s=1.0, remaining_header="x-left"
    )
    announced: Any = announcement_of(limit, {"x-limit": "15000", "x-left": "800000"}, wall)

    assert announced.limit == 900_000


@given(
    st.dictionaries(
        st.sampled_from([*headers(), "retry-after", "retry-after-ms", "date"]),
        st.text(max_size=50) | st.floats().map(str) | st.integers().map(str),
    )
)
def test_whatever_a_server_writes_is_read_as_something_that_can_be_or_as_nothing(written: dict[str, str]) -> None:
    announced = announcement_of(TOKENS, written, wall_of(written))
    retry = retry_after_s(retry_headers_of(None), written, wall_of(written))

    if announced is not None:
        assert 0 <= announced.remaining <= (announced.limit or MAX_LIMIT) <= MAX_LIMIT
        assert announced.reset_s is None or math.isfinite(announced.reset_s)
    assert retry is None or 0 <= retry <= MAX_RETRY_S


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
def test_how_long_to_wait_is_read(written: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(("retry-after-ms", "retry-after"), written, wall) == seconds


def test_moments_are_read_by_the_clock_of_the_answer() -> None:
    assert wall_of({"date": "Sun, 22 Nov 2026 10:00:00 GMT"})() == NOW_S


@pytest.mark.parametrize("slug", names())
def test_every_providers_facts_can_be_read_by(slug: str) -> None:
    facts = facts_named(slug).rate_limits
    headers_of = (facts.headers.value or ()) if facts.headers is not None else ()
    told = {limit.remaining_header for limit in limits_of(facts).values()} - {None}

    assert limits_of(facts)
    assert retry_headers_of(facts)
    # The doctor and the play do not contradict each other where both speak of the same server.
    assert not headers_of or not told or told & set(headers_of) or slug == "fireworks"


def test_an_unknown_server_is_asked_by_the_names_that_many_use() -> None:
    assert set(limits_of(facts_named("vllm").rate_limits)) == {"requests", "tokens"}
