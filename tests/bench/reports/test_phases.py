"""Where the time goes: the same phases for every arm of a run, and nothing lost between them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.recorded import RecordedRun, Sample
from fastlane.bench.reports._material import TITLES, ArmPhases, PhaseSources, phases, spent
from tests.bench.recorded_runs import MS, a_run, an_entry

RECORDS = PhaseSources(records=True, log=False, heads=True)


def call(sample: Sample, **wire: int) -> dict[str, Any]:
    stamps = {name: sample.issued_ns + value * MS for name, value in wire.items()}
    return {"attempts": [{"wire": {"started_ns": sample.issued_ns + 2 * MS, **stamps}, "error": None}]}


def a_request() -> Sample:
    return a_run(pairs=1, spread=0.0, arms=("baseline",)).measured()[0]


def by_name(arm: ArmPhases) -> dict[str, int]:
    return {TITLES[key]: round(spent) for key, spent in arm.milliseconds.items()}


def with_samples(recorded: RecordedRun, samples: tuple[Sample, ...]) -> RecordedRun:
    return dataclasses.replace(recorded, samples=samples)


def test_call_record_splits_connection_setup_into_phases() -> None:
    sample = a_request()
    wire = {"dns_started_ns": 5, "dns_ended_ns": 9, "connect_started_ns": 9, "connect_ended_ns": 30,
            "tls_started_ns": 30, "tls_ended_ns": 60, "send_started_ns": 61, "send_ended_ns": 90}  # fmt: skip

    found = spent(dataclasses.replace(sample, call=call(sample, **wire)), RECORDS)

    assert {name: spent_ns // MS for name, spent_ns in found.items()} == {
        "prepare": 2, "queue": 4, "dns": 4, "connect": 21, "tls": 30, "send": 29, "server": 110, "decode": 310,
    }  # fmt: skip


def test_arms_with_and_without_records_get_the_same_phases() -> None:
    run = a_run(pairs=4, spread=0.0, arms=("baseline", "fastlane"), with_log=False)
    samples = tuple(
        dataclasses.replace(each, call=call(each, send_started_ns=3, send_ended_ns=4))
        if each.arm == "fastlane"
        else each
        for each in run.measured()
    )
    log = tuple(
        an_entry(each, received_ns=each.issued_ns + 70 * MS, body_complete_ns=each.issued_ns + 90 * MS)
        for each in samples
    )
    header = dataclasses.replace(run.header, one_way_s=0.02)
    [(baseline, fastlane)] = phases(dataclasses.replace(run, header=header, samples=samples, log=log)).values()

    assert by_name(baseline)["client and connection"] == 50
    assert by_name(fastlane)["client and connection"] == 3
    assert by_name(baseline).keys() == by_name(fastlane).keys()
    assert "TLS" not in by_name(fastlane)


def test_phases_without_server_log_are_the_common_ones() -> None:
    run = a_run(pairs=4, spread=0.0, arms=("baseline", "fastlane"), with_log=False)
    recorded = tuple(
        dataclasses.replace(each, call=call(each, send_started_ns=3, send_ended_ns=4))
        if each.arm == "fastlane"
        else each
        for each in run.measured()
    )
    for arm in phases(with_samples(run, recorded))[run.header.cells[0].name]:
        assert list(by_name(arm)) == ["until the head", "head to first token", "generation"]
    blind = tuple(dataclasses.replace(each, response_ns=None) for each in recorded)
    for arm in phases(with_samples(run, blind))[run.header.cells[0].name]:
        assert list(by_name(arm)) == ["until the first token", "generation"]


def test_failed_requests_have_no_phases() -> None:
    run = a_run(pairs=4, arms=("baseline",))
    failed = tuple(dataclasses.replace(each, error="X") for each in run.measured())
    assert set(phases(with_samples(run, failed)).values()) == {()}


@given(st.lists(st.integers(-5, 400), min_size=8, max_size=8), st.booleans())
def test_phases_are_positive_and_sum_to_end_to_end(moments: list[int], logged: bool) -> None:
    sample = a_request()
    names = [f"{phase}_{end}_ns" for phase in ("dns", "connect", "tls", "send") for end in ("started", "ended")]
    recorded = dataclasses.replace(sample, call=call(sample, **dict(zip(names, moments, strict=True))))
    entry = an_entry(sample, received_ns=sample.issued_ns + moments[0] * MS)

    found = spent(recorded, dataclasses.replace(RECORDS, log=logged), entry, way_ns=moments[1] * MS)

    assert all(spent_ns > 0 for spent_ns in found.values())
    assert sum(found.values()) / 1e9 == pytest.approx(sample.api_end_to_end_s)
