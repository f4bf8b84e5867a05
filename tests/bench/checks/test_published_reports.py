"""Defects of published load reports, as runs that would have given their figures: none of them may be used."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from fastlane.bench.checks import check
from fastlane.bench.recorded import Sample
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import S, a_cell, a_run, changed

# A load report of gpt-4.1-nano of January 2026: the tokens that the p50 of its times imply by
# (E2E - TTFT) / ITL + 1, and the requested range.
SHORT_ANSWERS = [
    ("text generation, 1 user", 88, 1_000, 10_000),
    ("text generation, 10 users", 64, 1_000, 10_000),
    ("text generation, 50 users", 36, 1_000, 10_000),
    ("conversation, 1 user", 54, 200, 500),
    ("conversation, 50 users", 36, 200, 500),
    ("retrieval, 30 users", 152, 200, 500),
]


@pytest.mark.parametrize(("row", "tokens", "least", "most"), SHORT_ANSWERS, ids=[row[0] for row in SHORT_ANSWERS])
def test_answers_a_tenth_of_requested_length_are_refused(row: str, tokens: int, least: int, most: int) -> None:
    def asked(sample: Sample) -> Sample:
        return replace(sample, asked_output_tokens=most, least_output_tokens=least, finish_reason="stop")

    run = a_run(cells=(a_cell(name=row),), tokens=tokens, change=asked)
    found = check(run)

    assert not found.valid(row)
    (finding,) = about(found, "tokens asked for")
    assert finding.level == "refused"
    assert f"{least:,} to {most:,}" in finding.sentence
    assert f"got {tokens} (median)" in finding.sentence


def test_short_answers_without_usage_are_refused_by_timing() -> None:
    run = a_run(tokens=88, change=lambda each: replace(each, output_tokens=None, least_output_tokens=1_000))

    assert level(check(run), "tokens asked for") == "refused"


def test_end_to_end_below_time_to_first_token_is_refused() -> None:
    def early(sample: Sample) -> Sample:
        # Minima of a report of GPT-2 on a CPU: the first token after 597 ms, the last one after 224 ms.
        stamps = (sample.issued_ns + round(0.59664 * S), sample.issued_ns + round(0.22446 * S))
        return replace(sample, token_ns=stamps, ended_ns=stamps[0])

    found = check(a_run(change=early))

    assert level(found, "end-to-end below first token") == "refused"


def test_more_tokens_per_second_than_one_over_itl_are_flagged() -> None:
    # Retrieval at 1 user: 115.1 tokens/s with an ITL of 10.47 ms, whose inverse is 95.5; 427 tokens beside 293.
    run = a_run(
        cells=(a_cell(1),),
        time_to_first_token_s=0.65,
        inter_token_s=0.01047,
        tokens=293,
        ratio=1.0,
        change=lambda each: replace(each, output_tokens=427, asked_output_tokens=500, least_output_tokens=200),
    )
    found = check(run)

    assert median(each.output_throughput or 0.0 for each in run.measured()) > 1 / 0.01047
    assert level(found, "chunks against tokens") == "flagged"


def test_first_token_at_end_of_generation_is_refused() -> None:
    # 64 tokens at 30.54 tokens/s are 2,096 ms, and 1,918 ms was reported for the first token.
    run = a_run(time_to_first_token_s=1.918, inter_token_s=0.000_01, tokens=64)

    assert level(check(run), "buffered stream") == "refused"


def test_unstreamed_end_to_end_metric_is_only_flagged() -> None:
    run = a_run(inter_token_s=0.000_01, tokens=64, metrics=("api_end_to_end",))

    assert level(check(run), "buffered stream") == "flagged"


def test_sweep_outlier_is_flagged_for_a_rerun() -> None:
    # Times to first token of 20, 30 and 40 users in a sweep in order.
    times = {20: 0.50, 30: 1.37, 40: 0.53}
    cells = [a_cell(users) for users in times]
    runs = [a_run(cells=[cell], time_to_first_token_s=times[cell.users or 0], pairs=40) for cell in cells]
    run = replace(runs[0], header=replace(runs[0].header, cells=tuple(cells)))
    found = check(replace(run, samples=tuple(sample for each in runs for sample in each.samples)))

    (finding,) = about(found, "out of line in a sweep")
    assert (finding.level, finding.cell) == ("flagged", "chat, 30 users")
    assert "run this cell again" in finding.sentence


def test_sound_report_passes_every_check() -> None:
    found = check(changed(a_run(pairs=80), lambda each: each))

    assert {each.level for each in found.results} == {"passed", "not checked"}
