from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.bench.checks import Checked, CheckResult
from fastlane.bench.findings import Attribution, Interval, Share, find
from fastlane.bench.recorded import RecordedRun, Sample, metric_named
from fastlane.bench.reports import KINDS, Chart, Heading, ReportTable, RunReport, parse_target, report
from fastlane.bench.reports._ab import tone_of, verdict_sentence
from fastlane.bench.reports._blocks import block_kind
from tests.bench.recorded_runs import a_run, an_arm, an_open_cell
from tests.bench.reports.made import a_sweep, checks_with, findings_of, stretched

NOTHING_CHECKED = Checked(results=())
CELL = "chat, 4 users"


def ab(run: RecordedRun, checked: Checked = NOTHING_CHECKED, **findings: Any) -> RunReport:
    return report("ab", run, findings_of(run, **findings), checked)


def table(found: RunReport, name: str) -> ReportTable:
    return next(table for table in found.tables() if table.name == name)


def texts(found: ReportTable) -> list[list[str]]:
    return [[entry.text for entry in row.entries] for row in found.rows]


def structure(found: RunReport) -> list[str]:
    """The report's blocks in order: headings by their text, tables and charts by their names."""
    names = []
    for block in found.blocks:
        match block:
            case Heading():
                names.append(f"{'#' * block.level} {block.text}")
            case ReportTable() | Chart():
                names.append(f"{block_kind(block)} {block.name}")
            case _:
                names.append(block_kind(block))
    return names


