from __future__ import annotations

import errno
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fastlane.bench import Run, Settings, run as actual_run
from fastlane.bench._command import bench
from fastlane.traces import read_spans

app = typer.Typer()
app.command()(bench)

QUICK = ("--preset", "instant", "--rtt-ms", "5", "--think-s", "0", "--lanes", "2")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there, how are you?"}] * 2
    path = tmp_path / "talks.jsonl"
    path.write_text(f"{json.dumps({'messages': talk})}\n" * 2)
    return path


def test_a_run_says_how_the_arms_compare_and_that_both_sides_agree() -> None:
    environment = dict(os.environ)

    result = run(*QUICK, "--conversations", 2, "--turns", 4)

    assert result.exit_code == 0, result.output
    for expected in (
        "Workload code-review: 2 conversations",
        "Lanes: 2, pause 0 s, seed 0",
        "Blocks: 8, with 4 arms each",
        "Time to first token (ms)",
        "API end-to-end (ms)",
        "ratio to baseline [95 % CI]",
        "few samples",
        "requests: 36 by the clients, 36 by the provider",
        "output tokens: equal for every request",
        "from a first token's arrival to the caller, fastlane",
    ):
        assert expected in result.stdout
    assert {**os.environ, "PYTEST_CURRENT_TEST": ""} == {**environment, "PYTEST_CURRENT_TEST": ""}


def test_json_is_the_only_output_and_every_record_can_be_kept(talks: Path, tmp_path: Path) -> None:
    result = run(
        *QUICK, "--workload", talks, "--arms", "baseline,fastlane", "--json", "--out", tmp_path / "kept" / "run",
        "--trace", tmp_path / "kept" / "spans.jsonl",
    )  # fmt: skip

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["blocks"] == {"planned": 4, "run": 4}
    assert [arm["arm"] for arm in document["arms"]] == ["baseline", "fastlane"]
    assert document["arms"][1]["bytes_sent"] > 0
    assert {each["metric"] for each in document["comparisons"]} == {"time_to_first_token", "api_end_to_end"}
    assert document["comparisons"][0]["typical"]["verdict"] == "too few pairs"
    assert document["check"]["requests_by_client"] == document["check"]["requests_by_server"] == 10
    assert document["check"]["request_bytes"]["value"] == 0
    assert document["problems"] == []
    assert json.loads((tmp_path / "kept" / "run" / "summary.json").read_text()) == document
    records = [json.loads(line) for line in (tmp_path / "kept" / "run" / "records.jsonl").read_text().splitlines()]
    assert len(records) == 10
    for record in records:
        assert len(record["log"]) == 1
        assert record["log"][0]["tag"] == record["tag"]
        assert (record["call"] is None) == (record["arm"] == "baseline")
    assert "Hello" not in (tmp_path / "kept" / "run" / "records.jsonl").read_text()
    spans = read_spans((tmp_path / "kept" / "spans.jsonl").read_bytes(), "spans.jsonl").spans
    assert sum(span.name == "chat bench" for span in spans) == 10


def test_a_budget_that_is_too_short_runs_no_block_and_says_so(talks: Path) -> None:
    result = run(*QUICK, "--workload", talks, "--arms", "baseline", "--budget-s", 0.000_000_001)

    assert result.exit_code == 1
    assert "no block was run: give the run more time with --budget-s" in result.stderr


