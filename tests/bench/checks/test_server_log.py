from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from fastlane.bench import RecordedRun, Sample, check
from fastlane.emulator import RequestLog
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import MS, a_run, an_entry

BOTH = "requests on both sides"


def log_of(run: RecordedRun) -> tuple[RequestLog, ...]:
    assert run.log is not None
    return run.log


def with_log(run: RecordedRun, **fields: Any) -> RecordedRun:
    """The run with the provider's log of its requests, with these fields for the arm "fastlane"."""
    log = tuple(an_entry(each, **(fields if each.arm == "fastlane" else {})) for each in run.samples)
    return replace(run, log=log)


def test_request_missing_on_one_side_is_refused() -> None:
    run = a_run(with_log=True)
    log = log_of(run)
    found = check(replace(run, log=(*log[1:], replace(log[5], tag="baseline/0/9"))))

    missing, strange = [each.sentence for each in about(found, BOTH, None)]
    assert run.samples[0].tag in missing
    assert "baseline/0/9" in strange
    assert all(found.refusals(cell.name) for cell in run.header.cells)
    untagged = check(replace(run, log=(*log, replace(log[0], tag=None, request_id="req_1"))))
    assert "(no tag: req_1)" in untagged.refusals()[0].sentence


def test_request_that_left_no_entry_is_not_refused() -> None:
    run = a_run(with_log=True)
    log = log_of(run)
    killed = check(replace(run, log=log[1:], unlogged=(log[0].tag or "",)))
    failed = replace(run.samples[0], error="APIConnectionError", response_ns=None, token_ns=array("q"))
    unsent = replace(
        run, samples=(failed, *run.samples[1:]), log=tuple(entry for entry in log if entry.tag != failed.tag)
    )

    assert all(each.check != BOTH for found in (killed, check(unsent)) for each in found.refusals())
    assert "the account of 1 more was lost" in about(killed, BOTH, None)[0].sentence
    assert level(check(a_run()), BOTH, None) == "not checked"


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
    log = (replace(each, token_ns=tuple(stamp - by_ns for stamp in each.token_ns)) for each in log_of(run))
    return replace(run, log=tuple(log))


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
    log = log_of(run)
    found = check(replace(run, log=(replace(log[0], token_ns=(), output_tokens=0), *log)))

    assert level(found, "counts by the server's log") == "passed"
    assert f"in {len(log) + 1} tries" in about(found, BOTH, None)[0].sentence