def test_a_verdict_is_a_sentence_for_each_arm_and_metric() -> None:
    lines = [line.text for line in ab(a_run(pairs=24)).verdicts]

    assert lines == [
        "fastlane: time to first token faster by 20 % [17, 23], 24 pairs",
        "fastlane: time per output token faster by 20 % [17, 23], 24 pairs",
        "fastlane: API end-to-end faster by 20 % [17, 23], 24 pairs",
        "Instrument noise (A/A): time to first token ±1.2 %, time per output token ±1.2 %, API end-to-end ±1.2 %",
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

    said = [line.text.partition(" faster")[0].partition(" ±")[0] for line in found.verdicts]
    assert said[::3] + said[7:] == [
        "fastlane against baseline: time to first token",
        "fastlane-async against baseline-async: time to first token",
        "Instrument noise (A/A, baseline): time to first token",
        "Instrument noise (A/A, baseline-async): time to first token",
    ]
    assert [row[:2] for row in texts(table(found, "time_to_first_token_change"))] == [
        ["baseline-again", "baseline"],
        ["fastlane", "baseline"],
        ["baseline-async-again", "baseline-async"],
        ["fastlane-async", "baseline-async"],
    ]


def test_connections_are_explained_at_the_top_where_an_arm_reopens_them() -> None:
    sentence = "baseline opened a connection for 40 of 40 requests: its client closed 40 of them"
    checked = Checked(
        results=(
            CheckResult(check="new connections", level="flagged", sentence=sentence, cell=CELL, arm="baseline"),
            CheckResult(check="new connections", level="flagged", sentence="saved", cell=CELL, arm="fastlane"),
        )
    )

    assert f"Connections: {sentence}." in [line.text for line in ab(a_run(), checked).verdicts]
    assert not any("Connections" in line.text for line in ab(a_run()).verdicts)


def test_a_first_request_slower_than_the_references_says_so() -> None:
    def slow(sample: Sample) -> Sample:
        late_ns = 50_000_000 if sample.cold and sample.arm == "fastlane" else 0
        return replace(sample, token_ns=tuple(stamp + late_ns for stamp in sample.token_ns))

    run = a_run(ratio=1.0, spread=0.0, change=slow)
    notes = table(report("ab", run, find(run), NOTHING_CHECKED), "cold").notes

    assert "fastlane's first token came 50.0 ms later than baseline's" in notes[1]
    assert len(table(ab(a_run()), "cold").notes) == 1


def test_what_shows_no_difference_is_said_after_a_colon() -> None:
    found = ab(a_run(pairs=24), kind="no difference shown", sentence="no difference shown; 30 more pairs needed")

    text = "fastlane: time to first token: no difference shown; 30 more pairs needed (24 pairs)"
    assert found.verdicts[0].text == text


def test_an_effect_within_the_instruments_own_noise_says_so() -> None:
    run = a_run(pairs=24, ratio=0.995, spread=0.001)

    assert "no more than the instrument's own noise of ±1.2 %" in ab(run).verdicts[0].text


def test_without_a_copy_of_the_reference_the_noise_is_not_known() -> None:
    assert "Instrument noise: not known" in ab(a_run(arms=("baseline", "fastlane"))).verdicts[-1].text


def test_several_cells_are_summed_up_in_one_sentence_for_each_arm_and_metric() -> None:
    run = a_sweep(scenarios=("chat",), arms=("baseline", "fastlane"))

    first = ab(run, checks_with("chat, 4")).verdicts[:2]

    assert first[0].text == "chat, 4: invalid: client saturated; see Checks."
    assert first[1].text.startswith("fastlane: time to first token faster in 2 of 2 cells (-")


def test_the_report_of_arms_beside_each_other_has_its_parts_in_order() -> None:
    found = ab(a_run(pairs=24, with_log=True))

    assert structure(found) == [
        "## What changed",
        "chart forest",
        "### Time to first token",
        "table time_to_first_token",
        "table time_to_first_token_change",
        "chart time_to_first_token_distribution",
        "### Time per output token",
        "table time_per_output_token",
        "table time_per_output_token_change",
        "chart time_per_output_token_distribution",
        "### API end-to-end",
        "table api_end_to_end",
        "table api_end_to_end_change",
        "chart api_end_to_end_distribution",
        "## Where the time goes",
        "table phases",
        "chart waterfall",
        "## Cold first requests",
        "table cold",
        "## What it took",
        "table work",
        "## Checks",
        "paragraph",
        "## Definitions",
        "definitions",
    ]


def test_percentiles_are_given_as_far_as_n_allows() -> None:
    found = ab(a_run(pairs=80, ratio=0.5))

    rows = texts(table(found, "time_to_first_token"))
    assert [row[:3] for row in rows] == [
        ["baseline", "80", "0"],
        ["baseline-again", "80", "0"],
        ["fastlane", "80", "0"],
    ]
    assert rows[0][-1] == "wants n 368"
    assert "[" in rows[0][-2]


def test_failed_requests_are_counted_beside_the_figures_and_by_their_error() -> None:
    def fail(sample: Sample) -> Sample:
        failed = sample.arm == "fastlane" and sample.block == 3 and sample.part == "measured"
        return replace(sample, error="APITimeoutError", token_ns=()) if failed else sample

    found = ab(a_run(pairs=24, change=fail))

    assert texts(table(found, "time_to_first_token"))[2][1:3] == ["20", "4"]
    assert "fastlane: of 24 requests failed 4 with APITimeoutError." in table(found, "work").notes


def test_a_columns_figures_that_nobody_told_are_left_out_with_a_note() -> None:
    work = table(ab(a_run(pairs=24)), "work")

    assert "price" not in [column.title for column in work.columns]
    assert work.notes[-1] == "Not known: opened a connection, body bytes sent and price."


def test_phases_add_up_to_the_whole() -> None:
    for with_log in (False, True):
        rows = table(ab(a_run(pairs=24, with_log=with_log)), "phases").rows
        for row in rows:
            values = [entry.value for entry in row.entries[2:]]
            numbers = [value for value in values if isinstance(value, float)]
            assert sum(numbers[:-1]) == pytest.approx(numbers[-1])
            assert len(numbers) == (6 if with_log else 4)


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

    rows = texts(next(table for table in found.tables() if table.name.startswith("attribution")))
    assert rows == [
        ["Connection", "-40.0", "-", "-45.0 [-50.0, -40.0]", "75 %"],
        ["RequestEncoding", "-", "-10.0", "-15.0 [-20.0, -10.0]", "25 %"],
        ["all together", "-", "-", "-60.0", "100 %"],
    ]
    caption = next(chart.caption for chart in found.charts() if chart.name == "attribution")
    assert caption.endswith("the largest part is that of Connection: -45.0 [-50.0, -40.0] ms.")


def test_a_whole_that_may_be_nothing_is_not_divided_into_shares_of_it() -> None:
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

    shown = next(table for table in found.tables() if table.name.startswith("attribution"))
    assert "of the whole" not in [column.title for column in shown.columns]


def test_the_report_by_users_has_a_row_for_each_load() -> None:
    run = a_sweep()

    found = report("load", run, findings_of(run), NOTHING_CHECKED)

    assert structure(found) == [
        *(
            f"{kind}{scenario}"
            for scenario in ("chat", "agent")
            for kind in (
                "## ",
                "table configuration_",
                "table api_end_to_end_",
                "table inter_token_latency_",
                "table time_to_first_token_",
                "table output_throughput_",
                "table together_",
            )
        ),
        "## By users",
        "chart api_end_to_end_by_users",
        "chart inter_token_latency_by_users",
        "chart time_to_first_token_by_users",
        "chart output_throughput_by_users",
        "## Checks",
        "paragraph",
        "## Definitions",
        "definitions",
    ]
    shown = table(found, "time_to_first_token_agent")
    assert [row[0] for row in texts(shown)] == ["1", "4", "16"]
    assert shown.heading == "Time to first token (ms)"
    assert shown.column_headings == ("users", "n", "failed", "p25", "p50", "p75", "p95", "p99")


def test_lengths_are_shown_as_meant_and_as_seen() -> None:
    def shorter(sample: Sample) -> Sample:
        return replace(sample, output_tokens=20 + sample.block % 2, least_output_tokens=200, asked_output_tokens=500)

    run = a_run(arms=("baseline",), pairs=16, change=shorter)

    rows = texts(table(report("load", run, findings_of(run), NOTHING_CHECKED), "configuration_chat"))

    assert rows[1:3] == [["output, at least", "200", "200", "200 ± 0"], ["output, at most", "500", "500", "500 ± 0"]]
    assert rows[4] == ["output, as seen", "20", "21", "20.5 ± 0.52"]


def test_an_open_load_is_shown_by_its_rate() -> None:
    run = a_run(cells=(an_open_cell(2.5), an_open_cell(10.0)), arms=("baseline",), pairs=16)

    found = report("load", run, findings_of(run), NOTHING_CHECKED)

    shown = table(found, "time_to_first_token_chat")
    assert shown.columns[0].heading == "rate (blocks/s)"
    assert [row[0] for row in texts(shown)] == ["2.5", "10"]
    assert "at 2.5 blocks/s" in found.verdicts[0].text


def lengths(run: RecordedRun, checked: Checked = NOTHING_CHECKED) -> RunReport:
    return report("lengths", run, findings_of(run), checked)


def test_a_factor_is_bounded_by_both_intervals() -> None:
    run = a_sweep(scenarios=("short", "long"), users=(1,), pairs=40)

    found = lengths(run)

    entry = table(found, "scaling_time_to_first_token").rows[1].entries[-1]
    assert isinstance(entry.value, float)
    assert entry.low is not None
    assert entry.high is not None
    assert entry.low < entry.value < entry.high
    assert found.verdicts[0].text.startswith("Time to first token (p50) at long: 2")
    assert "its bounds exclude 1" in found.verdicts[0].text


def test_input_that_grows_more_than_the_time_is_said_to_scale_less_than_in_proportion() -> None:
    def longer(sample: Sample) -> Sample:
        return replace(stretched(sample, 2), input_tokens=4_000) if sample.cell == "long, 1" else sample

    run = a_sweep(scenarios=("short", "long"), users=(1,), pairs=40, change=longer)

    assert "times the input (less than in proportion)" in lengths(run).verdicts[0].text


def test_nothing_follows_from_too_few_requests() -> None:
    run = a_sweep(scenarios=("short", "long"), users=(1,), pairs=5)

    found = lengths(run)

    assert not [line for line in found.verdicts if "times that of" in line.text]
    assert texts(table(found, "scaling_api_end_to_end"))[1][2:] == ["-", "-"]


def test_no_other_length_stands_in_for_a_first_one_that_is_invalid() -> None:
    run = a_sweep(scenarios=("short", "middle", "long"), users=(1,))

    found = lengths(run, checks_with("short, 1"))

    rows = table(found, "scaling_time_to_first_token").rows
    assert rows[0].refused == "invalid: client saturated"
    assert [row.entries[-1].text for row in rows[1:]] == ["-", "-"]


def test_time_per_output_token_is_defined_with_its_parentheses() -> None:
    definitions = lengths(a_sweep(users=(1,))).blocks[-1]

    assert "(E2E - TTFT) / (output tokens - 1), with these parentheses" in str(definitions)
    assert "put TTFT inside what they call TPOT" in str(definitions)


def test_means_add_up_as_the_definition_says() -> None:
    rows = table(lengths(a_sweep(users=(1,))), "figures_chat, 1").rows
    mean = {row.entries[0].text: row.entries[2].value for row in rows}
    numbers = {name: value for name, value in mean.items() if isinstance(value, float)}

    generated = numbers["API end-to-end (ms)"] - numbers["Time to first token (ms)"]
    assert generated == pytest.approx(numbers["Token generation time (ms)"])
    assert generated / 31 == pytest.approx(numbers["Time per output token (ms)"])


def scaling(run: RecordedRun, checked: Checked = NOTHING_CHECKED) -> RunReport:
    return report("scaling", run, findings_of(run), checked)


def test_best_and_worst_are_stated_with_their_places() -> None:
    lines = [line.text for line in scaling(a_sweep(spread=0.0)).verdicts]

    worst, feels = "(agent, 16 users)", "The best is instant, the worst acceptable."
    assert lines == [
        f"Decode speed (p50) of each user ranges from 90.9 tokens/s (chat, 1 user) down to 19.2 tokens/s {worst}.",
        f"Inter-token latency (p50) of each user ranges from 11.0 ms (chat, 1 user) up to 52.0 ms {worst}. {feels}",
        "Time to first token (p50) of each user ranges from 220 ms (chat, 1 user) up to 1,040 ms (agent, 16 users).",
        "At 16 users, scaling efficiency is 42 % everywhere.",
    ]


def test_bands_say_how_a_stream_feels() -> None:
    rows = texts(table(scaling(a_sweep(spread=0.0, users=(1, 4, 32))), "pace"))

    assert [[*row[:2], row[3], row[5]] for row in rows] == [
        ["chat", "1", "11.0", "instant"],
        ["chat", "4", "14.0", "instant"],
        ["chat", "32", "42.0", "acceptable"],
        ["agent", "1", "22.0", "acceptable"],
        ["agent", "4", "28.0", "acceptable"],
        ["agent", "32", "84.0", "sluggish"],
    ]


def test_efficiency_is_of_the_fewest_users_and_gone_where_these_are_invalid() -> None:
    rows = table(scaling(a_sweep(spread=0.0), checks_with("agent, 1")), "pace").rows

    assert [row.refused or row.entries[-1].text for row in rows] == [
        "100 %",
        "79 % [79, 79]",
        "42 % [42, 42]",
        "invalid: client saturated",
        "-",
        "-",
    ]


def test_two_ends_whose_intervals_overlap_are_not_called_different() -> None:
    def alike(sample: Sample) -> Sample:
        return sample

    run = a_sweep(scenarios=("chat",), users=(1, 2), pairs=24, spread=0.3, change=alike)

    assert "All of it is instant. The intervals of the two overlap: no difference shown." in (
        scaling(run).verdicts[1].text
    )


def test_targets_go_only_with_lengths_and_a_kind_has_to_be_known() -> None:
    run = a_run(pairs=8)

    with pytest.raises(ConfigurationError, match="targets go with the report 'lengths'"):
        report("ab", run, findings_of(run), NOTHING_CHECKED, targets=[parse_target("ttft < 5 s")])
    with pytest.raises(ConfigurationError, match="expected one of ab, load, lengths, scaling"):
        report("speed", run, findings_of(run), NOTHING_CHECKED)  # type: ignore[arg-type]


def test_every_kind_says_what_was_run_and_how_it_ended() -> None:
    run = a_run(
        arms=(an_arm("baseline"),),
        pairs=8,
        machine={"python": "3.11", "cores": 2},
        settings={"seed": 7},
        workload_source="a paper",
    )
    for kind in KINDS:
        facts = {fact.label: fact.text for fact in report(kind, run, findings_of(run), NOTHING_CHECKED).facts}
        assert facts["Run"].endswith("ended: finished; seed 7")
        assert facts["Machine"] == "python 3.11, cores 2"
        assert facts["Started"] == "2026-01-02T03:04:05+00:00"
        assert facts["Workload"] == "chat (a paper)"
        assert facts["Requests"] == "8 measured, 1 to warm up, 1 cold"


def test_scenarios_stand_from_the_shortest_input_to_the_longest() -> None:
    def of_length(sample: Sample) -> Sample:
        return replace(sample, meant_input_tokens=1_000 if sample.cell == "long, 1" else 100)

    run = a_sweep(scenarios=("long", "short"), users=(1,), change=of_length)

    assert [heading for heading in structure(lengths(run)) if heading.startswith("## ")][:2] == ["## short", "## long"]


def test_the_place_of_a_figure_names_two_checks_at_most() -> None:
    run = a_run(pairs=8)
    refusals = tuple(
        CheckResult(check=check, level="refused", sentence="No.", cell=run.header.cells[0].name, arm="fastlane")
        for check in "abcd"
    )

    assert [row.refused for row in table(ab(run, Checked(results=refusals)), "work").rows if row.refused] == [
        "invalid: a, b and 2 more"
    ]


def test_what_is_no_larger_than_the_instrument_s_noise_is_nothing_to_be_glad_of() -> None:
    run = a_run(pairs=60)
    comparison = findings_of(run).cells[0].comparison("fastlane", "time_to_first_token")
    assert comparison is not None
    assert [tone_of(comparison, band) for band in (None, 0.01, 0.5)] == ["good", "good", "warning"]
    assert verdict_sentence("fastlane", comparison, metric_named("time_to_first_token"), 0.5).endswith(
        "own noise of ±50 %"
    )


def test_an_interrupted_run_says_so_at_the_top() -> None:
    run = replace(a_run(pairs=8), ended="interrupted")
    assert any(line.text.startswith("Interrupted") for line in ab(run).verdicts)
