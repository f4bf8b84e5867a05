from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes import CacheRules
from fastlane.plays.prompt_cache.prefixes._departure import Departure, Seen
from fastlane.plays.prompt_cache.prefixes._judging import Judgement, Prospect, Scale, judge
from fastlane.plays.prompt_cache.prefixes._lines import Attributes, Line
from fastlane.plays.prompt_cache.prefixes._outline import Outline
from fastlane.records.prompt import DriftKind

RULES = CacheRules(automatic=True, minimum_tokens=1_024, block_tokens=128, lifetime_s=300.0)
HERE = Attributes("o", "/chat/completions", "m", ())
EARLIER = Seen(Line(HERE, 1, Outline((), (), (), 0), (), "f", 0), HERE, Outline((), (), (), 0), (), "f", 0, None, 0)


def departure(kind: DriftKind = "timestamp", path: str = "messages[0].content", before: int = 40) -> Departure:
    return Departure(kind, path, 12, before, 7_960, EARLIER, related=True, elsewhere=False, place=0)


def judged(
    prospect: Prospect, *, cached: int | None, keeps: bool = True, reason: str | None = None, counted: bool = True
) -> Judgement:
    scale = Scale(10_000, 2_500, 8_000, 2_000) if counted else Scale(10_000, 2_500)
    return judge(prospect, scale, RULES, keeps=keeps, cached=cached, reason=reason)


SAME = Prospect(size=10_000, known_size=8_000, fresh_size=8_000)
OLD = Prospect(size=10_000, known_size=8_000, fresh_size=0)
BROKEN = Prospect(size=10_000, departure=departure())


@given(st.integers(0, 10**6), st.none() | st.integers(1, 5_000), st.none() | st.integers(1, 500))
def test_what_is_kept_is_whole_blocks_and_nothing_below_the_minimum(
    tokens: int, minimum: int | None, block: int | None
) -> None:
    kept = CacheRules(minimum_tokens=minimum, block_tokens=block).kept(tokens)

    assert 0 <= kept <= tokens
    assert kept % (block or 1) == 0
    assert kept == 0 or kept >= (minimum or 0)
    assert kept == 0 or tokens - kept < (block or 1)


def test_a_beginning_that_was_read_is_no_drift() -> None:
    assert judged(SAME, cached=1_920) == Judgement(2_000, 1_920, None)


def test_fewer_tokens_than_an_estimate_can_be_wrong_by_are_no_drift() -> None:
    assert judged(SAME, cached=1_664).drift is None
    drift = judged(SAME, cached=1_536).drift
    assert drift is not None
    assert (drift.kind, drift.path, drift.token_offset, drift.tokens_lost) == ("evicted", None, 1_536, 384)


def test_a_beginning_that_was_never_counted_by_itself_is_estimated_and_may_be_further_off() -> None:
    assert judged(SAME, cached=1_536, counted=False).drift is None
    assert judged(SAME, cached=1_408, counted=False).drift is not None


def test_what_is_too_old_has_expired_and_what_is_not_was_given_up_early() -> None:
    evicted, expired = judged(SAME, cached=0).drift, judged(OLD, cached=0).drift

    assert evicted is not None
    assert expired is not None
    assert (evicted.kind, expired.kind) == ("evicted", "expired")
    assert expired.tokens_lost == 1_920
    assert judged(OLD, cached=0).expected_tokens == 0


def test_a_provider_that_keeps_prompts_for_longer_than_it_says_lost_nothing() -> None:
    assert judged(OLD, cached=1_920).drift is None


def test_without_a_word_of_the_provider_only_age_is_told() -> None:
    assert judged(SAME, cached=None).drift is None
    drift = judged(OLD, cached=None).drift
    assert drift is not None
    assert drift.kind == "expired"


def test_of_a_provider_that_may_keep_nothing_nothing_is_expected() -> None:
    assert judged(SAME, cached=0, keeps=False) == Judgement(2_000, None, None)
    assert judged(OLD, cached=0, keeps=False).drift is None


def test_a_difference_is_the_drift_with_its_place_and_its_price() -> None:
    verdict = judged(BROKEN, cached=0)

    assert (verdict.reusable_tokens, verdict.expected_tokens) == (10, 0)
    drift = verdict.drift
    assert drift is not None
    assert (drift.kind, drift.path, drift.character) == ("timestamp", "messages[0].content", 12)
    assert (drift.token_offset, drift.tokens_lost) == (10, 1_990)
    assert judged(BROKEN, cached=None).drift == drift


def test_a_difference_beyond_which_the_provider_has_read_is_none() -> None:
    assert judged(BROKEN, cached=1_920).drift is None
    assert judged(BROKEN, cached=512).drift is not None


def test_a_difference_after_the_end_of_what_was_sent_costs_nothing() -> None:
    verdict = judged(SAME._replace(departure=departure()), cached=None)

    assert verdict.drift is None


@pytest.mark.parametrize(
    ("reason", "kind", "path"),
    [
        ("input_changed", "timestamp", "messages[0].content"),
        ("messages_changed", "timestamp", "messages[0].content"),
        ("system_changed", "timestamp", "messages[0].content"),
        ("tools_changed", "changed_tool", "tools"),
        ("model_changed", "changed_model", "model"),
        ("reasoning_effort_changed", "changed_parameter", "reasoning.effort"),
        ("context_compacted", "compacted", "messages[0].content"),
        ("moon_phase_changed", "timestamp", "messages[0].content"),
    ],
)
def test_the_providers_word_wins_where_it_says_something_else_and_not_less(reason: str, kind: str, path: str) -> None:
    drift = judged(BROKEN, cached=0, reason=reason).drift

    assert drift is not None
    assert (drift.kind, drift.path, drift.provider_reason) == (kind, path, reason)


def test_a_finer_finding_in_a_tool_agrees_with_the_provider_that_tools_changed() -> None:
    found = Prospect(size=10_000, departure=departure("uuid", "tools[2].function.description"))
    drift = judged(found, cached=0, reason="tools_changed").drift

    assert drift is not None
    assert (drift.kind, drift.path, drift.character) == ("uuid", "tools[2].function.description", 12)


def test_the_providers_word_is_a_drift_where_nothing_was_found() -> None:
    drift = judged(SAME, cached=1_920, reason="service_tier_changed").drift

    assert drift is not None
    assert (drift.kind, drift.path, drift.tokens_lost) == ("changed_parameter", "service_tier", 80)
    assert judged(SAME, cached=1_920, reason="moon_phase_changed").drift is None


def test_of_a_prompt_that_was_read_whole_the_provider_only_says_how_another_differs() -> None:
    assert judged(SAME, cached=2_432, reason="service_tier_changed").drift is None


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_scale_rises_from_nothing_to_the_whole_prompt(
    size: int, tokens: int, known_size: int, known_tokens: int
) -> None:
    scale = Scale(size, tokens, min(known_size, size), min(known_tokens, tokens) if known_size else 0)
    steps = [scale.at(round(size * step / 10)) for step in range(11)]

    assert steps == sorted(steps)
    assert steps[-1] == (scale.tokens if scale.known_size < size else scale.known_tokens)
    assert scale.at(scale.known_size) == scale.known_tokens
