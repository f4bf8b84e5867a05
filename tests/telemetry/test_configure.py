"""`configure()` uses what an application has, and builds what it has not as OpenTelemetry's variables say."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastlane.telemetry import trace_files
from tests.telemetry.otlp_collector import Collector, collector, run

SPAN = """
from opentelemetry import trace
def span(name):
    with trace.get_tracer("app").start_as_current_span(name): pass
"""


@pytest.fixture
def collecting() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture
def no_exporter_configured(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that keeps its traces in files."""
    return {"FASTLANE_TRACE_DIR": str(tmp_path / "traces"), "OTEL_SERVICE_NAME": "checkout"}


def spans_in(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        span["name"]
        for line in lines
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_opentelemetry_is_imported_lazily() -> None:
    output = run(
        """
import sys
import fastlane, fastlane.telemetry
fastlane.telemetry.TelemetrySettings(), fastlane.telemetry.experiment
print([name for name in sys.modules if name.startswith("opentelemetry")])
""",
        {},
    )

    assert output == "[]\n"


def test_spans_go_to_a_file_without_configuration(
    no_exporter_configured: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = run(
        f"""
import logging, threading
logging.basicConfig(level=logging.INFO)
import fastlane.telemetry
threads = [threading.Thread(target=fastlane.telemetry.configure) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
telemetry = fastlane.telemetry.configure(level="phases")
again = fastlane.telemetry.configure(propagate=True)
{SPAN}
assert trace.get_tracer_provider() is telemetry.tracer_provider is again.tracer_provider
assert (again.settings.level, again.settings.propagate) == ("phases", True)
assert telemetry.meter_provider is None
assert not telemetry.trace_file.exists()
span("one")
assert telemetry.force_flush()
span("sent when the process ends")
""",
        no_exporter_configured,
    )

    monkeypatch.setenv("FASTLANE_TRACE_DIR", no_exporter_configured["FASTLANE_TRACE_DIR"])
    file = trace_files.newest()
    assert file is not None
    assert spans_in(file) == ["one", "sent when the process ends"]
    assert '{"key":"service.name","value":{"stringValue":"checkout"}}' in file.read_text()
    assert output.count(f"spans are written to {file}") == 1


def test_collector_gets_spans_and_metrics_per_variables(collecting: Collector) -> None:
    output = run(
        f"""
import fastlane.telemetry
telemetry = fastlane.telemetry.configure()
{SPAN}
span("one")
from opentelemetry.metrics import get_meter
boundaries = {{"explicit_bucket_boundaries_advisory": [0.1, 0.2]}}
get_meter("app").create_histogram("seconds", **boundaries).record(0.15)
assert telemetry.force_flush()
assert telemetry.trace_file is None
print(telemetry)
""",
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collecting.url + "/",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collecting.url}/elsewhere/traces",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=for%20all",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=planted-secret",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "checkout",
            "OTEL_RESOURCE_ATTRIBUTES": "team=payments,service.name=other",
        },
    )

    assert collecting.names() == ["one"]
    resource, _ = collecting.spans[0]
    assert (resource["service.name"], resource["team"]) == ("checkout", "payments")
    assert set(collecting.paths) == {"/elsewhere/traces", "/v1/metrics"}
    keys = {path: headers["x-key"] for path, headers in zip(collecting.paths, collecting.headers, strict=True)}
    assert (keys["/elsewhere/traces"], keys["/v1/metrics"]) == ("planted-secret", "for all")
    assert list(collecting.metrics["seconds"].histogram.data_points[0].explicit_bounds) == [0.1, 0.2]
    assert "planted-secret" not in output


def test_configure_keeps_existing_providers(no_exporter_configured: dict[str, str], tmp_path: Path) -> None:
    run(
        f"""
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
{SPAN}
kept = InMemorySpanExporter()
own, measuring = TracerProvider(), MeterProvider()
own.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(own)
metrics.set_meter_provider(measuring)
import fastlane
from fastlane.telemetry import configure
telemetry = configure()
assert telemetry.tracer_provider is own is trace.get_tracer_provider()
assert telemetry.meter_provider is measuring is metrics.get_meter_provider()
other = TracerProvider()
given = configure(tracer_provider=other)
assert given.tracer_provider is other is given.settings.tracer_provider
assert trace.get_tracer_provider() is own
span("recorded")
assert [one.name for one in kept.get_finished_spans()] == ["recorded"]
""",
        no_exporter_configured,
    )

    assert not list(tmp_path.glob("traces/*"))


NOTHING = [
    {"OTEL_SDK_DISABLED": "true"},
    {"OTEL_TRACES_EXPORTER": "none"},
    {"FASTLANE_TELEMETRY_LEVEL": "off"},
    {"FASTLANE_DISABLED": "1"},
]


