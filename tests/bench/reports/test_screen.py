"""The first screen of a run: short, with what changed, and honest where it may not be used."""

from __future__ import annotations

import re
from dataclasses import replace

from fastlane.bench import Sample
from tests.bench.recorded_runs import a_run, an_arm, saturated
from tests.bench.reports.made import a_sweep, shown

ARMS = (
    "baseline",
    "baseline-again",
    an_arm("fastlane", client="fastlane.OpenAI", reference="baseline"),
    an_arm("async", client="openai.AsyncOpenAI", role="reference"),
    an_arm("fastlane-async", client="fastlane.AsyncOpenAI", reference="async"),
)


def test_screen_sets_each_client_beside_its_counterpart() -> None:
    text = shown(a_run(arms=ARMS, with_log=True)).stdout

    lines = text.splitlines()
    assert len(lines) <= 25
    assert len(text.split()) <= 200
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("fastlane bench   embedded provider")
    assert "40 pairs" in lines[0]
    (first, second) = (line.split() for line in lines if line.startswith("  time to first token"))
    assert "%" in first
    assert first[-1] == second[-1] == "faster"
    assert [line.split()[-3:-1] for line in lines if "p50" in line] == [
        ["openai.OpenAI", "fastlane.OpenAI"],
        ["openai.AsyncOpenAI", "fastlane.AsyncOpenAI"],
    ]
    assert re.search(r"Saved .*/results/run\.json", text)
    assert re.search(r"More .*fastlane bench report .*/results --full", text)


def test_screen_of_a_sweep_has_a_row_for_each_cell_and_arm() -> None:
    text = shown(a_sweep(arms=("baseline", "fastlane"), pairs=8)).stdout

    assert [line.split(" | ")[0] for line in text.splitlines() if " | fastlane" in line] == [
        "chat, 1", "chat, 4", "chat, 16", "agent, 1", "agent, 4", "agent, 16",
    ]  # fmt: skip
    assert len(text.splitlines()) <= 25


def test_screen_of_a_refused_run_has_no_figure() -> None:
    result = shown(saturated(a_run()))

    assert result.exit_code == 1
    assert "No figure of this run may be used:" in result.stdout
    assert "client saturated: CPU: the process of " in result.stdout
    assert " ms" not in result.stdout


def failing(sample: Sample) -> Sample:
    message = "This model's maximum context length is 4096 tokens, and the prompt has 9000"
    bad = sample.part == "measured" and sample.block % 2
    return replace(sample, error="BadRequestError 400", error_message=message, token_ns=()) if bad else sample


def test_screen_shows_provider_errors_with_counts() -> None:
    recorded = replace(a_run(change=failing), ended="requests failed alike")
    text = shown(recorded).stdout

    failed = sum(sample.error is not None for sample in recorded.measured())
    assert f"Failed: {failed} of 120 requests (" in text
    assert f"baseline {failed // 3}" in text
    assert f"{failed} x BadRequestError 400: This model's maximum context length is 4096 tokens" in text
