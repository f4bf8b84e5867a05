from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fastlane.bench import RecordedRun, Sample, check, find
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import a_cell, a_run, an_arm


def closing(client: str, closed_by: Any) -> RecordedRun:
    """Return a run in which each request of the baseline opens a connection that one side closes after it."""
    arms = (an_arm("baseline", client=client), an_arm("fastlane", client="fastlane.OpenAI"))
    run = a_run(arms=arms, with_log=True)
    log = (
        replace(
            each,
            connection_request_number=1 if "/baseline/" in (each.tag or "") else 2,
            connection_closed_by=closed_by if "/baseline/" in (each.tag or "") else None,
        )
        for each in run.log or ()
    )
    return replace(run, log=tuple(log))


@pytest.mark.parametrize(
    ("client", "closed_by", "expected_sentence"),
    [
        ("openai.OpenAI", "client", "its client closed 40 of them, because openai's synchronous client stops reading"),
        ("openai.AsyncOpenAI", "client", "its client closed 40 of them; opening is in"),
        ("openai.OpenAI", "server", "the provider closed 40 of them; opening is in"),
        ("openai.OpenAI", None, "who closed them is not known; opening is in"),
    ],
)
def test_new_connections_name_the_side_that_closed_them(client: str, closed_by: Any, expected_sentence: str) -> None:
    found = check(closing(client, closed_by))

    assert expected_sentence in about(found, "new connections", "baseline")[0].sentence
    assert "[DONE]" not in about(found, "new connections", "fastlane")[0].sentence


def failing(**shares: float) -> Any:
    """Of each arm this share of requests fails; of the copy as many as `again` says."""

    def failed(sample: Sample) -> Sample:
        share = shares.get(sample.arm, shares.get("again", 0) if sample.arm == "baseline-again" else 0)
        if sample.block % 20 >= share * 20:
            return sample
        return replace(sample, token_ns=(), output_tokens=None, finish_reason=None, error="RateLimitError 429")

    return failed


@pytest.mark.parametrize(
    ("shares", "arm", "expected"),
    [
        ({"fastlane": 0.05}, "fastlane", "passed"),
        ({"fastlane": 0.5}, "fastlane", "flagged"),
        ({"baseline": 0.5, "again": 0.5, "fastlane": 0.5}, "baseline", "flagged"),
        ({"again": 0.5}, "baseline-again", "refused"),
    ],
)
def test_arms_that_fail_more_often_are_graded(shares: dict[str, float], arm: str, expected: str) -> None:
    run = a_run(cells=(a_cell(1),), pairs=100, change=failing(**shares))
    found = check(run)

    assert level(found, "the same errors", arm) == expected
    assert not found.refusals(run.header.cells[0].name, "fastlane")


def test_arm_that_is_turned_away_less_often_has_a_result() -> None:
    """A play that reduces 429s does what it is for: its cell is valid, and the difference has an interval."""
    run = a_run(cells=(a_cell(1),), pairs=200, change=failing(baseline=0.5, again=0.5, fastlane=0.1))
    found = check(run, find(run))

    assert found.refusals() == ()
    assert not found.refusals(run.header.cells[0].name)
    finding = about(found, "the same errors")[-1]
    assert finding.level == "flagged"
    for expected in ("10 % of fastlane's requests", "50 % of baseline's", "-40 percentage points [-4", "(429)"):
        assert expected in finding.sentence
