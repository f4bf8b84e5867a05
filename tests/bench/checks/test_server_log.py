from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from fastlane.bench import RecordedRun, Sample, check
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import MS, a_run, an_entry


def with_log(run: RecordedRun, **fields: Any) -> RecordedRun:
    """The run with the provider's log of its requests, with these fields for the arm "fastlane"."""
    log = tuple(an_entry(each, **(fields if each.arm == "fastlane" else {})) for each in run.samples)
    return replace(run, log=log)


def test_request_missing_on_one_side_is_refused() -> None:
    run = a_run(with_log=True)
    stranger = replace(run.log[5], tag="baseline/0/9") if run.log else None
    assert run.log is not None
    assert stranger is not None
    found = check(replace(run, log=(*run.log[1:], stranger)))

    found_about = [each.sentence for each in about(found, "requests on both sides", None)]
    assert len(found_about) == 2
    assert run.samples[0].tag in found_about[0]
    assert "baseline/0/9" in found_about[1]
    assert not any(found.valid(cell.name) for cell in run.header.cells)


def test_request_lost_with_killed_session_is_not_refused() -> None:
    run = a_run(with_log=True)
    assert run.log is not None
    killed = replace(run, log=run.log[1:], unlogged=(run.log[0].tag or "",))
    found = check(killed)

    assert all(each.check != "requests on both sides" for each in found.refusals())
    (found_about,) = about(found, "requests on both sides", None)
    assert "the account of 1 more was lost" in found_about.sentence


def test_unsent_failed_request_is_not_missing_in_log() -> None:
    run = a_run(with_log=True)
    assert run.log is not None
    failed = replace(run.samples[0], error="APIConnectionError", response_ns=None, token_ns=array("q"))
    log = tuple(entry for entry in run.log if entry.tag != failed.tag)
    found = check(replace(run, samples=(failed, *run.samples[1:]), log=log))

    assert all(each.check != "requests on both sides" for each in found.refusals())


def test_logged_request_without_tag_is_refused() -> None:
    run = a_run(with_log=True)
    assert run.log is not None
    found = check(replace(run, log=(*run.log, replace(run.log[0], tag=None, request_id="req_1"))))

    assert "(no tag: req_1)" in found.refusals()[0].sentence


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"output_tokens": 33}, "counts by the server's log", "refused"),
        ({"cached_tokens": 128}, "counts by the server's log", "refused"),
        ({"bytes_in": 1_990}, "counts by the server's log", "flagged"),
        ({}, "counts by the server's log", "passed"),
    ],
)
def test_counts_are_held_against_the_log(fields: dict[str, Any], name: str, expected: str) -> None:
    def recorded(sample: Sample) -> Sample:
        attempt = {"connection_reused": True, "request_body_bytes": 2_000}
        return replace(sample, call={"attempts": [attempt], "metrics": {"time_to_first_token_s": None}})

    assert level(check(with_log(a_run(change=recorded), **fields)), name) == expected


def moved(run: RecordedRun, by_ns: int) -> RecordedRun:
    """The run with a log in which all tokens were sent that much earlier."""
    assert run.log is not None
    log = tuple(replace(each, token_ns=tuple(stamp - by_ns for stamp in each.token_ns)) for each in run.log)
    return replace(run, log=log)


@pytest.mark.parametrize(
    ("by_ms", "expected"),
    [(0, "passed"), (12, "flagged"), (100, "refused"), (-3, "refused")],
    ids=["on time", "a busy machine", "half of the figure", "before it arrived"],
)
def test_first_tokens_are_timed_on_arrival(by_ms: int, expected: str) -> None:
    found = check(moved(a_run(with_log=True), by_ms * MS))

    assert level(found, "times by the server's log", "baseline") == expected


def test_last_try_of_a_retried_request_counts() -> None:
    run = a_run(with_log=True)
    assert run.log is not None
    first_try = replace(run.log[0], token_ns=(), output_tokens=0)
    found = check(replace(run, log=(first_try, *run.log)))

    assert level(found, "counts by the server's log") == "passed"
    (found_about,) = about(found, "requests on both sides", None)
    assert f"in {len(run.log) + 1} tries" in found_about.sentence


def test_provider_without_a_log_is_not_checked_by_it() -> None:
    assert level(check(a_run()), "requests on both sides", None) == "not checked"
