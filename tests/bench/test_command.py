from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.bench.recorded_runs import a_run
from tests.bench.reports.made import bench, shown

QUICK = ("--preset", "instant", "--rtt-ms", "5", "--think-s", "0", "--users", "2")


@pytest.fixture(autouse=True)
def in_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # As where the extra `charts` is not installed: drawing takes longer than these runs.
    monkeypatch.setattr("fastlane.bench._command.has_charts", lambda: False)


def run(*arguments: object) -> Result:
    return bench("run", *arguments)


def test_run_prints_one_screen_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlane.bench._command.has_charts", lambda: True)
    environment = dict(os.environ)

    result = run(*QUICK, "--conversations", 1, "--passes", 1)

    # A busy machine gets so short a run refused: tests/bench/reports/test_screen.py has the figures.
    assert result.exit_code in (0, 1), result.output
    for expected in ("code-review", "round trip 5 ms", "fastlane bench run --base-url"):
        assert expected in result.stdout
    assert len(result.stdout.splitlines()) <= 25
    assert len(result.stdout.split()) <= 200
    (folder,) = Path("bench-results").iterdir()
    names = {file.name for file in folder.iterdir()}
    assert names >= {"run.json", "records.jsonl", "server.jsonl", "summary.json", "report.html"}
    assert "<html" in (folder / "report.html").read_text()
    assert f"fastlane bench report {folder} --full" in result.stdout
    assert dict(os.environ) == environment


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there, how are you?"}] * 2
    path = tmp_path / "talks.jsonl"
    path.write_text(f"{json.dumps({'messages': talk})}\n" * 2)
    return path


def kept(*arguments: object) -> tuple[int, dict[str, Any]]:
    """Run with --json, and return the exit code and the document."""
    result = run(*arguments, "--json")
    document: dict[str, Any] = json.loads(result.stdout)
    # A busy machine gets these short runs refused for what it did to their times, as it should; nothing else does.
    refusals = {each["check"] for each in document["checks"] if each["level"] == "refused" and not each["tails"]}
    assert all(name.startswith(("client saturated", "times by")) for name in refusals), refusals
    assert result.exit_code == (1 if refusals else 0), result.output
    return result.exit_code, document


