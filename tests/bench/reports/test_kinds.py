"""What the two kinds of a report show, in the Markdown that the command line writes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fastlane.bench import Sample
from tests.bench.recorded_runs import a_run, an_arm, an_open_cell, saturated
from tests.bench.reports.made import SATURATED, a_sweep, reported, written

SWEEP = "--kind=sweep"
FIRST = ("time_to_first_token",)


def test_verdict_is_a_sentence_for_each_arm_and_metric() -> None:
    lines = reported(a_run(pairs=24)).verdicts

    assert [re.sub(r"\d+ % \[\d+, \d+\]", "…", line) for line in lines] == [
        "fastlane: time to first token faster by …, 24 pairs",
        "fastlane: time per output token faster by …, 24 pairs",
        "fastlane: API end-to-end faster by …, 24 pairs",
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
    found = reported(a_run(arms=FOUR_ARMS, pairs=24, metrics=FIRST))

    assert [line.partition(" faster")[0] for line in found.verdicts] == [
        "fastlane against baseline: time to first token",
        "fastlane-async against baseline-async: time to first token",
    ]
    assert [row[:2] for row in found.table("Time to first token against").rows] == [
        ["baseline-again", "baseline"],
        ["fastlane", "baseline"],
        ["baseline-async-again", "baseline-async"],
        ["fastlane-async", "baseline-async"],
    ]


def test_verdict_says_what_it_cannot_show() -> None:
    inconclusive = reported(a_run(pairs=24, ratio=1.0, metrics=FIRST)).verdicts[0]
    noisy = a_run(pairs=24, ratio=0.94, seed=3, metrics=FIRST)

    assert re.fullmatch(r"fastlane: time to first token: no difference shown; .* \(24 pairs\)", inconclusive)
    assert reported(noisy).verdicts[0].endswith("; no more than the instrument's own noise of ±10 %")
    assert re.search(r'<li class="warning">[^<]*own noise of', written(noisy, ".html"))


def test_cells_are_summarized_per_arm_and_metric() -> None:
    run = a_sweep(scenarios=("chat",), arms=("baseline", "fastlane"), metrics=FIRST)

    assert reported(saturated(run, "chat, 4")).verdicts == [
        f"chat, 4: {SATURATED}; see Checks.",
        "fastlane: time to first token faster in 2 of 2 cells",
    ]


def test_percentiles_are_given_as_far_as_n_allows() -> None:
    found = reported(a_run(pairs=80, ratio=0.5, metrics=FIRST)).table("Time to first token")

    assert found.by_column("arm", "n", "failed", "p99") == [
        ["baseline", "80", "0", "-"],
        ["baseline-again", "80", "0", "-"],
        ["fastlane", "80", "0", "-"],
    ]
    assert all("[" in text for (text,) in found.by_column("p95"))
    assert found.notes == ["Too few requests: p99 needs 368."]


def test_unknown_columns_are_dropped_with_a_note() -> None:
    work = reported(a_run(pairs=24, metrics=FIRST)).table("Requests, connections")

    assert "price (US$)" not in work.columns
    assert work.notes[-1] == "Not known: opened a connection, body bytes sent and price (US$)."


def test_sweep_has_a_row_for_each_load_of_each_scenario() -> None:
    found = reported(a_sweep(), SWEEP)

    assert found.sections == ["All cells", "chat", "agent", "Cold first requests", "Checks", "Definitions"]
    assert list(found.tables)[1:-2] == [
        "Pace of each user, p50",
        "Test configuration",
        "Time to first token (ms)",
        "Time per output token (ms)",
        "Inter-token latency (ms)",
        "Token generation time (ms)",
        "API end-to-end (ms)",
        "Decode speed (tokens/s)",
        "Output throughput (tokens/s)",
    ]
    table = found.table("Time to first token")
    assert [row[0] for row in table.rows] == ["1", "4", "16"]
    assert table.columns == [
        "users", "arm", "n", "failed", "mean", "deviation", "CV", "min", "p25", "p50", "p75", "max",
    ]  # fmt: skip


def test_lengths_are_shown_as_requested_and_measured() -> None:
    def shorter(sample: Sample) -> Sample:
        tokens = 20 + sample.block % 2
        return replace(
            sample,
            token_ns=sample.token_ns[:tokens],
            output_tokens=tokens,
            least_output_tokens=20,
            asked_output_tokens=500,
        )

    run = a_run(arms=("baseline",), pairs=16, change=shorter)

    assert reported(run, SWEEP).table("Test configuration").rows[1:] == [
        ["output, at least", "20", "20", "20 ± 0"],
        ["output, at most", "500", "500", "500 ± 0"],
        ["input, as seen", "500", "500", "500 ± 0"],
        ["output, as seen", "20", "21", "20.5 ± 0.52"],
    ]


def test_open_load_is_shown_by_its_rate() -> None:
    run = a_run(cells=(an_open_cell(2.5), an_open_cell(10.0)), arms=("baseline",), pairs=16)

    assert reported(run, SWEEP).table("Time to first token").by_column("blocks/s") == [["2.5"], ["10"]]


def test_means_add_up_as_the_definition_says() -> None:
    found = reported(a_sweep(users=(1,), scenarios=("chat",)), SWEEP)

    def mean(title: str) -> float:
        return float(found.table(title).by_column("mean")[0][0].replace(",", ""))

    assert mean("API end-to-end") - mean("Time to first token") == pytest.approx(mean("Token generation"), rel=0.02)
    assert mean("Token generation") / 31 == pytest.approx(mean("Time per output token"), rel=0.02)
    definitions = dict(found.table("Metrics").rows)
    assert "(E2E - TTFT) / (output tokens - 1), with these parentheses" in definitions["Time per output token"]


def test_inter_token_latency_is_labeled_in_bands() -> None:
    found = reported(a_sweep(spread=0.0, users=(1, 4, 32)), SWEEP).table("Pace")

    assert found.by_column("scenario", "users", "inter-token latency (ms)", "feels") == [
        ["chat", "1", "11.0", "instant"],
        ["chat", "4", "14.0", "instant"],
        ["chat", "32", "42.0", "acceptable"],
        ["agent", "1", "22.0", "acceptable"],
        ["agent", "4", "28.0", "acceptable"],
        ["agent", "32", "84.0", "sluggish"],
    ]


def test_efficiency_uses_fewest_users_and_skips_invalid() -> None:
    found = reported(saturated(a_sweep(spread=0.0), "agent, 1"), SWEEP).table("Pace")

    assert found.by_column("scaling efficiency") == [
        ["100 %"], ["79 % [79, 79]"], ["42 % [42, 42]"], [""], ["-"], ["-"],
    ]  # fmt: skip
    assert found.rows[3][3] == SATURATED


def test_every_kind_says_what_was_run_and_how_it_ended() -> None:
    run = a_run(
        arms=(an_arm("baseline", description="a|b <c> *d* `e`"),),
        pairs=8,
        machine={"python": "3.11", "cores": 2},
        settings={"seed": 7},
        workload_source="a paper",
    )
    for kind in ("ab", "sweep"):
        facts = dict(reported(run, "--kind", kind).facts)
        assert facts["Arms"] == "baseline: a|b <c> *d* `e`, the reference"
        assert facts["Run"].endswith("ended: finished; seed 7")
        assert facts["Machine"] == "python 3.11, cores 2"
        assert facts["Started"] == "2026-01-02T03:04:05+00:00"
        assert facts["Workload"] == "chat (a paper)"
        assert facts["Requests"] == "8 measured, 1 to warm up, 1 cold"
        assert facts["Load"].startswith("closed, 4 users; ")
    assert r"baseline: a\|b \<c\> \*d\* \`e\`, the reference" in written(run, ".md")


def test_closed_load_reports_users_shared_by_arms() -> None:
    load = dict(reported(a_run(pairs=8)).facts)["Load"]

    assert "4 users shared by 3 arms: an arm has 1.3 requests in flight in the mean" in load


def test_scenarios_are_sorted_by_input_length() -> None:
    def of_length(sample: Sample) -> Sample:
        tokens = 1_000 if sample.cell == "long, 1" else 100
        return replace(sample, meant_input_tokens=tokens, input_tokens=tokens)

    run = a_sweep(scenarios=("long", "short"), users=(1,), change=of_length)

    assert reported(run, SWEEP).sections[1:3] == ["short", "long"]


def test_interrupted_run_says_so_at_the_top() -> None:
    run = replace(a_run(pairs=8), ended="interrupted")

    assert any(line.startswith("Interrupted") for line in reported(run).verdicts)
