"""Which tier is asked for, by the facts of the providers that are known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.engine.call import Call
from fastlane.plays.urgency.tiers import is_downgrade, requested_tier
from fastlane.providers import facts_named, names
from fastlane.records.plays import LEVELS, Level

SLUGS = [slug for slug in names() if facts_named(slug).tiers.field is not None]
WITH_ORDER = [slug for slug in SLUGS if facts_named(slug).tiers.order is not None]
MODELS = st.sampled_from(["gpt-5.4", "gpt-5-chat-latest", "gpt-4.1", "o3", "o3-mini", "o4-mini", "any/thing", ""])


def call(slug: str, model: str, given: Any = None, endpoint: str = "/chat/completions") -> Call:
    body = {"model": model} if given is None else {"model": model, "service_tier": given}
    return Call(
        call_id="1", endpoint=endpoint, origin="https://a:443", body=body, stream=False, facts=facts_named(slug)
    )


def order_of(slug: str) -> tuple[tuple[str, ...], ...]:
    fact = facts_named(slug).tiers.order
    assert fact is not None
    assert fact.value is not None
    return fact.value


@pytest.mark.parametrize("slug", WITH_ORDER)
def test_an_order_has_each_tier_once_and_the_standard_among_them(slug: str) -> None:
    tiers = facts_named(slug).tiers
    ranked = [name for same in order_of(slug) for name in same]

    assert len(ranked) == len(set(ranked))
    if tiers.standard is not None:
        assert tiers.standard.value in ranked
    assert tiers.values is not None
    # "auto" is whatever the provider makes of it.
    assert set(tiers.values.value or ()) - {"auto"} <= set(ranked)


@pytest.mark.parametrize("slug", SLUGS)
def test_what_suits_calls_that_can_wait_is_taken_and_no_faster_than_usual(slug: str) -> None:
    tiers = facts_named(slug).tiers
    for fact in tiers.patient.values():
        if fact.value is None:
            continue
        assert tiers.values is not None
        assert fact.value in (tiers.values.value or ())
        assert tiers.standard is not None
        ranked = [name for same in order_of(slug) for name in same]
        assert ranked.index(fact.value) <= ranked.index(tiers.standard.value or "")


@given(
    slug=st.sampled_from(SLUGS), level=st.sampled_from(LEVELS), model=MODELS, given=st.sampled_from(["flex", "auto", 3])
)
def test_the_callers_own_tier_is_never_added_to(slug: str, level: Level, model: str, given: Any) -> None:
    tier = requested_tier(call(slug, model, given), level, is_on=True)

    assert tier is None or tier.added is None


@given(slug=st.sampled_from(SLUGS), level=st.sampled_from(LEVELS), model=MODELS)
def test_a_caller_who_says_none_gets_none(slug: str, level: Level, model: str) -> None:
    asked = call(slug, model)
    tier = requested_tier(asked.replaced(body={**asked.body, "service_tier": None}), level, is_on=True)

    assert tier is None or (tier.asked is None and tier.added is None)


@given(slug=st.sampled_from(SLUGS), model=MODELS)
def test_interactive_calls_ask_for_none_by_themselves(slug: str, model: str) -> None:
    tier = requested_tier(call(slug, model), "interactive", is_on=True)

    assert tier is None or tier.asked is None


@given(slug=st.sampled_from(SLUGS), model=MODELS, level=st.sampled_from(LEVELS))
def test_what_was_refused_is_not_asked_for(slug: str, model: str, level: Level) -> None:
    tier = requested_tier(call(slug, model).replaced(refused=frozenset({"service_tier=flex"})), level, is_on=True)

    assert tier is None or tier.asked is None


TIERS = st.sampled_from(["flex", "default", "scale", "priority", "fast", "ultrafast", "auto", "new", None])


@given(asked=TIERS, served=TIERS)
def test_a_downgrade_is_known_and_goes_one_way(asked: str | None, served: str | None) -> None:
    ranks_of = order_of("openai")
    down = is_downgrade(ranks_of, asked, served)

    assert not (down and is_downgrade(ranks_of, served, asked))
    if asked == served or None in {asked, served} or asked in ("auto", "new") or served in ("auto", "new"):
        assert not down
    else:
        ranks = {name: rank for rank, same in enumerate(ranks_of) for name in same}
        assert down == (ranks[str(served)] < ranks[str(asked)])


def test_the_newer_name_of_a_tier_is_the_same_tier() -> None:
    ranks = order_of("openai")

    assert not is_downgrade(ranks, "fast", "priority")
    assert is_downgrade(ranks, "fast", "default")
    assert not is_downgrade(ranks, "flex", "default")


def test_a_tier_that_the_provider_chose_is_none_that_was_asked_for() -> None:
    assert not is_downgrade((("flex",), ("default",), ("auto", "priority")), "auto", "flex")
