"""What facts are: frozen, checked, laid over each other fact by fact, and written so that they can be read again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
import tomli_w
from hypothesis import given

from fastlane.providers import Fact, ProviderFacts, load
from tests.providers.made_facts import facts

WHERE: dict[str, Any] = {"source": "https://docs.example.com", "checked": date(2026, 11, 22), "evidence": "documented"}


def known(value: Any) -> Fact[Any]:
    return Fact(value=value, **WHERE)


def by_keys(of: ProviderFacts) -> Mapping[tuple[str, ...], Fact[Any]]:
    return dict(of.all_facts())


@given(facts("one"))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, one: ProviderFacts) -> None:
    file = tmp_path_factory.mktemp("facts") / "another_name.toml"
    file.write_text(tomli_w.dumps(one.model_dump(exclude_defaults=True)))

    assert load(file) == one
    assert load(file).digest == one.digest


@given(facts("one"))
def test_facts_can_be_copied_and_sent_to_another_process(one: ProviderFacts) -> None:
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one
    assert hash(copy.deepcopy(one)) == hash(one)


@given(facts("one"), facts("two"))
def test_each_fact_of_the_upper_ones_counts_and_no_other_is_lost(one: ProviderFacts, two: ProviderFacts) -> None:
    assert by_keys(one.over(two)) == {**by_keys(two), **by_keys(one)}


@given(facts("one"), facts("two"))
def test_facts_laid_over_others_keep_their_own_names_and_places(one: ProviderFacts, two: ProviderFacts) -> None:
    both = one.over(two)

    assert (both.slug, both.origins) == (one.slug, one.origins)
    assert both.name == (one.name or two.name)
    assert both.base_url == (one.base_url or two.base_url)


def test_a_fact_that_was_not_found_hides_the_one_below() -> None:
    below = ProviderFacts(slug="below", http2=known(value=True))
    above = ProviderFacts(slug="above", http2=Fact(checked=date(2026, 11, 22), evidence="not found", note="Asked."))

    fact = above.over(below).http2

    assert fact is not None
    assert fact.value is None


@pytest.mark.parametrize(
    ("encodings", "forms"),
    [
        ({}, None),
        ({"/responses": known(("json",))}, None),
        ({"/chat/completions": known(("json",))}, ("json",)),
        ({"/chat/completions": known(["json", "msgpack+gzip"])}, ("json", "msgpack+gzip")),
        ({"/chat/completions": Fact(checked=date(2026, 11, 22), evidence="not found", note="Asked.")}, None),
    ],
    ids=["nobody looked", "another endpoint", "only JSON", "more", "not found"],
)
def test_forms_tell_plain_json_from_not_knowing(encodings: dict[str, Fact[Any]], forms: tuple[str, ...] | None) -> None:
    assert ProviderFacts(slug="one", encodings=encodings).forms("/chat/completions") == forms


def test_a_repr_is_short_and_tells_facts_apart() -> None:
    one = ProviderFacts(slug="one", http2=known(value=True))
    other = ProviderFacts(slug="one", http2=known(value=False))

    assert repr(one) == f"ProviderFacts(slug='one', digest='{one.digest}')" == str(one)
    assert repr(one) != repr(other)