@pytest.mark.slow
def test_repeated_failure_ends_the_run_with_provider_error(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlane.emulator import Emulator, preset

    talk = [{"role": "user", "content": "Hi " * 2_000}, {"role": "assistant", "content": "Hello there, you?"}] * 2
    talks.write_text("".join(f"{json.dumps({'messages': talk})}\n" for _ in range(40)))
    first = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    talks.write_text(f"{json.dumps({'messages': first})}\n" + talks.read_text())
    monkeypatch.setenv("SOME_KEY", "sk-nobody-may-see-this")
    with Emulator(model=replace(preset("instant"), context_window_tokens=1_000), tls=False) as far:
        result = run(
            *("--workload", talks, "--arms", "baseline,fastlane", "--users", 2, "--think-s", 0),
            *("--base-url", far.base_url, "--model", "any", "--api-key-env", "SOME_KEY"),
        )
        requests = len(far.log())

    assert result.exit_code == 1
    assert requests < 60, "the run went on"
    assert "x BadRequestError 400: This model's maximum context length is 1000 tokens" in result.stdout
    assert "give --max-input-tokens 750" in result.stderr
    assert "sk-nobody" not in result.output


def test_options_are_read_from_the_projects_toml(talks: Path) -> None:
    Path("pyproject.toml").write_text('[tool.fastlane.bench]\nusers = "many"\n')
    assert "--users takes whole numbers separated by commas, such as 1,8,32, got 'many'" in run().stderr
    assert "unknown arm 'faster'" in run("--users", 1, "--arms", "faster").stderr

    Path("pyproject.toml").write_text("[tool.fastlane.bench]\nuser = 3\n")
    result = run()
    assert result.exit_code == 2
    assert "[tool.fastlane.bench] has no option 'user'" in result.stderr


@pytest.mark.slow
def test_json_is_the_only_output_and_every_record_can_be_kept(talks: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "run"

    options = ("--arms", "baseline,fastlane", "--passes", 1, "--warm-up", 0, "--folder", folder)
    _, document = kept(*QUICK, "--workload", talks, *options)

    assert document["blocks"] == 4
    assert [arm["name"] for arm in document["arms"]] == ["baseline", "fastlane", "baseline-again"]
    assert {each["metric"] for each in document["comparisons"]} == {
        "time_to_first_token", "time_per_output_token", "api_end_to_end",
    }  # fmt: skip
    assert json.loads((folder / "summary.json").read_text()) == document
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len(records) == 15
    logged = {json.loads(line)["tag"] for line in (folder / "server.jsonl").read_text().splitlines()}
    assert logged == {record["tag"] for record in records}
    for record in records:
        assert (record["call"] is None) == record["arm"].startswith("baseline")
    assert "Hello" not in (folder / "records.jsonl").read_text()

    again = json.loads(bench("report", folder, "--json").stdout)
    assert (again["arms"], again["comparisons"]) == (document["arms"], document["comparisons"])


@pytest.mark.slow
def test_failed_first_request_ends_the_run_with_its_cause(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-nobody-may-see-this")

    result = run(
        *("--workload", talks, "--arms", "baseline", "--api-key-env", "SOME_KEY"),
        # Port 9 is "discard": no server listens there.
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
        (["--arms", ","], "--arms takes names separated by commas, and at least one is needed"),
        (["--workload", "nothing.jsonl"], "no workload 'nothing.jsonl': neither a file nor a preset"),
        (["--kind", "nothing"], "--kind takes ab, sweep, got 'nothing'"),
        (["--users", "many"], "--users takes whole numbers separated by commas, such as 1,8,32, got 'many'"),
        (["--users", "0"], "--users takes whole numbers above 0, got '0'"),
        (["--users", "1", "--rate", "2"], "--users and --rate are two kinds of load"),
        (["--attribute", "connection,nothing"], "of connection, encoding, prompt-cache, hedging, got 'nothing'"),
        (["--attribute", "connection,encoding", "--arms", "baseline"], "--attribute makes its own arms"),
        (["--json", "--full"], "three ways to print: give one of them"),
        (["-o", "page.pdf"], "-o takes files that end with .html, .md, .csv, .json, .xml, got 'page.pdf'"),
        (["--max-input-tokens", "1"], "has a prompt of at most 1 tokens"),
        (["--api-key-env", "SOME_KEY"], "--api-key-env goes with --base-url"),
        (["--model", "any"], "--model goes with --base-url"),
        (["--base-url", "http://localhost/v1"], "--base-url needs --model"),
        (["--base-url", "localhost", "--model", "any"], "must begin with https:// or http://, got 'localhost'"),
        (["--base-url", "http://localhost/v1", "--rtt-ms", "5"], "describe the embedded provider"),
        (
            ["--base-url", "http://localhost/v1", "--model", "any", "--api-key-env", "NO_SUCH_KEY"],
            "the environment variable NO_SUCH_KEY is not set",
        ),
        (["--preset", "nothing"], "unknown preset 'nothing'"),
        (["--folder", f"{__file__}/inside"], "--folder needs a folder that can be written to"),
    ],
)
def test_input_that_cannot_work_is_explained(arguments: list[str], expected: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2, result.output
    assert expected in result.stderr
    assert "Traceback" not in result.output
    assert "of new blocks" not in result.stderr, "the run had begun"


@pytest.mark.slow
def test_real_provider_run_leaves_log_checks_not_checked(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastlane.emulator import Emulator, preset

    monkeypatch.setenv("SOME_KEY", "none")
    with Emulator(model=preset("instant"), tls=False) as far:
        _, document = kept(
            *("--workload", talks, "--arms", "baseline,fastlane", "--users", 1, "--think-s", 0, "--passes", 1),
            *("--base-url", far.base_url, "--model", "any", "--api-key-env", "SOME_KEY", "--max-output-tokens", 4),
        )
        log: Any = far.log()

    assert document["embedded"] is False
    assert {check["level"] for check in document["checks"] if "server's log" in check["check"]} == {"not checked"}
    assert {entry.output_tokens for entry in log} <= {2, 3, 4}
    assert not any(name.startswith("x-emulator") for entry in log for name in entry.header_names)


def test_figures_are_printed_even_if_they_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fastlane.bench.reports.write_csv", full)

    result = shown(a_run(pairs=6), "-o", tmp_path / "figures.csv")

    assert result.exit_code == 1
    assert "time to first token" in result.stdout.lower()
    assert "the figures could not be written to" in result.stderr
    assert "No space left on device" in result.stderr


def test_interrupted_run_is_reported_kept_and_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = replace(a_run(pairs=6, with_log=True), ended="interrupted")
    monkeypatch.setattr("fastlane.bench._command.Benchmark.run", lambda *_, **__: interrupted)

    result = run("--folder", tmp_path)

    assert result.exit_code == 130
    assert "fastlane bench: interrupted: the figures are of what was finished" in result.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["ended"] == "interrupted"


def test_run_interrupted_before_first_block_reports_nothing(talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastlane.bench._command.Benchmark.run", interrupted)

    result = run("--workload", talks)

    assert result.exit_code == 130
    assert "interrupted; nothing more is reported or kept" in result.stderr


def test_help_names_the_arms_and_the_defaults() -> None:
    short, text = (" ".join(run(flag).stdout.replace("│", " ").split()) for flag in ("--help", "--help-all"))
    assert len(set(re.findall(r"(?<!\S)--[a-z-]+(?= +(?:-\w +)?<)", short))) <= 20
    assert "--think-s" in text
    assert "--think-s" not in short
    assert "Known: baseline, baseline-again, baseline-async, " in text
    assert "in ms; 40 if not given" in text
