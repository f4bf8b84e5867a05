"""What Prometheus says of an application's calls is what its records say of them."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from fastlane import CallRecord
from fastlane.records.section import SECONDS
from scripts.backends._application import AS_WRITTEN, LAID_OUT
from scripts.environments import ROOT
from tests.backends.measured import Measured

pytestmark = pytest.mark.timeout(600)

DASHBOARD = ROOT / "docs/dashboards/fastlane.grafana.json"
TTFT = "fastlane_client_time_to_first_token_seconds"


def first_tokens(records: list[CallRecord]) -> list[float]:
    return sorted(record.time_to_first_token_s for record in records if record.time_to_first_token_s is not None)


def bucket(seconds: float) -> tuple[float, float]:
    """The bucket that so many seconds are counted in."""
    boundaries = [0.0, *SECONDS]
    return next((low, high) for low, high in pairwise(boundaries) if low < seconds <= high)


def test_every_call_is_counted_once(measured: Measured) -> None:
    calls = len(measured.notes.calls)

    assert measured.prometheus.value("sum(gen_ai_client_operation_duration_seconds_count)") == calls >= 80


@pytest.mark.parametrize("quantile", [0.5, 0.95])
@pytest.mark.parametrize("arm", [AS_WRITTEN, LAID_OUT])
def test_quantile_lies_in_the_bucket_of_the_true_one(measured: Measured, arm: str, quantile: float) -> None:
    seen = measured.prometheus.value(
        f'histogram_quantile({quantile}, sum by (le) ({TTFT}_bucket{{fastlane_experiment_arm="{arm}"}}))'
    )

    values = first_tokens(measured.notes.arms[arm])
    # Prometheus' rank is no whole number: it lies at one of two values, or between them.
    rank = quantile * len(values)
    near = {bucket(values[max(0, min(len(values) - 1, int(rank) + step))]) for step in (-1, 0)}
    assert any(low <= seen <= high for low, high in near)


def test_tokens_are_those_of_the_records(measured: Measured) -> None:
    for kind in ("input", "output"):
        noted = sum(getattr(record.usage, f"{kind}_tokens") or 0 for record in measured.notes.calls)
        shown = f'sum(gen_ai_client_token_usage_sum{{gen_ai_token_type="{kind}"}})'
        assert measured.prometheus.value(shown) == noted > 0


def test_cached_token_share_can_be_queried(measured: Measured) -> None:
    # Of calls with the `PromptCache` play, beside what it expected.
    caches = [record.prompt_cache for record in measured.notes.calls if record.prompt_cache is not None]
    noted = sum(cache.cached_tokens or 0 for cache in caches)
    shown = measured.prometheus.query("sum({__name__=~'fastlane_client_cache_read_tokens.*'})")

    assert float(shown[0]["value"][1]) == noted > 50_000


def asked_by_the_dashboard() -> dict[str, list[str]]:
    """What each panel of the dashboard asks for, with all of each variable's values."""
    asked = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        expressions = [target["expr"].replace("$__rate_interval", "5m") for target in panel.get("targets", ())]
        if expressions:
            asked[panel["title"]] = [re.sub(r"\$\w+", ".*", expression) for expression in expressions]
    return asked


def test_every_dashboard_query_returns_data(measured: Measured) -> None:
    asked = asked_by_the_dashboard()
    # One expression of a panel is for this convention's names, and another one may be for the other's.
    without = {panel for panel, several in asked.items() if not any(map(measured.prometheus.query, several))}

    assert len(asked) >= 20
    # The application has no `Routing` play, and has closed its connections by now.
    assert without == {"Open connections", "Routing decisions"}


def test_connections_were_counted_while_they_were_open(measured: Measured) -> None:
    assert measured.prometheus.value("max(max_over_time(http_client_open_connections[5m]))") >= 1


def test_rules_are_evaluated_without_an_error(measured: Measured) -> None:
    rules = measured.rules()

    assert len(rules) >= 1
    assert {rule["name"]: (rule["health"], rule.get("lastError", "")) for rule in rules} == {
        rule["name"]: ("ok", "") for rule in rules
    }
