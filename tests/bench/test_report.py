from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from fastlane.bench import Conversation, Real, Run, Settings, Workload, arms_named, summarise
from fastlane.bench._check import Lag, check
from fastlane.bench._command import _run_with_progress
from fastlane.bench._recorder import Sample
from fastlane.bench._records import document, records
from fastlane.bench._report import print_report

TALK = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
MS = 1_000_000


def sample(arm: str, block: int, first_ms: int = 100, **fields: Any) -> Sample:
    values: dict[str, Any] = {
        "arm": arm,
        "tag": f"{arm}/0/{block}",
        "lane": 0,
        "block": block,
        "conversation": "talk",
        "turn": 1,
        "cold": block < 0,
        "issued_ns": 0,
        "ended_ns": 500 * MS,
        "token_ns": (first_ms * MS, 400 * MS),
        "input_tokens": 200,
        "cached_tokens": 100,
        "output_tokens": 2,
    }
    return Sample(**{**values, **fields})


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    monkeypatch.setenv("SOME_KEY", "none")

    def make(*samples: Sample, **fields: Any) -> Run:
        settings = Settings(
            arms=arms_named(["baseline", "fastlane"]),
            workload=Workload(name="talks", conversations=(Conversation(name="talk", messages=TALK),)),
            provider=Real(base_url="https://api.example.com/v1", model="any", api_key_env="SOME_KEY"),
        )
        values = {"log": None, "check": None, "blocks_planned": 20, "duration_s": 9.0, "cpu_share": 0.1, **fields}
        return Run(settings=settings, samples=samples, **values)

    return make


def printed(run: Run) -> str:
    file = io.StringIO()
    print_report(run, summarise(run), Console(file=file, width=120))
    return file.getvalue()


def pairs(count: int, first_ms: int) -> list[Sample]:
    return [
        each
        for block in range(count)
        for each in (sample("baseline", block), sample("fastlane", block, first_ms + block % 2))
    ]


@pytest.mark.parametrize(
    ("first_ms", "verdict"), [(80, "faster"), (120, "slower"), (99, "no difference shown")], ids=str
)
def test_the_verdict_stands_beside_the_ratio(finished: Callable[..., Run], first_ms: int, verdict: str) -> None:
    run = finished(*pairs(20, first_ms))

    line = next(line for line in printed(run).splitlines() if line.startswith("fastlane"))
    assert line.endswith(verdict)
    assert summarise(run).comparisons[0].pairs == 20


def test_equal_durations_show_no_difference(finished: Callable[..., Run]) -> None:
    text = printed(finished(*pairs(20, 80)))

    end_to_end = text[text.index("API end-to-end") :].splitlines()
    assert end_to_end[3].split() == [
        "fastlane",
        "20",
        "400",
        "400~",
        "400~",
        "1.000",
        "[1.000,",
        "1.000]",
        *["no", "difference", "shown"],
    ]


def test_a_first_request_is_in_no_percentile(finished: Callable[..., Run]) -> None:
    summary = summarise(finished(sample("baseline", -1, 390), sample("baseline", 0), sample("fastlane", 0)))

    assert summary.arms[0].first_request_ms == 390
    assert summary.arms[0].durations["time_to_first_token"].percentiles["p99"].value == 100


def test_failed_requests_are_counted_and_their_blocks_are_no_pairs(finished: Callable[..., Run]) -> None:
    failed = sample("fastlane", 7, error="APITimeoutError", token_ns=(), cached_tokens=None)

    run = finished(*pairs(7, 80), sample("baseline", 7), failed)

    summary = summarise(run)
    assert (summary.arms[1].requests, summary.arms[1].failed) == (8, 1)
    assert summary.arms[1].durations["time_to_first_token"].requests == 7
    assert summary.comparisons[0].pairs == 7
    assert summary.problems == ()
    assert "fastlane: 1 of 8 requests failed with APITimeoutError" in printed(run)


def test_an_arm_without_a_success_makes_the_run_unusable(finished: Callable[..., Run]) -> None:
    failed = sample("fastlane", 0, error="APITimeoutError", token_ns=())

    run = finished(sample("baseline", 0), failed)

    assert summarise(run).problems == ("every request of arm 'fastlane' failed",)
    assert "NOT USABLE: every request of arm 'fastlane' failed" in printed(run)


def test_what_nobody_counted_is_not_known(finished: Callable[..., Run]) -> None:
    text = printed(finished(*pairs(3, 80)))

    assert "https://api.example.com/v1, model 'any'" in text
    assert "not known" in text
    assert "a real provider keeps its log to itself" in text
    assert "Blocks: 3 of 20, as many as the time budget allowed" in text
    assert "SOME_KEY" not in text


def test_busy_clients_are_pointed_out(finished: Callable[..., Run]) -> None:
    assert "took 90% of a core" in printed(finished(*pairs(3, 80), cpu_share=0.9))
    assert "of a core" not in printed(finished(*pairs(3, 80)))


@pytest.mark.parametrize(("p95_ms", "busy"), [(10.0, False), (10.5, True)])
def test_a_busy_machine_is_pointed_out(finished: Callable[..., Run], p95_ms: float, busy: bool) -> None:
    samples = pairs(3, 80)
    found = replace(check(samples, (), one_way_s=0.0), lags={"fastlane": Lag(p50_ms=1.0, p95_ms=p95_ms)})

    assert ("The machine was busy" in printed(finished(*samples, check=found))) == busy


def test_an_interrupted_run_says_so_first(finished: Callable[..., Run]) -> None:
    text = printed(finished(*pairs(3, 80), interrupted=True))

    assert "INTERRUPTED: these are the requests that were finished by then." in text
    assert "Blocks: 3 of 20, as many as were begun before the interruption" in text
    assert summarise(finished(interrupted=True)).problems == ("no block was run: it was interrupted first",)


def test_everything_is_plain_json(finished: Callable[..., Run]) -> None:
    run = finished(*pairs(8, 80))

    found = json.loads(json.dumps(document(run, summarise(run))))
    assert found["comparisons"][0]["percentiles"]["p50"]["verdict"] == "faster"
    assert found["arms"][0]["durations"]["time_to_first_token"]["percentiles"]["p95"] == {
        "value": 100.0,
        "few_samples": True,
    }
    assert [record["log"] for record in records(run)] == [None] * 16


def test_on_a_terminal_progress_goes_to_stderr(finished: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(*pairs(1, 80))

    def two_blocks(settings: Settings, *, on_block: Callable[[int, int], None]) -> Run:
        on_block(1, 2)
        on_block(2, 2)
        return run

    monkeypatch.setattr("fastlane.bench._command.run", two_blocks)
    file = io.StringIO()

    assert _run_with_progress(run.settings, Console(file=file, force_terminal=True, width=100)) is run
    assert "2 blocks" in file.getvalue()
