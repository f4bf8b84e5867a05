from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fastlane.emulator import Emulator
from fastlane.providers import load
from fastlane.providers.keys import key_variable
from tests.doctor.looking import KEY, run


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
    table, _, facts = result.stdout.partition("\nFacts\n")
    assert [line for line in table.splitlines() if line != line.rstrip()] == []
    (tmp_path / "printed.toml").write_text(facts)
    assert load(tmp_path / "printed.toml").forms("/chat/completions") == (
        "json",
        "json+gzip",
        "msgpack",
        "msgpack+gzip",
    )


def test_json_goes_to_stdout_and_facts_to_the_given_file(provider: Emulator, tmp_path: Path) -> None:
    out = tmp_path / "facts.toml"

    result = run(provider.base_url, "--quick", "--yes", "--json", "--api-key-env", "SOME_KEY", "--facts-out", out)

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["facts_toml"] == out.read_text()
    assert load(out).origins == (document["origin"],)
    assert f"The facts are in {out}." in result.stderr.replace("\n", "")


def test_unreachable_provider_is_reported_with_advice(tmp_path: Path) -> None:
    # Port 9 is "discard": no server listens there.
    result = run("http://127.0.0.1:9/v1", "--json", "--facts-out", tmp_path / "facts.toml")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not document["reached"]
    assert document["facts_toml"] is None
    assert "ConnectionRefusedError" in document["findings"][-1]["seen"]
    assert "Nothing listens on port 9" in document["findings"][-1]["advice"]
    assert "no facts were measured, so none are written" in result.stderr
    assert not (tmp_path / "facts.toml").exists()


def test_unwritable_facts_file_fails_after_printing_findings(provider: Emulator, tmp_path: Path) -> None:
    result = run(provider.base_url, "--quick", "--api-key-env", "SOME_KEY", "--facts-out", tmp_path)

    assert result.exit_code == 1
    assert "the facts could not be written to" in result.stderr
    assert "Reaching the provider" in result.stdout


@pytest.mark.parametrize(
    ("url", "base_url", "origin"),
    [
        ("http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1", "http://127.0.0.1:9"),
        ("http://LOCALHOST:9", "http://localhost:9", "http://localhost:9"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1", "http://[::1]:9"),
        ("https://127.0.0.1/x/y", "https://127.0.0.1/x/y", "https://127.0.0.1:443"),
    ],
)
def test_examined_url_has_base_url_and_origin(url: str, base_url: str, origin: str) -> None:
    document = json.loads(run(url, "--quick", "--json").stdout)

    assert (document["url"], document["origin"]) == (base_url, origin)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["localhost:8000"], "such as https://api.example.com/v1, got"),
        (["ftp://a.example"], "such as https://api.example.com/v1, got "),
        (["https://"], "such as https://api.example.com/v1, got "),
        (["https://a.example:x/v1"], "such as https://api.example.com/v1, got 'https://a.example:x/v1'"),
        (["https://me:secret@a.example/v1"], "must not hold a name or a password"),
        (["https://a.example/v1?key=secret"], "without what follows a '?'"),
        (["https://a.example/v1/chat/completions"], "without '/chat/completions' at its end"),
        (["https://a.example/v1", "--idle-s", "-1"], "--idle-s must be a number of seconds from 0"),
        (["https://a.example/v1", "--timeout-s", "0"], "must be above 0"),
    ],
)
def test_input_that_cannot_work_is_explained(arguments: list[str], expected: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())
    assert "secret" not in result.output
    assert "Traceback" not in result.output


@contextmanager
def asked_on_a_terminal(provider: Emulator) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """The command on a terminal, once it asks whether to go on; the terminal, and what it shows by then."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastlane", "doctor", provider.base_url, "--quick", "--api-key-env", "SOME_KEY"]
    environment = {**os.environ, "SOME_KEY": KEY, "COLUMNS": "300", "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        os.close(theirs)
        try:
            shown = ""
            while "Go on?" not in shown:
                shown += os.read(ours, 4_096).decode()
            yield process, ours, shown
        finally:
            process.kill()
            os.close(ours)


def test_spent_tokens_stay_within_the_stated_cost(provider: Emulator) -> None:
    with asked_on_a_terminal(provider) as (process, terminal, shown):
        os.write(terminal, b"y\n")
        printed, _ = process.communicate()

    assert "json+gzip, msgpack, msgpack+gzip taken" in printed
    stated = re.search(r"asks instant about (\d+) times.*about ([\d,]+) input tokens.*most ([\d,]+) output", shown)
    assert stated is not None
    calls, input_tokens, output_tokens = (int(number.replace(",", "")) for number in stated.groups())
    spent = [entry for entry in provider.log() if entry.output_tokens]
    assert len(spent) <= calls
    assert sum(entry.output_tokens or 0 for entry in spent) <= output_tokens
    assert sum(entry.prompt_tokens or 0 for entry in spent) <= 1.5 * input_tokens


def test_ctrl_c_at_the_question_keeps_what_was_found(provider: Emulator) -> None:
    with asked_on_a_terminal(provider) as (process, _, _):
        printed = None
        while printed is None:
            # Python forgets a signal that comes just before it begins to read: one presses again.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                printed, _ = process.communicate(timeout=10)

    assert process.returncode == 130
    assert "1 listed: instant" in printed
    assert "INTERRUPTED: only the checks up to then are shown." in printed
    assert sum(entry.output_tokens or 0 for entry in provider.log()) == 0


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

    assert (key_variable(url) == "OPENAI_API_KEY") is shown
