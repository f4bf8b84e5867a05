"""Where a provider takes only small parts of a limit at once: what no second has too much of."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.urgency.pacing import Pacer, tokens_counted
from fastlane.plays.urgency.pacing._spread import SMOOTH, Spread
from fastlane.providers import facts_named
from fastlane.providers.facts import RateLimit, RateLimits

RATE = 10.0


@given(
    costs=st.lists(st.floats(min_value=0.1, max_value=9.9), min_size=1, max_size=60),
    pauses=st.lists(st.floats(min_value=0.0, max_value=2.0), min_size=1, max_size=60),
)
def test_no_second_has_more_than_its_share_whenever_it_begins(costs: list[float], pauses: list[float]) -> None:
    spread, now_s = Spread(1.0), 0.0
    sent: list[tuple[float, float]] = []
    for number, cost in enumerate(costs):
        now_s += pauses[number % len(pauses)]
        # What is asked again at the time that it was told is sent then.
        while (ready_s := spread.ready_s(now_s, cost, RATE)) > now_s:
            now_s = ready_s
        spread.spend(now_s, cost, RATE)
        sent.append((now_s, cost))
    for began_s, _ in sent:
        assert sum(cost for at_s, cost in sent if began_s <= at_s < began_s + 1.0) <= RATE * (1 + 1e-6)


def test_what_is_larger_than_a_second_s_share_goes_alone() -> None:
    spread = Spread(1.0)
    spread.spend(0.0, 3.0, RATE)
    ready_s = spread.ready_s(0.5, 25.0, RATE)
    assert 1.0 <= ready_s < 1.1
    spread.spend(ready_s, 25.0, RATE)
    assert spread.ready_s(ready_s, 1.0, RATE) == pytest.approx(ready_s + 25.0 / (SMOOTH * RATE), abs=0.26)


def test_after_a_refusal_smaller_parts_go_and_soon_larger_ones_again() -> None:
    spread = Spread(1.0)
    spread.less()
    lower = spread.share
    assert lower < SMOOTH
    for number in range(300):
        spread.spend(float(number), 1.0, RATE)
    assert spread.share == SMOOTH


@pytest.mark.parametrize(
    ("provider", "counted"), [("openai", 700), ("azure_openai", 1_000), ("gemini", 300), ("unknown", 1_000)]
)
def test_a_request_counts_as_its_provider_adds_it_up(provider: str, counted: int) -> None:
    assert tokens_counted(facts_named(provider).rate_limits, prompt=300, output=700) == counted


def test_without_facts_a_prompt_and_its_answer_count() -> None:
    assert tokens_counted(None, prompt=300, output=700) == 1_000


def test_what_is_rounded_in_a_header_is_no_error_of_the_estimate() -> None:
    limit = {
        "counts": "tokens",
        "window_s": 60.0,
        "limit_header": "limit",
        "remaining_header": "left",
        "kind": "bucket",
    }
    left = {}
    for step in (None, 1_000):
        told = RateLimit.model_validate({**limit, "remaining_step": step})
        fact = {"value": told, "source": "https://docs.example.com", "checked": "2026-11-22", "evidence": "documented"}
        facts = RateLimits.model_validate({"limits": {"tokens": fact}}, strict=False)
        pacer = Pacer(facts=facts)
        for number, remaining in enumerate((50_000, 49_000)):
            now_ns = 10**12 + number * 10**8
            spent = pacer.spend(now_ns, tokens=10)
            pacer.answered(now_ns, spent, 200, {"limit": "60000", "left": str(remaining)})
        left[step] = pacer.limits().limits[0].left
    assert left[None] == pytest.approx(49_000, abs=1)
    assert left[1_000] > 49_900
