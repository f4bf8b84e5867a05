from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.bench.checks import Checked, CheckResult
from fastlane.bench.findings import Attribution, Interval, Share, find
from fastlane.bench.recorded import RecordedRun, Sample, metric_named
from fastlane.bench.reports import KINDS, RunReport, Table, judge, parse_fail_if, report
from fastlane.bench.reports._sections import tone_of, verdict_sentence
from tests.bench.recorded_runs import a_run, an_arm, an_open_cell
from tests.bench.reports.made import a_sweep, checks_with, findings_of

NOTHING_CHECKED = Checked(results=())
CELL = "chat, 4 users"


def ab(run: RecordedRun, checked: Checked = NOTHING_CHECKED, **findings: Any) -> RunReport:
    return report("ab", run, findings_of(run, **findings), checked)


def sweep(run: RecordedRun, checked: Checked = NOTHING_CHECKED) -> RunReport:
    return report("sweep", run, findings_of(run), checked)


def table(found: RunReport, title: str) -> Table:
    return next(table for table in found.tables() if table.title.startswith(title))


def texts(found: Table) -> list[list[str]]:
    return [[entry.text for entry in row] for row in found.rows]


def by_column(found: Table, *names: str) -> list[list[str]]:
    """The texts of some columns, "-" for one that was left out."""
    at = [found.columns.index(name) if name in found.columns else None for name in names]
    return [[row[each].text if each is not None else "-" for each in at] for row in found.rows]


def test_verdict_is_a_sentence_for_each_arm_and_metric() -> None:
    lines = [line.text for line in ab(a_run(pairs=24)).verdicts]

    assert lines == [
        "fastlane: time to first token faster by 20 % [17, 23], 24 pairs",
        "fastlane: time per output token faster by 20 % [17, 23], 24 pairs",
        "fastlane: API end-to-end faster by 20 % [17, 23], 24 pairs",
    ]


FOUR_ARMS = (
    "baseline",
    an_arm("fastlane", reference="baseline"),
    an_arm("baseline-async", role="reference", client="openai.AsyncOpenAI"),
    an_arm("fastlane-async", reference="baseline-async"),
    an_arm("baseline-again", reference="baseline"),
    an_arm("baseline-async-again", reference="baseline-async"),
)


def test_verdicts_name_the_reference_where_there_are_several() -> None:
    found = report("ab", run := a_run(arms=FOUR_ARMS, pairs=24), find(run), NOTHING_CHECKED)

    subjects = [line.text.partition(" faster")[0] for line in found.verdicts]
    assert subjects[::3] == [
        "fastlane against baseline: time to first token",
        "fastlane-async against baseline-async: time to first token",
    ]
    assert [row[:2] for row in texts(table(found, "Time to first token against"))] == [
        ["baseline-again", "baseline"],
        ["fastlane", "baseline"],
        ["baseline-async-again", "baseline-async"],
        ["fastlane-async", "baseline-async"],
    ]


def test_inconclusive_verdict_follows_a_colon() -> None:
    found = ab(a_run(pairs=24), kind="no difference shown", sentence="no difference shown; 30 more pairs needed")

    text = "fastlane: time to first token: no difference shown; 30 more pairs needed (24 pairs)"
    assert found.verdicts[0].text == text


def test_effect_within_instrument_noise_is_noted() -> None:
    run = a_run(pairs=24, ratio=0.995, spread=0.001)

    assert "no more than the instrument's own noise of ±1.2 %" in ab(run).verdicts[0].text


def test_cells_are_summarized_per_arm_and_metric() -> None:
    run = a_sweep(scenarios=("chat",), arms=("baseline", "fastlane"))

    first = ab(run, checks_with("chat, 4")).verdicts[:2]

    assert first[0].text == "chat, 4: invalid: client saturated; see Checks."
    assert first[1].text == "fastlane: time to first token faster in 2 of 2 cells"


def test_ab_report_has_sections_in_order() -> None:
    found = ab(a_run(pairs=24, with_log=True))

    assert [section.title for section in found.sections] == [
        "What changed", "Where the time goes", "Cold first requests", "What it took", "Checks", "Definitions",
    ]  # fmt: skip
    assert [each.title for each in found.tables()][:2] == [
        "Time to first token (ms)",
        "Time to first token against baseline",
    ]


def test_percentiles_are_given_as_far_as_n_allows() -> None:
    found = table(ab(a_run(pairs=80, ratio=0.5)), "Time to first token")

    assert by_column(found, "arm", "n", "failed", "p99") == [
        ["baseline", "80", "0", "-"],
        ["baseline-again", "80", "0", "-"],
        ["fastlane", "80", "0", "-"],
    ]
    assert all("[" in text for (text,) in by_column(found, "p95"))
    assert found.notes == ("Too few requests: p99 needs 368.",)


