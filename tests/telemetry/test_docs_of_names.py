"""docs/telemetry.md has every name that is exported, and no other of fastlane's."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from fastlane.records import Metric
from fastlane.records.section import LONG_SECONDS, SECONDS, SHORT_SECONDS, section_classes
from fastlane.telemetry import TelemetrySettings, configure, metrics, settings as telemetry_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/telemetry.md").read_text()

SECTIONS = [section for section in section_classes() if section.__module__.startswith("fastlane.")]
METRICS = (*metrics.OF_EVERY_CALL, *[metric for section in SECTIONS for metric in section.metrics])

A_NAME = re.compile(
    r"(?:fastlane|gen_ai|openai|openinference|server|network|http|url|dns|tls|error|feature_flag)\.[a-z_.]*[a-z]"
)


def literals() -> set[str]:
    """The names of attributes and labels that telemetry's own code and the sections of fastlane's plays write."""
    modules = [path for path in (ROOT / "fastlane/telemetry").glob("*.py") if path.stem != "coexistence"]
    modules += {Path(str(sys.modules[section.__module__].__file__)) for section in SECTIONS}
    trees = [ast.parse(path.read_text()) for path in modules]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and A_NAME.fullmatch(text)}


def written(kind: str) -> set[str]:
    """What stands in backticks and begins as fastlane's names do."""
    return {name for name in re.findall(r"`([a-z_.0-9]+)`", PAGE) if name.startswith(kind)}


ATTRIBUTES = literals()
SETTINGS = {
    telemetry_settings.LEVEL_VARIABLE,
    telemetry_settings.PROPAGATE_VARIABLE,
    *get_args(telemetry_settings.Level),
    *(configure.__kwdefaults__ or ()),
    *TelemetrySettings.__dataclass_fields__,
}


@pytest.mark.parametrize("name", sorted(ATTRIBUTES | SETTINGS))
def test_every_attribute_and_setting_is_explained(name: str) -> None:
    assert re.search(rf"`\"?{re.escape(name)}\"?`", PAGE)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_documented_with_type_and_unit(metric: Metric) -> None:
    assert f"`{metric.name}`" in PAGE
    if metric.name.startswith("fastlane."):
        (row,) = (
            line for line in PAGE.splitlines() if line.startswith("| `") and f"`{metric.name}`" in line.split("|")[1]
        )
        assert f"{metric.kind}, {metric.unit}" in row


@pytest.mark.parametrize("buckets", [SECONDS, SHORT_SECONDS[:6], LONG_SECONDS[-5:]])
def test_buckets_are_those_of_the_code(buckets: tuple[float, ...]) -> None:
    assert ", ".join(f"{bound:g}" if bound >= 0.001 else f"{bound:.5f}".rstrip("0") for bound in buckets) in PAGE


def test_page_names_nothing_that_is_not_exported() -> None:
    modules = {"fastlane.telemetry", "fastlane.telemetry.configure"}
    assert written("fastlane.") - ATTRIBUTES - {metric.name for metric in METRICS} - modules == set()
