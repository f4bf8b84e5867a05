from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastlane import ConfigurationError, MissingExtraError
from fastlane.bench import Benchmark, Closed, Embedded, RecordedRun, code_review, read_run
from fastlane.bench._spans import prepare_trace, write_trace
from fastlane.traces import ExperimentComparison, TraceEntry, compare, entries, read_spans
from tests.bench.recorded_runs import a_run, an_arm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def ran(folder: Path) -> RecordedRun:
    return Benchmark(
        arms=["baseline", "fastlane"],
        workload=code_review().limited(2),
        provider=Embedded(preset="instant", round_trip_time_s=0.005),
        load=Closed(users=(2,), think_s=0),
        again=False,
        warm_up=0,
        turns=2,
        passes=1,
    ).run(folder)


@pytest.fixture
def traced(ran: RecordedRun, tmp_path: Path) -> tuple[tuple[TraceEntry, ...], dict[str, ExperimentComparison]]:
    path = tmp_path / "bench.jsonl"
    prepare_trace(path)
    write_trace(ran, path)
    found = entries(read_spans(path.read_bytes(), path.name).spans)
    return found, {each.experiment: each for each in compare(found)}


Traced = tuple[tuple[TraceEntry, ...], dict[str, ExperimentComparison]]


def test_each_request_stands_beside_the_other_arms_request_of_its_block(ran: RecordedRun, traced: Traced) -> None:
    found, compared = traced

    assert len(found) == len(ran.samples) == 10
    assert sorted(compared) == ["bench", "bench, first requests"]
    assert [(arm.arm, arm.pairs) for arm in compared["bench"].arms] == [("baseline", 4), ("fastlane", 4)]
    assert [arm.pairs for arm in compared["bench, first requests"].arms] == [1, 1]
    assert compared["bench"].alone == 0


def test_the_stock_client_is_shown_as_its_caller_saw_it_and_ours_phase_by_phase(
    ran: RecordedRun, traced: Traced
) -> None:
    found, compared = traced
    (first,) = compared["bench, first requests"].groups
    stock, ours = found[first.members["baseline"]], found[first.members["fastlane"]]
    by_arm = {sample.arm: sample for sample in ran.samples if sample.cold}

    assert stock.durations_s["unsplit"] == pytest.approx(by_arm["baseline"].time_to_first_token_s)
    assert stock.duration_s == pytest.approx((by_arm["baseline"].ended_ns - by_arm["baseline"].issued_ns) / 1e9)
    assert "unsplit" not in ours.durations_s
    assert {"connect", "tls", "send", "server"} <= ours.durations_s.keys()
    assert [row.label.split()[0] for row in ours.rows if row.phase in ("connect", "tls")] == ["socket", "TLS"]
    record = by_arm["fastlane"].record
    assert record is not None
    assert ours.calls[0].time_to_first_token_s == record.time_to_first_token_s
    assert ours.calls[0].output_tokens == stock.calls[0].output_tokens == by_arm["baseline"].output_tokens


def test_no_text_of_a_conversation_is_in_the_file(ran: RecordedRun, tmp_path: Path) -> None:
    write_trace(ran, tmp_path / "bench.jsonl")

    assert "code reviewer" not in (tmp_path / "bench.jsonl").read_text()


def test_a_file_that_cannot_be_written_is_said_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="-o needs a file that can be written to"):
        prepare_trace(tmp_path)


def test_a_missing_exporter_and_a_disabled_sdk_are_said_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with pytest.raises(ConfigurationError, match="OTEL_SDK_DISABLED has switched off: unset it"):
        prepare_trace(tmp_path / "bench.jsonl")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.json.file", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fastlane-llm\[telemetry\]'"):
        prepare_trace(tmp_path / "bench.jsonl")


def test_a_run_that_was_kept_is_told_as_its_callers_saw_it(ran: RecordedRun, folder: Path, tmp_path: Path) -> None:
    """A file holds a client's record as plain data, of which no phases are made again."""
    write_trace(read_run(folder), tmp_path / "bench.jsonl")

    found = entries(read_spans((tmp_path / "bench.jsonl").read_bytes(), "bench.jsonl").spans)
    assert len(found) == len(ran.samples)
    assert all("unsplit" in entry.durations_s for entry in found)


def test_each_arm_stands_beside_its_own_reference(tmp_path: Path) -> None:
    arms = [
        an_arm("baseline"),
        an_arm("fastlane"),
        an_arm("baseline-async", role="reference"),
        an_arm("all-async", reference="baseline-async"),
    ]
    write_trace(a_run(arms=arms, pairs=4), tmp_path / "bench.jsonl")

    found = compare(entries(read_spans((tmp_path / "bench.jsonl").read_bytes(), "bench.jsonl").spans))

    assert {each.experiment: [arm.arm for arm in each.arms] for each in found if "first" not in each.experiment} == {
        "bench, against baseline": ["baseline", "fastlane"],
        "bench, against baseline-async": ["baseline-async", "all-async"],
    }
