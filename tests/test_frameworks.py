"""What the page of frameworks says of versions is what they are tested with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.frameworks import HOMES, Framework, Home

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
EACH = [pytest.param(home, framework, id=framework.name) for home in HOMES for framework in home.frameworks]


def pins(home: Home) -> dict[str, str]:
    lines = home.pins.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize(("home", "framework"), EACH)
def test_page_names_the_versions_that_are_tested(home: Home, framework: Framework) -> None:
    pinned = pins(home)
    library = "httpx" if pinned["openai"].startswith("2.") else "httpx2"

    assert framework.tests.is_file()
    assert re.search(rf"\b{re.escape(pinned[framework.distribution])} \| {pinned['openai']} \| {library} \|", PAGE)


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_pins_are_versions_and_nothing_else(home: Home) -> None:
    assert [f"{name}=={version}" for name, version in pins(home).items() if not re.fullmatch(r"[\w.+]+", version)] == []
    assert "fastlane-llm" not in pins(home)


def test_environments_of_one_openai_are_one() -> None:
    versions = [pins(home)["openai"] for home in HOMES]

    assert len(set(versions)) == len(versions)
