"""The facts that the package brings can be used, and each says where it stands; docs/providers.md shows them all."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from fastlane.providers import ProviderFacts, facts_named, names
from fastlane.providers._page import page
from fastlane.providers._registry import UNKNOWN, places

ROOT = Path(__file__).parent.parent.parent
FILES = {path.stem: path for path in (ROOT / "fastlane/providers").glob("*.toml") if path.stem != "origins"}
WRITE = "python -m fastlane.providers > docs/providers.md"


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


@pytest.mark.parametrize("slug", sorted(FILES))
def test_an_effort_of_a_model_is_one_of_the_providers(slug: str) -> None:
    facts = facts_named(slug)
    taken = facts.parameters.get("reasoning_effort")

    for fact in facts.reasoning.efforts.values():
        assert taken is None or not isinstance(taken.value, tuple) or set(fact.value or ()) <= set(taken.value)


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


def test_the_page_is_what_the_facts_say() -> None:
    written = (ROOT / "docs/providers.md").read_text()

    assert written == page(), f"docs/providers.md is not what the facts say: write it anew with `{WRITE}`"


def test_the_command_prints_the_page() -> None:
    run = subprocess.run([sys.executable, "-m", "fastlane.providers"], capture_output=True, check=True)

    assert run.stdout.decode() == page()


@pytest.mark.parametrize("slug", sorted(FILES))
def test_the_page_shows_every_fact_with_its_source(slug: str) -> None:
    facts = facts_named(slug)
    section = page().partition(f"{{#{slug}}}")[2].partition("\n## ")[0]

    for keys, fact in facts.all_facts():
        assert keys[-1] in section
        assert str(fact.checked) in section
        assert fact.source is None or fact.source.replace("(", "%28").replace(")", "%29") in section