def test_failed_requests_are_counted_and_named_by_error() -> None:
    def fail(sample: Sample) -> Sample:
        failed = sample.arm == "fastlane" and sample.block == 3 and sample.part == "measured"
        return replace(sample, error="APITimeoutError", token_ns=()) if failed else sample

    found = ab(a_run(pairs=24, change=fail))

    assert by_column(table(found, "Time to first token"), "n", "failed")[2] == ["20", "4"]
    assert "fastlane: of 24 requests failed 4 with APITimeoutError." in table(found, "Requests, connections").notes


def test_unknown_columns_are_dropped_with_a_note() -> None:
    work = table(ab(a_run(pairs=24)), "Requests, connections")

    assert "price (US$)" not in work.columns
    assert work.notes[-1] == "Not known: opened a connection, body bytes sent and price (US$)."


def test_phases_add_up_to_the_whole() -> None:
    for with_log, parts in ((False, 3), (True, 5)):
        for row in texts(table(ab(a_run(pairs=24, with_log=with_log)), "Mean time")):
            *spent, whole = [float(text.replace(",", "")) for text in row[2:] if text != "-"]
            assert len(spent) == parts
            assert sum(spent) == pytest.approx(whole, rel=0.01)


def test_attribution_divides_the_change_among_the_plays() -> None:
    run = a_run(pairs=24)
    shares = (
        Share(
            play="Connection(http2='prefer')",
            alone=Interval(value=-40),
            last=None,
            share=Interval(value=-45, low=-50, high=-40),
        ),
        Share(
            play="RequestEncoding", alone=None, last=Interval(value=-10), share=Interval(value=-15, low=-20, high=-10)
        ),
    )
    attribution = Attribution(
        cell=run.header.cells[0].name,
        metric="time_to_first_token",
        total=Interval(value=-60),
        shares=shares,
        interaction=Interval(value=-5, low=-9, high=-1),
    )
    findings = replace(findings_of(run), attributions=(attribution,))

    found = report("ab", run, findings, NOTHING_CHECKED)

    shown = table(found, "Time to first token: each play's part")
    assert texts(shown) == [
        ["Connection", "-40.0", "-", "-45.0 [-50.0, -40.0]", "75 %"],
        ["RequestEncoding", "-", "-10.0", "-15.0 [-20.0, -10.0]", "25 %"],
        ["all together", "-", "-", "-60.0", "100 %"],
    ]
    assert shown.notes == ("Interaction: -5.00 [-9.00, -1.00] ms.",)


def test_attribution_near_zero_has_no_shares() -> None:
    run = a_run(pairs=24)
    nothing = Interval(value=-1, low=-5, high=3)
    attribution = Attribution(
        cell=run.header.cells[0].name,
        metric="time_to_first_token",
        total=nothing,
        shares=(Share(play="Connection", alone=nothing, last=nothing, share=nothing),),
        interaction=Interval(value=0),
    )

    found = report("ab", run, replace(findings_of(run), attributions=(attribution,)), NOTHING_CHECKED)

    assert "of the whole" not in table(found, "Time to first token: each play's part").columns


def test_sweep_has_a_row_for_each_load_of_each_scenario() -> None:
    found = sweep(a_sweep())

    assert [section.title for section in found.sections] == [
        "All cells", "chat", "agent", "Cold first requests", "Checks", "Definitions",
    ]  # fmt: skip
    (agent,) = (section for section in found.sections if section.title == "agent")
    tables = [part for part in agent.parts if isinstance(part, Table)]
    assert [each.title for each in tables] == [
        "Test configuration",
        "Time to first token (ms)",
        "Time per output token (ms)",
        "Inter-token latency (ms)",
        "Token generation time (ms)",
        "API end-to-end (ms)",
        "Decode speed (tokens/s)",
        "Output throughput (tokens/s)",
    ]
    assert [row[0] for row in texts(tables[1])] == ["1", "4", "16"]
    assert tables[1].columns == (
        "users", "arm", "n", "failed", "mean", "deviation", "CV", "min", "p25", "p50", "p75", "max",
    )  # fmt: skip


def test_lengths_are_shown_as_requested_and_measured() -> None:
    def shorter(sample: Sample) -> Sample:
        return replace(sample, output_tokens=20 + sample.block % 2, least_output_tokens=200, asked_output_tokens=500)

    run = a_run(arms=("baseline",), pairs=16, change=shorter)

    rows = texts(table(sweep(run), "Test configuration"))

    assert rows[1:3] == [["output, at least", "200", "200", "200 ± 0"], ["output, at most", "500", "500", "500 ± 0"]]
    assert rows[4] == ["output, as seen", "20", "21", "20.5 ± 0.52"]


def test_open_load_is_shown_by_its_rate() -> None:
    run = a_run(cells=(an_open_cell(2.5), an_open_cell(10.0)), arms=("baseline",), pairs=16)

    found = sweep(run)

    assert by_column(table(found, "Time to first token"), "blocks/s") == [["2.5"], ["10"]]


