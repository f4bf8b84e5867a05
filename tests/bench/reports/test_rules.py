from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.findings import CellFindings, Findings, Interval
from fastlane.bench.recorded import METRICS, RecordedRun
from fastlane.bench.reports import Rule, fails, judge, junit, parse_fail_if
from fastlane.bench.reports._rules import STATISTICS
from tests.bench.recorded_runs import a_run, an_arm
from tests.bench.reports.made import a_sweep, checks_with, findings_of

CELL = "chat, 4 users"


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "operator", "value", "scope"),
    [
        ("ttft_p95 < 2.5 s", "time_to_first_token", "p95", "<", 2500.0, None),
        ("ttft < 2,500", "time_to_first_token", "p50", "<", 2500.0, None),
        ("decode_speed_mean>20 tokens/s", "decode_speed", "mean", ">", 20.0, None),
        ("e2e_max <= 900ms", "api_end_to_end", "max", "<=", 900.0, None),
        ("ttft_cv < 20%", "time_to_first_token", "cv", "<", 0.2, None),
        ("ttft_mean @ 128 -> 64 < 2500 ms", "time_to_first_token", "mean", "<", 2500.0, "128 -> 64"),
    ],
)
def test_rule_about_a_figure_is_read(
    text: str, metric: str, statistic: str, operator: str, value: float, scope: str | None
) -> None:
    rule = parse_fail_if(text)

    assert (rule.metric, rule.statistic, rule.operator, rule.scope) == (metric, statistic, operator, scope)
    assert rule.value == pytest.approx(value)
    assert not rule.relative


@pytest.mark.parametrize(
    ("text", "statistic", "value"),
    [("ttft_p50 > +5%", "p50", 0.05), ("ttft > 5 %", "typical", 0.05), ("decode_speed < -3%", "typical", -0.03)],
)
def test_rule_about_a_change_is_read(text: str, statistic: str, value: float) -> None:
    rule = parse_fail_if(text)

    assert (rule.statistic, rule.relative) == (statistic, True)
    assert rule.value == pytest.approx(value)


@given(st.sampled_from(sorted(METRICS)), st.sampled_from(STATISTICS), st.floats(0, 1e6), st.sampled_from("<>"))
def test_every_metric_and_statistic_can_be_a_rule(metric: str, statistic: str, value: float, operator: str) -> None:
    rule = parse_fail_if(f"{metric}_{statistic} {operator} {value:f}{'%' if statistic == 'cv' else ''}")

    assert (rule.metric, rule.statistic, rule.operator) == (metric, statistic, operator)
    assert rule.value == pytest.approx(value / 100 if statistic == "cv" else value, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ttft", "cannot read"),
        ("ttft = 5", "cannot read"),
        ("speed < 5", "names no figure"),
        ("ttft_p33 < 5", "names no figure"),
        ("ttft < 5 bytes", "in ms or s, not in bytes"),
        ("ttft_cv < 20", "give it in per cent"),
    ],
)
def test_unreadable_fail_rule_names_expected_syntax(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_fail_if(text)


@pytest.mark.parametrize(
    ("text", "complaint"), [("ttft_mean > +5%", "not known with an interval"), ("ttft_p25 > +5%", "p50, p90, p95, p99")]
)
def test_only_changes_with_an_interval_can_be_ruled_out(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_fail_if(text)


def test_rule_about_an_unknown_scenario_is_refused() -> None:
    run = a_sweep(users=(1,))

    with pytest.raises(ConfigurationError, match=r"no such cell: chat, 1 \| agent, 1"):
        judge(run, findings_of(run), checks_with(), [parse_fail_if("ttft @ 7B < 9 s")])


def judged(low: float, high: float, rule: str, **checks: Any) -> tuple[RecordedRun, Any]:
    run = a_run(arms=("baseline", "fastlane"))
    findings = findings_of(run)
    cell = findings.cells[0]
    changed = tuple(
        replace(each, typical=Interval(value=(low + high) / 2, low=low, high=high)) for each in cell.comparisons
    )
    findings = Findings(cells=(replace_comparisons(cell, changed),))
    return run, judge(run, findings, checks_with(*checks.get("refused", ())), [parse_fail_if(rule)])


def replace_comparisons(cell: CellFindings, comparisons: Any) -> CellFindings:
    return replace(cell, comparisons=comparisons)


@pytest.mark.parametrize(
    ("low", "high", "result", "words"),
    [
        (1.06, 1.12, "failed", "+9 % [+6, +12]: the whole interval is beyond +5%"),
        (1.02, 1.12, "passed", "not shown"),
        (0.90, 0.99, "passed", "-5.5 % [-10, -1]"),
    ],
)
def test_rule_fails_only_where_the_whole_interval_says_so(low: float, high: float, result: str, words: str) -> None:
    _, judgements = judged(low, high, "ttft > +5%")

    assert [each.result for each in judgements] == [result]
    assert words in judgements[0].sentence
    assert fails(judgements) == (result == "failed")


def test_invalid_cell_does_not_pass() -> None:
    run, judgements = judged(0.9, 0.99, "ttft > +5%", refused=(CELL,))

    assert [each.result for each in judgements] == ["invalid"]
    assert fails(judgements)
    errors = ElementTree.fromstring(junit(run, checks_with(CELL), judgements)).findall(".//error")
    assert [error.get("message") for error in errors] == ["invalid: client saturated", "No core was left."]


def test_figure_that_this_n_does_not_allow_is_skipped() -> None:
    run = a_run(arms=("baseline",))

    judgements = judge(run, findings_of(run), checks_with(), [parse_fail_if("ttft_p99 > 1 ms")])

    assert [each.result for each in judgements] == ["not available"]
    assert not fails(judgements)


def test_rule_about_a_change_wants_two_arms() -> None:
    run = a_run(arms=("baseline",))

    with pytest.raises(ConfigurationError, match="no arm beside its reference"):
        judge(run, findings_of(run), checks_with(), [parse_fail_if("ttft > +5%")])


def test_rules_name_the_reference_where_there_are_several() -> None:
    arms = (
        "baseline",
        "fastlane",
        an_arm("baseline-async", role="reference"),
        an_arm("fastlane-async", reference="baseline-async"),
    )
    run = a_run(arms=arms)
    judgements = judge(run, findings_of(run), checks_with(), [parse_fail_if("ttft > -99%")])

    assert [(each.arm, each.sentence.partition(" against ")[2]) for each in judgements] == [
        ("fastlane", "baseline: the whole interval is beyond -99%"),
        ("fastlane-async", "baseline-async: the whole interval is beyond -99%"),
    ]


def test_junit_counts_what_it_holds() -> None:
    run, judgements = judged(1.06, 1.12, "ttft > +5%")

    document = ElementTree.fromstring(junit(run, checks_with(), judgements))

    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in document] == [
        ("rules", "1", "1"),
        ("checks", "1", "0"),
    ]


def test_rule_says_of_itself_what_it_bounds() -> None:
    rule: Rule = parse_fail_if("e2e_p90 >= 3 s")

    assert (rule.share, rule.holds(3000.0), rule.holds(2999.0)) == (0.9, True, False)
