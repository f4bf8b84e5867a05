from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from fastlane.cli import command_line
from fastlane.doctor._command import in_words
from fastlane.doctor._examination import Cost, Examination
from fastlane.doctor._findings import found
from fastlane.doctor._report import print_report
from fastlane.doctor._session import DoctorSettings, target_of
from fastlane.emulator import Emulator
from fastlane.providers import load
from fastlane.providers.keys import key_variable

KEY = "sk-nobody-may-see-this"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command_line("doctor"), ["doctor", *map(str, arguments)])


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)


def test_findings_are_printed_in_groups_with_facts(provider: Emulator, tmp_path: Path) -> None:
    result = run(provider.base_url, "--quick", "--yes", "--api-key-env", "SOME_KEY")

    assert result.exit_code == 0, result.output
    for expected in (
        f"{provider.base_url}, model instant",
        "Reaching the provider",
        "TLSv1.3",
        "Request bodies",
        "json+gzip, msgpack, msgpack+gzip taken",
        "Prompt cache",
        "Structured outputs",
        "# Measured by fastlane doctor on ",
        '[encodings."/chat/completions"]',
    ):
        assert expected in result.stdout
    assert KEY not in result.output
    facts = tmp_path / "printed.toml"
    facts.write_text(result.stdout.partition("\nFacts\n")[2])
    assert load(facts).forms("/chat/completions") == ("json", "json+gzip", "msgpack", "msgpack+gzip")


def test_json_goes_to_stdout_and_facts_to_the_given_file(provider: Emulator, tmp_path: Path) -> None:
    out = tmp_path / "facts.toml"

    result = run(provider.base_url, "--quick", "--yes", "--json", "--api-key-env", "SOME_KEY", "--facts-out", out)

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["reached"]
    assert document["model"] == "instant"
    assert document["facts_toml"] == out.read_text()
    assert load(out).origins == (document["origin"],)
    assert f"The facts are in {out}." in result.stderr.replace("\n", "")


def test_unattended_run_without_yes_spends_no_tokens(provider: Emulator) -> None:
    result = run(provider.base_url, "--quick", "--api-key-env", "SOME_KEY")

    assert result.exit_code == 0
    assert result.stdout.count("it costs tokens: --yes allows it") >= 5
    assert sum(entry.output_tokens or 0 for entry in provider.log()) == 0


def test_unreachable_provider_is_reported_with_advice() -> None:
    # Port 9 is "discard": no server listens there.
    result = run("http://127.0.0.1:9/v1", "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not document["reached"]
    assert document["facts_toml"] is None
    assert "ConnectionRefusedError" in document["findings"][-1]["seen"]
    assert "Nothing listens on port 9" in document["findings"][-1]["advice"]


def test_facts_that_were_not_measured_are_not_written(tmp_path: Path) -> None:
    result = run("http://127.0.0.1:9/v1", "--facts-out", tmp_path / "facts.toml")

    assert result.exit_code == 1
    assert "no facts were measured, so none are written" in result.stderr
    assert not (tmp_path / "facts.toml").exists()


def test_unwritable_facts_file_fails_after_printing_findings(provider: Emulator, tmp_path: Path) -> None:
    result = run(provider.base_url, "--quick", "--api-key-env", "SOME_KEY", "--facts-out", tmp_path)

    assert result.exit_code == 1
    assert "the facts could not be written to" in result.stderr
    assert "Reaching the provider" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["localhost:8000"], "such as https://api.example.com/v1, got"),
        (["https://me:secret@a.example/v1"], "must not hold a name or a password"),
        (["https://a.example/v1", "--idle-s", "-1"], "--idle-s must be a number of seconds from 0"),
        (["https://a.example/v1", "--timeout-s", "0"], "must be above 0"),
    ],
)
def test_input_that_cannot_work_is_explained(arguments: list[str], expected: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert expected in result.stderr
    assert "secret" not in result.output
    assert "Traceback" not in result.output


def test_consent_question_states_the_cost() -> None:
    words = in_words(Cost(calls=12, input_tokens=5_000, output_tokens=900), "some-model")

    assert re.search(r"some-model about 12 times.*5,000 input tokens.*900 output tokens", words)


def test_interrupted_examination_is_marked() -> None:
    examination = Examination(
        settings=DoctorSettings(target=target_of("https://a.example/v1")),
        findings=(found("chunks", "[bold]as they are[/bold]", "bundles"),),
        is_reached=True,
        model=None,
        interrupted=True,
    )
    written = io.StringIO()

    print_report(examination, Console(width=100, file=written))

    printed = written.getvalue()
    assert "INTERRUPTED" in printed
    assert "[bold]as they are[/bold]" in printed
    assert "! costs something" in printed
    assert [line for line in printed.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.openai.com/v1", True),
        ("https://gateway.example.com/v1", True),
        ("http://localhost:8000/v1", True),
        ("https://127.0.0.1:8443/v1", True),
        ("https://gateway.example.com/v2", False),
        ("https://api.example.com/v1", False),
        ("https://api.openai.com.example.com/v1", False),
    ],
)
def test_openai_key_is_sent_only_to_openai_urls(url: str, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example.com/v1/")

    assert (key_variable(target_of(url).base_url) == "OPENAI_API_KEY") is shown