def test_time_per_output_token_is_defined_with_its_parentheses() -> None:
    definitions = str(sweep(a_sweep(users=(1,))).sections[-1])

    assert "(E2E - TTFT) / (output tokens - 1), with these parentheses" in definitions
    assert "put TTFT inside what they call TPOT" in definitions


def test_means_add_up_as_the_definition_says() -> None:
    found = sweep(a_sweep(users=(1,), scenarios=("chat",)))

    def mean(title: str) -> float:
        return float(by_column(table(found, title), "mean")[0][0].replace(",", ""))

    assert mean("API end-to-end") - mean("Time to first token") == pytest.approx(mean("Token generation"), rel=0.02)
    assert mean("Token generation") / 31 == pytest.approx(mean("Time per output token"), rel=0.02)


def test_inter_token_latency_is_labeled_in_bands() -> None:
    found = table(sweep(a_sweep(spread=0.0, users=(1, 4, 32))), "Pace")

    assert by_column(found, "scenario", "users", "inter-token latency (ms)", "feels") == [
        ["chat", "1", "11.0", "instant"],
        ["chat", "4", "14.0", "instant"],
        ["chat", "32", "42.0", "acceptable"],
        ["agent", "1", "22.0", "acceptable"],
        ["agent", "4", "28.0", "acceptable"],
        ["agent", "32", "84.0", "sluggish"],
    ]


def test_efficiency_uses_fewest_users_and_skips_invalid() -> None:
    found = table(sweep(a_sweep(spread=0.0), checks_with("agent, 1")), "Pace")

    assert by_column(found, "scaling efficiency") == [
        ["100 %"], ["79 % [79, 79]"], ["42 % [42, 42]"], [""], ["-"], ["-"],
    ]  # fmt: skip
    assert found.rows[3][3].text == "invalid: client saturated"


def test_unknown_report_kind_is_refused() -> None:
    run = a_run(pairs=8)

    with pytest.raises(ConfigurationError, match="expected one of ab, sweep"):
        report("speed", run, findings_of(run), NOTHING_CHECKED)


def test_fail_rules_are_reported_with_outcomes() -> None:
    run = a_sweep(users=(1,))
    findings, checked = findings_of(run), checks_with("agent, 1")
    rules = [parse_fail_if("ttft_mean > 9 s"), parse_fail_if("decode_speed_p50 @ chat < 5000")]

    found = report("sweep", run, findings, checked, rules=judge(run, findings, checked, rules))

    assert [row[:2] + row[3:4] for row in texts(table(found, "What must not be"))] == [
        ["ttft_mean > 9 s", "chat, 1", "passed"],
        ["ttft_mean > 9 s", "agent, 1", "invalid"],
        ["decode_speed_p50 @ chat < 5000", "chat, 1", "failed"],
    ]


def test_every_kind_says_what_was_run_and_how_it_ended() -> None:
    run = a_run(
        arms=(an_arm("baseline"),),
        pairs=8,
        machine={"python": "3.11", "cores": 2},
        settings={"seed": 7},
        workload_source="a paper",
    )
    for kind in KINDS:
        facts = dict(report(kind, run, findings_of(run), NOTHING_CHECKED).facts)
        assert facts["Run"].endswith("ended: finished; seed 7")
        assert facts["Machine"] == "python 3.11, cores 2"
        assert facts["Started"] == "2026-01-02T03:04:05+00:00"
        assert facts["Workload"] == "chat (a paper)"
        assert facts["Requests"] == "8 measured, 1 to warm up, 1 cold"


def test_scenarios_are_sorted_by_input_length() -> None:
    def of_length(sample: Sample) -> Sample:
        return replace(sample, meant_input_tokens=1_000 if sample.cell == "long, 1" else 100)

    run = a_sweep(scenarios=("long", "short"), users=(1,), change=of_length)

    assert [section.title for section in sweep(run).sections][1:3] == ["short", "long"]


def test_invalid_figure_names_at_most_two_checks() -> None:
    run = a_run(pairs=8)
    refusals = tuple(
        CheckResult(check=check, level="refused", sentence="No.", cell=run.header.cells[0].name, arm="fastlane")
        for check in "abcd"
    )

    rows = texts(table(ab(run, Checked(results=refusals)), "Requests, connections"))
    assert rows[2][:2] == ["fastlane", "invalid: a, b and 2 more"]


def test_effect_within_noise_is_not_shown_as_good() -> None:
    run = a_run(pairs=60)
    comparison = findings_of(run).cells[0].comparison("fastlane", "time_to_first_token")
    assert comparison is not None
    assert [tone_of(comparison, band) for band in (None, 0.01, 0.5)] == ["good", "good", "warning"]
    assert verdict_sentence("fastlane", comparison, metric_named("time_to_first_token"), 0.5).endswith(
        "own noise of ±50 %"
    )


def test_interrupted_run_says_so_at_the_top() -> None:
    run = replace(a_run(pairs=8), ended="interrupted")
    assert any(line.text.startswith("Interrupted") for line in ab(run).verdicts)
