"""The first screen of a run: short, with what changed, and honest where it may not be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fastlane.bench._command import remedy
from fastlane.bench.checks import Checked
from fastlane.bench.recorded import FAILED_ALIKE, RecordedRun, Sample
from fastlane.bench.reports import screen
from tests.bench.recorded_runs import a_run, an_arm
from tests.bench.reports.made import a_sweep, checks_with, findings_of

ARMS = (
    "baseline",
    "baseline-again",
    an_arm("fastlane", client="fastlane.OpenAI", reference="baseline"),
    an_arm("async", client="openai.AsyncOpenAI", role="reference"),
    an_arm("fastlane-async", client="fastlane.AsyncOpenAI", reference="async"),
)


def shown(recorded: RecordedRun, checked: Checked | None = None, folder: Path | None = Path("results")) -> str:
    lines = screen(recorded, findings_of(recorded), checked or checks_with(), folder=folder, page=True)
    return "\n".join(line.plain for line in lines)


def test_screen_sets_each_client_beside_its_counterpart() -> None:
    text = shown(a_run(arms=ARMS))

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
    assert "results/report.html" in text
    assert "fastlane bench report results --full" in text


def test_screen_of_a_sweep_has_a_row_for_each_cell_and_arm() -> None:
    text = shown(a_sweep(arms=("baseline", "fastlane")))

    assert [line.split(" | ")[0] for line in text.splitlines() if " | fastlane" in line] == [
        "chat, 1", "chat, 4", "chat, 16", "agent, 1", "agent, 4", "agent, 16",
    ]  # fmt: skip
    assert len(text.splitlines()) <= 25


def test_screen_of_a_refused_run_has_no_figure() -> None:
    recorded = a_run()
    text = shown(recorded, checks_with(recorded.header.cells[0].name))

    assert "No figure of this run may be used:" in text
    assert "client saturated: No core was left." in text
    assert " ms" not in text.replace(recorded.header.provider, "")


def failing(sample: Sample) -> Sample:
    message = "This model's maximum context length is 4096 tokens, and the prompt has 9000"
    bad = sample.part == "measured" and sample.block % 2
    return replace(sample, error="BadRequestError 400", error_message=message, token_ns=()) if bad else sample


def test_screen_shows_provider_errors_with_counts() -> None:
    recorded = replace(a_run(change=failing), ended=FAILED_ALIKE)
    text = shown(recorded)

    failed = sum(sample.error is not None for sample in recorded.measured())
    assert f"Failed: {failed} of 120 requests (" in text
    assert f"baseline {failed // 3}" in text
    assert f"{failed} x BadRequestError 400: This model's maximum context length is 4096 tokens" in text
    assert FAILED_ALIKE in text.splitlines()[0]
    assert remedy(recorded.measured()).endswith("give --max-input-tokens 3072")
