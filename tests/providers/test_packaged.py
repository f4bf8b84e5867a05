"""The facts that the package brings can be used, and each says where it stands."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from fastlane.providers import ProviderFacts, facts_named, names
from fastlane.providers.registry import UNKNOWN, places
from scripts.stale_facts import report

ROOT = Path(__file__).parent.parent.parent
FILES = {path.stem: path for path in (ROOT / "fastlane/providers").glob("*.toml") if path.stem != "origins"}


def said_without_source(facts: ProviderFacts) -> list[str]:
    return [".".join(keys) for keys, fact in facts.all_facts() if fact.value is not None and fact.source is None]


def checked_too_early(facts: ProviderFacts) -> list[str]:
    return [".".join(keys) for keys, fact in facts.all_facts() if fact.checked < date(2026, 1, 1)]


def test_every_provider_with_an_origin_has_a_file_and_the_other_way_round() -> None:
    assert set(FILES) == {*places(), UNKNOWN} == set(names())


@pytest.mark.parametrize("slug", sorted(FILES))
def test_every_file_can_be_used(slug: str) -> None:
    facts = facts_named(slug)

    assert facts.slug == slug
    assert facts.name
    assert list(facts.all_facts())
    assert said_without_source(facts) == []
    assert checked_too_early(facts) == []


@pytest.mark.parametrize("slug", sorted(FILES))
def test_no_model_is_said_both_to_think_and_not_to(slug: str) -> None:
    reasoning = facts_named(slug).reasoning
    thinks, never = ((fact.value or ()) if fact is not None else () for fact in (reasoning.models, reasoning.never))

    assert not set(thinks) & set(never)


@pytest.mark.parametrize("slug", sorted(places()))
def test_a_provider_can_be_known_by_something(slug: str) -> None:
    place = places()[slug]

    assert place.hosts or place.says.header or place.says.header_names or place.says.owned_by
    assert place.checked >= date(2026, 1, 1)
    assert all(name == name.lower() for name in (*place.says.header, *place.says.header_names))


@pytest.mark.parametrize("slug", sorted(slug for slug in places() if places()[slug].hosts))
def test_a_base_url_stands_at_one_of_the_providers_own_hosts(slug: str) -> None:
    from fastlane.providers import facts_of

    base_url = facts_named(slug).base_url

    assert base_url is None or facts_of(base_url).slug == slug


@pytest.mark.parametrize(("days", "word", "fails"), [(120, None, False), (121, "warning", False), (241, "error", True)])
def test_old_facts_are_reported(days: int, word: str | None, fails: bool) -> None:
    newest = max(fact.checked for slug in FILES for _, fact in facts_named(slug).all_facts())
    oldest = min(fact.checked for _, fact in facts_named("openai").all_facts())

    lines, is_too_old = report(oldest + timedelta(days))

    assert newest - oldest < timedelta(60)
    assert is_too_old is fails
    assert any(f"{word}: fastlane/providers/openai.toml" in line for line in lines) is (word is not None)
