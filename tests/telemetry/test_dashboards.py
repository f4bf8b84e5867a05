"""What the dashboard and the rules ask for is what the code exports, by the names that Prometheus sees."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry

from fastlane import OpenAI
from scripts.servers import UnavailableError, program
from tests.telemetry.conftest import Listening
from tests.telemetry.measuring import everything

FOLDER = Path(__file__).parents[2] / "docs/dashboards"
DASHBOARD = FOLDER / "fastlane.grafana.json"
RULES = FOLDER / "fastlane.rules.yml"

# Exported for other tools, and of no use beside the panel of the first token.
NOT_SHOWN = {
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "gen_ai_client_operation_time_per_output_chunk_seconds",
}

# Prometheus' own: it names what it scraped by them.
OF_THE_SCRAPE = {"job", "instance", "le"}


@pytest.fixture
def exported(arguments: dict[str, Any], listening: Listening) -> dict[str, set[str]]:
    """The labels of every series, by its name, after calls that together have a value for every metric."""
    registry = CollectorRegistry()
    captured = listening(readers=[PrometheusMetricReader(registry=registry)])
    found: dict[str, set[str]] = {}
    with OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
        captured.tell(*everything())
        for family in registry.collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def recorded_and_asked() -> tuple[dict[str, set[str]], list[str]]:
    """The labels of what the rules record, by its name, and every expression of the rules."""
    text = RULES.read_text()
    expressions = re.findall(r"expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", text)
    asked = [" ".join(folded.split()) or plain for folded, plain in expressions]
    names = re.findall(r"- record: (\S+)\n *expr: >-\n((?:          .*\n)+)", text)
    labels = {name: labels_of(" ".join(body.split())) - {"le"} for name, body in names}
    return labels, asked


def queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def names_of(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    found = re.findall(r"\b(?:fastlane|gen_ai_client|http_client|model:|interaction:)[\w:]*(?=[{\[\s)]|$)", bare)
    return set(found) - labels_of(expression)


def labels_of(expression: str) -> set[str]:
    grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expression)
    matched = re.findall(r"\{([^}]*)\}", expression)
    found = {label.strip() for group in grouped for label in group.split(",")}
    return found | set(re.findall(r"(\w+)(?:=~|!~|!=|=)", " ".join(matched)))


def everywhere() -> list[str]:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    definitions = [variable["definition"] for variable in variables if "definition" in variable]
    asked = [re.sub(r"label_values\((\w+), (\w+)\)", r"sum by (\2) (\1)", text) for text in definitions]
    return [*queries(), *asked, *recorded_and_asked()[1]]


def test_every_queried_metric_is_exported_with_its_labels(exported: dict[str, set[str]]) -> None:
    known = {**exported, **recorded_and_asked()[0]}
    asked = everywhere()
    assert len(asked) > 45

    for expression in asked:
        names = names_of(expression)
        assert names, expression
        assert names <= known.keys(), expression
        labels = set.union(*(known[name] for name in names))
        assert labels_of(expression) <= labels | OF_THE_SCRAPE, expression


def test_every_metric_that_is_exported_is_looked_at(exported: dict[str, set[str]]) -> None:
    asked = set.union(*(names_of(expression) for expression in everywhere()))
    of_ours = {name for name in exported if name.startswith(("fastlane", "gen_ai", "http_client"))}
    metrics = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in of_ours}
    shown = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in asked}

    assert metrics - shown == NOT_SHOWN


def test_dashboard_variables_are_defined() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", " ".join(queries())))
    panels = dashboard["panels"]

    assert used - {"__rate_interval"} == {"model", "provider", "arm"}
    assert used - {"__rate_interval"} <= defined
    assert "datasource" in defined
    assert {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"} == {"${datasource}"}


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return program("promtool")
    except UnavailableError as error:
        pytest.skip(str(error))


def checked(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_rules_are_valid_and_pass_their_tests(promtool: str) -> None:
    assert "14 rules found" in checked(promtool, "check", "rules", RULES)
    checked(promtool, "test", "rules", FOLDER / "fastlane.rules.test.yml")


def test_prometheus_reads_every_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    rules = []
    for number, query in enumerate(queries()):
        plain = re.sub(r"\$(?!__)\w+", ".*", query.replace("$__rate_interval", "5m"))
        rules.append({"record": f"panel:{number}", "expr": plain})
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert f"{len(rules)} rules found" in checked(promtool, "check", "rules", file)
