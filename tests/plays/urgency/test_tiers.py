"""Which tier is asked for, by the facts of the providers that are known."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from fastlane.engine.call import Call
from fastlane.plays.urgency.tiers import requested_tier
from fastlane.providers import facts_named, names
from fastlane.records.plays import LEVELS, Level

SLUGS = [slug for slug in names() if facts_named(slug).tiers.field is not None]
MODELS = st.sampled_from(["gpt-5.4", "gpt-5-chat-latest", "gpt-4.1", "o3", "o3-mini", "o4-mini", "any/thing", ""])


def call(slug: str, model: str, given: Any = None, endpoint: str = "/chat/completions") -> Call:
    body = {"model": model} if given is None else {"model": model, "service_tier": given}
    return Call(
        call_id="1", endpoint=endpoint, origin="https://a:443", body=body, stream=False, facts=facts_named(slug)
    )


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
