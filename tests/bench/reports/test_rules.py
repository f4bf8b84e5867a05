"""`--fail-if`: what must not be, and what becomes of a pipeline where it is."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from tests.bench.recorded_runs import a_run, saturated
from tests.bench.reports.made import a_sweep, reported, shown, written

STEADY: dict[str, Any] = {"spread": 0.0, "pairs": 20, "metrics": ("time_to_first_token",)}
"""200 ms to the first token, 10 ms a token, 510 ms in all; arm "fastlane" as `ratio` says."""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("ttft_p50 < 2.5 s", "failed"),
        ("ttft < 2,500", "failed"),
        ("ttft < 150", "passed"),
        ("ttft_p75 >= 200 ms", "failed"),
        ("decode_speed_mean>20 tokens/s", "failed"),
        ("throughput_min > 1000", "passed"),
        ("e2e_deviation > 1", "passed"),
        ("ttft_cv < 20%", "failed"),
        ("ttft_p99 > 1 ms", "not available"),
    ],
)
def test_rule_about_a_figure_is_judged(rule: str, expected: str) -> None:
    run = a_run(arms=("baseline",), **STEADY)
    result = shown(run, "-q", "--fail-if", rule)

    assert result.exit_code == (1 if expected == "failed" else 0)
    assert (f"--fail-if '{rule}', baseline, chat, 4 users: " in result.stderr) == (expected != "passed")
    assert reported(run, "--fail-if", rule).table("What must not be").rows[0][3] == expected


@pytest.mark.parametrize(
    ("rule", "ratio", "spread", "expected", "words"),
    [
        ("ttft > +5%", 1.09, 0.0, "failed", "+9 % [+9, +9]: the whole interval is beyond +5%"),
        ("ttft_p50 > 5 %", 1.09, 0.0, "failed", "the whole interval is beyond 5 %"),
        ("ttft > +5%", 1.07, 0.1, "passed", ": not shown, for the interval holds the bound"),
        ("ttft > +5%", 0.95, 0.0, "passed", "-5 % [-5, -5]"),
        ("ttft < -3%", 0.95, 0.0, "failed", "the whole interval is beyond -3%"),
    ],
)
def test_rule_fails_only_where_the_whole_interval_says_so(
    rule: str, ratio: float, spread: float, expected: str, words: str
) -> None:
    run = a_run(**{**STEADY, "arms": ("baseline", "fastlane"), "ratio": ratio, "spread": spread})
    (row,) = reported(run, "--fail-if", rule).table("What must not be").rows

    assert row[2:4] == ["fastlane", expected]
    assert words in row[4]
    assert shown(run, "-q", "--fail-if", rule).exit_code == (expected == "failed")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("ttft = 5", "cannot read"),
        ("speed < 5", "names no figure"),
        ("ttft < 5 bytes", "in ms or s, not in bytes"),
        ("ttft_cv < 20", "give it in per cent"),
        ("ttft_mean > +5%", "not known with an interval"),
        ("ttft_p25 > +5%", "p50, p90, p95, p99"),
        ("ttft @ 7B < 9 s", "no such cell: chat, 4 users"),
        ("ttft > +5%", "no arm beside its reference"),
    ],
)
def test_rule_that_cannot_be_judged_is_refused(rule: str, complaint: str) -> None:
    result = shown(a_run(arms=("baseline",), pairs=6), "--fail-if", rule)

    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_rules_of_a_sweep_are_judged_by_cell_and_in_junit() -> None:
    run = saturated(a_sweep(users=(1,)), "agent, 1")
    rules = ("--fail-if", "ttft_mean > 9 s", "--fail-if", "decode_speed_p50 @ chat < 5000")
    rows = reported(run, *rules, "--kind", "sweep").table("What must not be").rows
    document = ElementTree.fromstring(written(run, ".xml", *rules))

    assert [row[:2] + row[3:4] for row in rows] == [
        ["ttft_mean > 9 s", "chat, 1", "passed"],
        ["ttft_mean > 9 s", "agent, 1", "invalid"],
        ["decode_speed_p50 @ chat < 5000", "chat, 1", "failed"],
    ]
    first, second = document
    assert [(suite.get("name"), suite.get("failures"), suite.get("errors")) for suite in document] == [
        ("rules", "1", "1"),
        ("checks", "0", "1"),
    ]
    assert (first.get("tests"), second.get("tests")) == ("3", str(len(second)))
    assert first.find(".//error").get("message") == "invalid: client saturated: CPU"  # type: ignore[union-attr]
