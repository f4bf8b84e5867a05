"""What facts are: frozen, checked, laid over each other fact by fact, and written so that they can be read again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fastlane import ConfigurationError
from fastlane.providers import Fact, ProviderFacts, facts_named, facts_of, load, names, registered
from fastlane.providers.registry import places
from scripts.stale_facts import report

WHERE: dict[str, Any] = {"source": "https://docs.example.com", "checked": date(2026, 11, 22), "evidence": "documented"}


def known(value: Any) -> Fact[Any]:
    return Fact(value=value, **WHERE)


def by_keys(of: ProviderFacts) -> Mapping[tuple[str, ...], Fact[Any]]:
    return dict(of.all_facts())


@pytest.mark.parametrize("slug", names())
def test_written_or_copied_facts_read_back_equal(tmp_path: Path, slug: str) -> None:
    one = facts_named(slug)
    file = tmp_path / f"{slug}.toml"
    file.write_text(tomli_w.dumps(one.model_dump(exclude_defaults=True)))

    for again in (load(file), pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert again == one
        assert (again.digest, hash(again)) == (one.digest, hash(one))


@pytest.mark.parametrize("slug", names())
def test_each_fact_of_the_upper_ones_counts_and_no_other_is_lost(slug: str) -> None:
    one = facts_named(slug)
    for two in map(facts_named, names()):
        both = one.over(two)

        assert by_keys(both) == {**by_keys(two), **by_keys(one)}
        assert (both.slug, both.origins) == (one.slug, one.origins)
        assert (both.name, both.base_url) == (one.name or two.name, one.base_url or two.base_url)


def test_fact_that_was_not_found_hides_the_one_below() -> None:
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
    ids=["not examined", "another endpoint", "only JSON", "more", "not found"],
)
def test_forms_distinguish_plain_json_from_unknown(
    encodings: dict[str, Fact[Any]], forms: tuple[str, ...] | None
) -> None:
    assert ProviderFacts(slug="one", encodings=encodings).forms("/chat/completions") == forms


def test_facts_repr_is_short_and_distinct() -> None:
    one = ProviderFacts(slug="one", http2=known(value=True))
    other = ProviderFacts(slug="one", http2=known(value=False))

    assert repr(one) == f"ProviderFacts(slug='one', digest='{one.digest}')" == str(one)
    assert repr(one) != repr(other)


# A file that cannot be used is refused with its name, the key, what was expected and what came


BAD_FILE = 'source = "https://docs.example.com"\nchecked = 2026-11-22\nevidence = "documented"\n'

BAD = {
    "unknown key": ("sandwich = 1", "sandwich: unknown key, got 1"),
    "missing source": (
        '[http2]\nvalue = true\nchecked = 2026-11-22\nevidence = "documented"',
        "http2: expected a source: .*, got dict",
    ),
    "missing date": (
        '[http2]\nvalue = true\nsource = "https://docs.example.com"\nevidence = "documented"',
        "http2.checked: expected this key, got none",
    ),
    "missing value": (f"[http2]\n{BAD_FILE}", 'http2: expected a value, or evidence = "not found", got dict'),
    "value together with not found": (
        '[http2]\nvalue = true\nchecked = 2026-11-22\nevidence = "not found"\nnote = "Asked."',
        'http2: expected no value, because evidence = "not found"',
    ),
    "not found without a note": (
        '[http2]\nchecked = 2026-11-22\nevidence = "not found"',
        "http2: expected a note that says what was looked for",
    ),
    "wrong type": (
        f'[cache.minimum_tokens]\nvalue = "1024"\n{BAD_FILE}',
        "cache.minimum_tokens.value: expected a valid integer, got '1024'",
    ),
    "infinity": (
        f"[cache.lifetime_s]\nvalue = inf\n{BAD_FILE}",
        "cache.lifetime_s.value: expected a finite number, got inf",
    ),
    "value where a table is meant": ("cache = 3", "cache: .*Cache, got 3"),
    "forms without JSON": (
        f'[encodings."/responses"]\nvalue = ["msgpack"]\n{BAD_FILE}',
        'encodings./responses.value: expected "json" among the forms',
    ),
    "endpoint with the base URL's path": (
        f'[encodings."/v1/chat/completions"]\nvalue = ["json"]\n{BAD_FILE}',
        'encodings./v1/chat/completions: expected a path below the base URL, such as "/chat/completions", without the',
    ),
    "source that is no address": (
        '[http2]\nvalue = true\nsource = "the docs"\nevidence = "documented"\nchecked = 2026-11-22',
        "http2.source: expected '.https.*, got 'the docs'",
    ),
    "no TOML": ("= 1", "expected TOML, got something else: .*line 1"),
    "more digits than Python reads": (f"http2 = {'9' * 4_400}", "expected TOML, got something else: .*digits"),
    "lists nested deeply": (f"http2 = {'[' * 5_000}", "expected TOML, got something else"),
    "long key": (f"{'x' * 999} = 1", f"toml: {'x' * 60}: unknown key, got 1"),
    "key of two lines": ('"a\\nb" = 1', r"toml: 'a\\nb': unknown key"),
    "long value": (f'http2 = "{"x" * 999}"', f"got '{'x' * 59}$"),
}


@pytest.mark.parametrize(("written", "said"), BAD.values(), ids=BAD)
def test_invalid_facts_are_refused_with_expected_value(written: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(written)

    with pytest.raises(ConfigurationError, match=said) as refused:
        load(file)

    assert all(line.startswith(f"{file}: ") for line in str(refused.value).splitlines())
    with pytest.raises(ConfigurationError, match=said), registered(file):
        pass


def test_facts_errors_are_listed_up_to_five(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(f"key_{number} = 1" for number in range(8)))

    with pytest.raises(ConfigurationError) as refused:
        load(file)

    lines = str(refused.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["key_0", "key_1", "key_2", "key_3", "key_4", "3 more"]


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_bytes(b'name = "\xff"')

    with pytest.raises(ConfigurationError, match="expected TOML, got something else"):
        load(file)


def test_path_that_can_be_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="expected a TOML file"):
        load("fac\0ts.toml")


# The facts that the package brings can be used, and each says where it stands


ROOT = Path(__file__).parent.parent.parent
FILES = {path.stem: path for path in (ROOT / "fastlane/providers").glob("*.toml") if path.stem != "origins"}


def said_without_source(facts: ProviderFacts) -> list[str]:
    return [".".join(keys) for keys, fact in facts.all_facts() if fact.value is not None and fact.source is None]


def checked_too_early(facts: ProviderFacts) -> list[str]:
    return [".".join(keys) for keys, fact in facts.all_facts() if fact.checked < date(2026, 1, 1)]


def test_every_facts_file_has_a_name() -> None:
    assert set(FILES) == set(names())


@pytest.mark.parametrize("slug", sorted(FILES))
def test_every_packaged_facts_file_is_valid(slug: str) -> None:
    facts = facts_named(slug)

    assert facts.slug == slug
    assert facts.name
    assert list(facts.all_facts())
    assert said_without_source(facts) == []
    assert checked_too_early(facts) == []
    assert facts.base_url is None or facts_of(facts.base_url).slug == slug
    thinks, never = (fact.value or () if fact else () for fact in (facts.reasoning.models, facts.reasoning.never))
    assert not set(thinks) & set(never), "no model both reasons and never does"


@pytest.mark.parametrize("slug", sorted(places()))
def test_every_provider_is_identifiable(slug: str) -> None:
    place = places()[slug]

    assert place.hosts or place.says.header or place.says.header_names or place.says.owned_by
    assert place.checked >= date(2026, 1, 1)
    assert all(name == name.lower() for name in (*place.says.header, *place.says.header_names))


@pytest.mark.parametrize(("days", "word", "fails"), [(120, None, False), (121, "warning", False), (241, "error", True)])
def test_old_facts_are_reported(days: int, word: str | None, fails: bool) -> None:
    newest = max(fact.checked for slug in FILES for _, fact in facts_named(slug).all_facts())
    oldest = min(fact.checked for _, fact in facts_named("openai").all_facts())

    lines, is_too_old = report(oldest + timedelta(days))

    assert newest - oldest < timedelta(60)
    assert is_too_old is fails
    assert any(f"{word}: fastlane/providers/openai.toml" in line for line in lines) is (word is not None)