def test_disabled_telemetry_builds_nothing(no_exporter_configured: dict[str, str]) -> None:
    output = run(
        """
import json, os, sys, threading
import fastlane.telemetry
for environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    telemetry = fastlane.telemetry.configure()
    assert telemetry.tracer_provider is telemetry.meter_provider is telemetry.trace_file is None
    assert threading.active_count() == 1
    assert telemetry.force_flush()
    for name in environment: del os.environ[name]
print("opentelemetry.sdk.trace" in sys.modules)
""",
        no_exporter_configured,
        json.dumps(NOTHING),
    )

    assert output == "False\n"
    assert not Path(no_exporter_configured["FASTLANE_TRACE_DIR"]).exists()


BAD: list[tuple[dict[str, str], str]] = [
    (
        {"FASTLANE_TELEMETRY_LEVEL": "loud"},
        "FASTLANE_TELEMETRY_LEVEL: expected off, call, attempts, phases, got 'loud'",
    ),
    ({"FASTLANE_TELEMETRY_PROPAGATE": "maybe"}, "FASTLANE_TELEMETRY_PROPAGATE: expected"),
    ({"OTEL_TRACES_EXPORTER": "zipkinn"}, "OTEL_TRACES_EXPORTER"),
    ({"OTEL_METRICS_EXPORTER": "unknown"}, "OTEL_METRICS_EXPORTER"),
    ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http"}, "OTEL_EXPORTER_OTLP_PROTOCOL: expected"),
]
BAD_ARGUMENTS = {
    "level='loud'": 'TelemetrySettings(level=...) takes "off", "call", "attempts" or "phases"',
    "tracer_provider='mine'": "configure(tracer_provider=...) takes a provider",
}


def test_invalid_telemetry_values_are_named(no_exporter_configured: dict[str, str]) -> None:
    # One process for all of them: what is refused leaves nothing behind, so that the last call can build.
    output = run(
        f"""
import json, os, sys, threading
import fastlane
from fastlane.telemetry import configure
for environment, arguments in json.loads(sys.argv[1]):
    os.environ.update(environment)
    try:
        eval(f"configure({{arguments}})")
    except fastlane.ConfigurationError as error:
        print(error)
    else:
        print("nothing was said")
    for name in environment: del os.environ[name]
assert threading.active_count() == 1
{SPAN}
telemetry = configure()
span("one")
assert telemetry.force_flush() and telemetry.trace_file.exists()
""",
        no_exporter_configured,
        json.dumps([*((bad, "") for bad, _ in BAD), *(({}, bad) for bad in BAD_ARGUMENTS)]),
    )

    lines = output.splitlines()
    for line, expected in zip(lines, [*(message for _, message in BAD), *BAD_ARGUMENTS.values()], strict=True):
        assert expected in line


def test_missing_exporter_is_named_with_its_extra(no_exporter_configured: dict[str, str]) -> None:
    output = run(
        """
import os, sys
sys.modules["opentelemetry.exporter.otlp.json.file.trace_exporter"] = None
sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
import fastlane
for endpoint in ("", "http://127.0.0.1:9"):
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    try:
        fastlane.telemetry.configure()
    except fastlane.MissingExtraError as error:
        print(error)
""",
        no_exporter_configured,
    )

    in_file, over_http = output.splitlines()
    assert "'opentelemetry-exporter-otlp-json-file'" in in_file
    assert "'opentelemetry-exporter-otlp-proto-http'" in over_http
    assert "fastlane-llm[telemetry]" in over_http


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_process_exports_by_itself(collecting: Collector, tmp_path: Path) -> None:
    # As a server does that loads the application first and forks its workers then.
    run(
        f"""
import os, sys, warnings
warnings.simplefilter("ignore")
import fastlane.telemetry
telemetry = fastlane.telemetry.configure()
{SPAN}
span("parent")
assert telemetry.force_flush()
span("parent, not sent when it forks")
for worker in ("first", "second"):
    if os.fork() == 0:
        span(worker)
        assert telemetry.force_flush()
        span(f"{{worker}}, sent at its end")
        sys.exit()
while True:
    try:
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    except ChildProcessError:
        break
span("parent again")
""",
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collecting.url,
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_TRACES_EXPORTER": "otlp,otlp_json_file",
            "FASTLANE_TRACE_DIR": str(tmp_path),
        },
    )

    expected = [
        ["first", "first, sent at its end"],
        ["parent", "parent, not sent when it forks", "parent again"],
        ["second", "second, sent at its end"],
    ]
    assert sorted(collecting.names()) == sorted(name for names in expected for name in names)
    assert sorted(map(spans_in, tmp_path.iterdir())) == expected
    if sys.platform != "win32":
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_unwritable_trace_directory_does_not_stop_startup(tmp_path: Path) -> None:
    blocking_file = tmp_path / "file"
    blocking_file.write_text("")

    output = run(
        """
import logging
logging.basicConfig()
import fastlane.telemetry
assert fastlane.telemetry.configure().tracer_provider is None
""",
        {"HOME": str(blocking_file), "XDG_STATE_HOME": str(blocking_file), "LOCALAPPDATA": str(blocking_file)},
    )

    assert "no spans are kept" in output
    assert "set FASTLANE_TRACE_DIR" in output
