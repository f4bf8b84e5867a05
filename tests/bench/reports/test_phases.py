"""Where the time goes: the same phases for every arm of a run, and nothing lost between them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.bench import RecordedRun, Sample
from tests.bench.recorded_runs import MS, a_run, an_entry
from tests.bench.reports.made import document


def called(sample: Sample, **wire: int) -> Sample:
    """The sample with its client's record of when the steps of connecting and sending began and ended, in ms."""
    stamps = {f"{name}_ns": sample.issued_ns + value * MS for name, value in wire.items()}
    attempt = {"wire": {"started_ns": sample.issued_ns + 2 * MS, **stamps}, "error": None}
    return dataclasses.replace(sample, call={"attempts": [attempt]})


def a_quick_run(*arms: str, **fields: Any) -> RecordedRun:
    return a_run(arms=arms, spread=0.0, metrics=("api_end_to_end",), **{"pairs": 4, "ratio": 1.0, **fields})


def phases(run: RecordedRun) -> dict[str, dict[str, float]]:
    """Return each arm's mean milliseconds of each phase, as the report's JSON has them."""
    (cell,) = document(run)["cells"]
    return {each["arm"]: each["milliseconds"] for each in cell["phases"]}


def test_call_record_splits_connection_setup_into_phases() -> None:
    steps = {"dns_started": 5, "dns_ended": 9, "connect_started": 9, "connect_ended": 30, "tls_started": 30,
             "tls_ended": 60, "send_started": 61, "send_ended": 90}  # fmt: skip
    found = phases(a_quick_run("baseline", change=lambda sample: called(sample, **steps)))["baseline"]

    assert {name: int(spent) for name, spent in found.items()} == {
        "client": 2, "queue": 4, "DNS": 4, "TCP connect": 21, "TLS": 30, "upload": 29, "provider": 110,
        "generation": 310,
    }  # fmt: skip


def record_of_fastlane(sample: Sample) -> Sample:
    return called(sample, send_started=3, send_ended=4) if sample.arm == "fastlane" else sample


def test_arms_with_and_without_records_get_the_same_phases() -> None:
    run = a_quick_run("baseline", "fastlane", change=record_of_fastlane)
    log = tuple(
        an_entry(each, received_ns=each.issued_ns + 70 * MS, body_complete_ns=each.issued_ns + 90 * MS)
        for each in run.samples
    )
    found = phases(dataclasses.replace(run, log=log))

    assert round(found["baseline"]["client and connection"]) == 50
    assert round(found["fastlane"]["client and connection"]) == 3
    assert found["baseline"].keys() == found["fastlane"].keys()
    assert "TLS" not in found["fastlane"]


def test_phases_without_server_log_are_the_common_ones() -> None:
    run = a_quick_run("baseline", "fastlane", change=record_of_fastlane)
    failed = tuple(dataclasses.replace(each, error="X") for each in run.samples)

    for found in phases(run).values():
        assert list(found) == ["until the head", "head to first token", "generation"]
    assert phases(dataclasses.replace(run, samples=failed)) == {}


@settings(max_examples=20)
@given(st.lists(st.integers(-5, 400), min_size=8, max_size=8), st.booleans())
def test_phases_are_positive_and_sum_to_end_to_end(moments: list[int], logged: bool) -> None:
    names = [f"{phase}_{end}" for phase in ("dns", "connect", "tls", "send") for end in ("started", "ended")]
    steps = dict(zip(names, moments, strict=True))
    run = a_quick_run("baseline", pairs=1, change=lambda sample: called(sample, **steps))
    log = tuple(an_entry(each, received_ns=each.issued_ns + moments[0] * MS) for each in run.samples)
    found = phases(dataclasses.replace(run, log=log if logged else None))["baseline"]

    assert all(spent > 0 for spent in found.values())
    assert sum(found.values()) / 1e3 == pytest.approx(run.measured()[0].api_end_to_end_s)