def test_an_arm_whose_first_request_fails_ends_the_run_and_says_why(
    talks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-nobody-may-see-this")

    result = run(
        *("--workload", talks, "--arms", "baseline", "--api-key-env", "SOME_KEY"),
        # Port 9 is "discard": nobody listens there.
        *("--base-url", "http://127.0.0.1:9/v1", "--model", "any"),
    )

    assert result.exit_code == 1
    assert "the first request of arm 'baseline' to 127.0.0.1:9 failed: APIConnectionError: " in result.stderr
    assert "<- ConnectError: " in result.stderr
    assert "refused" in result.stderr
    assert "sk-nobody-may-see-this" not in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--arms", "baseline,faster"], "unknown arm 'faster': the known arms are baseline, baseline-again,"),
        (["--arms", "baseline,baseline"], "use baseline,baseline-again"),
        (["--arms", ","], "at least one arm is needed"),
        (["--workload", "nothing.jsonl"], "no workload 'nothing.jsonl': neither a file nor built in"),
        (["--tools", "tools.json"], "--tools goes with a --workload file"),
        (["--model", "any"], "--model goes with --base-url"),
        (["--base-url", "http://localhost/v1"], "--base-url needs --model"),
        (["--base-url", "localhost", "--model", "any"], "must begin with https:// or http://, got 'localhost'"),
        (["--base-url", "http://localhost/v1", "--rtt-ms", "5"], "describe the embedded provider"),
        (
            ["--base-url", "http://localhost/v1", "--model", "any", "--api-key-env", "NO_SUCH_KEY"],
            "the environment variable NO_SUCH_KEY is not set",
        ),
        (["--preset", "nothing"], "unknown preset 'nothing'"),
        (["--budget-s", "inf"], "budget_s must be a number of seconds above 0, got inf"),
        (["--out", __file__], "--out needs a folder that can be written to"),
        (["--out", f"{__file__}/inside"], "--out needs a folder that can be written to"),
    ],
)
def test_input_that_cannot_work_is_explained(arguments: list[str], expected: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert expected in result.stderr
    assert "Traceback" not in result.output
    assert "of new blocks" not in result.stderr, "the run had begun"


def test_a_broken_line_of_a_workload_is_named(talks: Path) -> None:
    talks.write_text(talks.read_text() + '{"messages": [\n')

    result = run("--workload", talks)

    assert result.exit_code == 2
    assert "line 3: not valid JSON: Expecting value at column " in result.stderr
    assert "line 1" not in result.stderr


def test_a_missing_request_makes_the_figures_unusable(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlane.emulator import Emulator, RequestLog

    complete = Emulator.log

    def incomplete(emulator: Emulator) -> tuple[RequestLog, ...]:
        return complete(emulator)[:-1]

    monkeypatch.setattr(Emulator, "log", incomplete)

    result = run(*QUICK, "--workload", talks, "--arms", "baseline", "--turns", 1)

    assert result.exit_code == 1
    assert "1 requests of the clients are missing in the provider's log: baseline/" in result.stderr
    assert "NOT USABLE" in result.stdout


def test_against_a_real_provider_nothing_is_checked_and_unknowns_are_called_so(
    talks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastlane.emulator import Emulator, preset

    monkeypatch.setenv("SOME_KEY", "none")
    with Emulator(model=preset("instant"), tls=False) as far:
        result = run(
            *("--workload", talks, "--arms", "baseline,fastlane", "--lanes", 1, "--think-s", 0, "--json"),
            *("--base-url", far.base_url, "--model", "any", "--api-key-env", "SOME_KEY", "--max-output-tokens", 4),
        )
        log: Any = far.log()

    document = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert document["check"] is None
    stock, fast = document["arms"]
    assert (stock["connections_opened"], stock["bytes_sent"]) == (None, None)
    assert fast["connections_opened"] >= 1
    assert fast["bytes_sent"] > 0
    assert {entry.output_tokens for entry in log} <= {2, 3, 4}
    assert not any(name.startswith("x-emulator") for entry in log for name in entry.header_names)


def test_figures_are_printed_even_if_they_cannot_be_kept(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fastlane.bench._command.write", full)

    result = run(*QUICK, "--workload", talks, "--arms", "baseline", "--turns", 1, "--out", tmp_path / "kept")

    assert result.exit_code == 1
    assert "Time to first token (ms)" in result.stdout
    assert "the records could not be written to" in result.stderr
    assert "No space left on device" in result.stderr


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system sends no signal to a thread")
def test_an_interrupted_run_is_reported_kept_and_called_so(
    talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(settings: Settings) -> Run:
        def on_block(done: int, _planned: int) -> None:
            if done == 1:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        return actual_run(settings, on_block=on_block)

    monkeypatch.setattr("fastlane.bench._command.run", cut_short)

    result = run(*QUICK, "--think-s", 600, "--workload", talks, "--arms", "baseline", "--out", tmp_path)

    assert result.exit_code == 130
    assert "INTERRUPTED" in result.stdout
    assert "of 4, as many as were begun before the interruption" in result.stdout
    assert "fastlane bench: interrupted: the figures are of what was finished" in result.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["interrupted"] is True


def test_a_run_that_is_interrupted_before_its_first_block_says_so(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_settings: Settings) -> Run:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastlane.bench._command.run", interrupted)

    result = run("--workload", talks)

    assert result.exit_code == 130
    assert "interrupted; nothing more is reported or kept" in result.stderr


def test_the_help_names_the_arms_and_the_defaults() -> None:
    text = " ".join(run("--help").stdout.replace("│", " ").split())

    for expected in (
        "Known: baseline, baseline-again, baseline-async, ",
        "If not given: baseline, connection, encoding, fastlane.",
        "in ms; 40 if not given",
        "bench if not given",
    ):
        assert expected in text
    assert "(40)" not in text
