"""A file of models is read as a whole, or refused: which file, model and key, what was expected, what came."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.catalog import Catalog, Score, Task
from fastlane.plays.routing.catalog.scores import clears
from fastlane.providers import facts_of

ROOT = Path(__file__).parents[4]
GOOD = 'name = "small"\nfirst_token_s = [[1_000, 0.5]]\ntokens_per_s = 100\n'


def load(tmp_path: Path, text: str) -> Catalog:
    path = tmp_path / "catalog.toml"
    path.write_text(text)
    return Catalog.load(path)


def test_the_file_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    page = (ROOT / "docs/catalog.md").read_text()
    [written] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    catalog = load(tmp_path, written)

    small = catalog.named("small")
    assert small.scores == {"triage": Score(57, 60)}
    assert small.checked == date(2026, 11, 22)
    assert small.price is not None
    assert small.price.cached_input == 0.02
    assert catalog.named("large").base_url is None
    assert catalog.tasks == {"triage": Task(min_quality=45, min_pass_rate=0.9, output_tokens=120)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "models: expected this key, got none"),
        ("models = []", "models: expected at least one model, got none"),
        ("models = 3", "models: expected a valid tuple, got 3"),
        ("[[models]]\ntokens_per_s = 1", "models.0.name: expected this key, got none"),
        (f"[[models]]\n{GOOD}tokens_per_second = 1", "models.0.tokens_per_second: unknown key, got 1"),
        (f'[[models]]\n{GOOD}api_key_env = "KEY"', "models.0: expected a base_url beside api_key_env"),
        (f"[[models]]\n{GOOD}[[models]]\n{GOOD}", "models: expected each model to have a name of its own"),
        (f"[[models]]\n{GOOD}[tasks.triage]\nbar = 45", "tasks.triage.bar: unknown key, got 45"),
        (f"[[models]]\n{GOOD}[tasks.triage]\nmin_pass_rate = 90", "tasks.triage.min_pass_rate: expected less than"),
        (f'snapshot = "June"\n[[models]]\n{GOOD}', "snapshot: expected a valid date"),
        ("= 3", "expected TOML, got something else"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(str(tmp_path / "catalog.toml"))


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, '[[models]]\nname = "a"\nquality = "b"\n[[models]]\nname = "c"\nprovider = 1\nfacts = 2')

    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    assert all(line.startswith(str(tmp_path)) for line in lines)
    assert lines[-1].endswith("2 more")


def test_a_key_in_a_file_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(
            tmp_path,
            f'[[models]]\n{GOOD}base_url = "https://x.example"\napi_key_env = "csk-secret"\napi_key = "secret"',
        )

    assert "secret" not in str(caught.value)
    assert 'such as "EXAMPLE_API_KEY"' in str(caught.value)


@pytest.mark.parametrize(
    ("path", "said"),
    [("missing.toml", "No such file"), (".", "Is a directory"), ("a\0b", "expected a TOML file with a catalog")],
)
def test_what_is_no_file_is_refused(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Catalog.load(tmp_path / path)


def test_the_example_makes_the_talks_case() -> None:
    catalog = Catalog.example()
    bar = catalog.tasks["example"].min_quality

    above = [
        one for one in catalog.models if clears(one, min_quality=bar, min_pass_rate=None, measured=Score()) is None
    ]
    seconds = {one.name: 10 * (one.first_token_s[0][1] + 500 / one.tokens_per_s) for one in catalog.models}

    assert catalog.snapshot == date(2026, 6, 13)
    assert bar == 45
    assert "gpt-oss-120b" not in [one.name for one in above]
    assert max(above, key=lambda one: one.tokens_per_s).name == "DeepSeek V4 Flash"
    assert seconds["gpt-oss-120b"] == pytest.approx(19, abs=0.1)
    assert seconds["GPT-5.5"] == pytest.approx(13 * 60 + 54, abs=0.5)
    assert seconds["GPT-5.5"] / seconds["gpt-oss-120b"] == pytest.approx(44, abs=0.1)


def test_every_model_of_the_example_has_its_source_and_known_facts() -> None:
    catalog = Catalog.example()

    for model in catalog.models:
        assert "https://" in model.source
        assert model.checked is not None
        assert facts_of(catalog.origin_of(model)).slug != "unknown"


def test_the_figures_in_the_documentation_are_those_of_the_example() -> None:
    page = (ROOT / "docs/catalog.md").read_text()

    for model in Catalog.example().models:
        row = f"| {model.name} | {model.quality:g} | {model.first_token_s[0][1]:g} | {model.tokens_per_s:,.0f} |"
        assert row in page


def test_a_file_that_nests_deeply_or_has_too_many_digits_is_refused_like_any_other(tmp_path: Path) -> None:
    for written in (f"models = {'[' * 5_000}", f"models.{'a.' * 3_000}b = 1", f"currency = {'9' * 4_400}"):
        with pytest.raises(ConfigurationError, match=r"catalog\.toml: "):
            load(tmp_path, written)
