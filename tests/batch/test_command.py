"""`fastlane batch`: what each command prints, writes and exits with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fastlane.batch import Queue
from fastlane.emulator import Emulator
from scripts.servers import PostgresServer
from tests.batch.conftest import advanced, claim
from tests.batch.offline_parts import batch, body, states, submit
from tests.waiting import until

RUN = ["--until-empty", "--lane", "batch", "--set", "linger_s=0", "--set", "poll_s=0.02"]


def lines_of(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def line(key: str, number: int) -> dict[str, Any]:
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body(number)}


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


def test_submit_run_and_results_write_openai_batch_format(provider: Emulator, where: Path, tmp_path: Path) -> None:
    file = lines_of(tmp_path / "jobs.jsonl", line("ä", 1), line("c", 2), line("b", 3))

    assert batch("submit", where, file).stdout == "3 jobs, 3 of them new\n"
    assert batch("submit", where, file).stdout == "3 jobs, 0 of them new\n"
    ran = batch("run", where, "--base-url", provider.base_url, *RUN)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "3 done\n" in ran.stderr
    status_shown = json.loads(batch("status", where, "--json").stdout)
    assert (status_shown["total"], status_shown["over"], status_shown["jobs"]["done"]) == (3, 3, 3)
    assert status_shown["output_tokens"] == 9
    out = batch("results", where)
    answers = {answer["custom_id"]: answer for answer in map(json.loads, out.stdout.splitlines())}
    assert set(answers) == {"ä", "c", "b"}
    assert answers["b"]["error"] is None
    assert answers["b"]["response"]["status_code"] == 200
    assert answers["b"]["response"]["body"]["object"] == "chat.completion"
    assert "3 answers up to number 3; 0 jobs are unfinished" in out.stderr

    written = tmp_path / "out.jsonl"
    assert batch("results", where, "--out", written, "--after", "2").exit_code == 0
    assert len(written.read_text().splitlines()) == 1


@pytest.mark.parametrize("found", ["nothing", "an empty file"])
@pytest.mark.parametrize("command", ["run", "status", "results", "cancel --all", "retry --all"])
def test_command_without_a_queue_is_an_error(
    monkeypatch: pytest.MonkeyPatch, where: Path, command: str, found: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    if found == "an empty file":
        where.touch()
    before = list(where.parent.iterdir())
    name, *options = command.split()
    ran = batch(name, where, *options)
    assert ran.exit_code == 2
    assert f"there is no queue {str(where)!r}" in ran.stderr
    assert "fastlane batch submit" in ran.stderr
    assert list(where.parent.iterdir()) == before


def test_command_without_a_schema_is_an_error(postgres_server: PostgresServer) -> None:
    schema = f"test_{uuid4().hex}"
    ran = batch("status", postgres_server.url, "--schema", schema)
    assert ran.exit_code == 2
    assert f"there is no queue 'postgresql://127.0.0.1:{postgres_server.port}/" in ran.stderr
    assert schema in ran.stderr
    assert postgres_server.password not in ran.stderr
    with Queue(postgres_server.url, schema=schema) as queue:
        submit(queue, [0])
    assert batch("status", postgres_server.url, "--schema", schema).exit_code == 0


def test_failed_jobs_are_written_with_errors_and_can_be_retried(
    provider: Emulator, where: Path, tmp_path: Path
) -> None:
    batch("submit", where, lines_of(tmp_path / "jobs.jsonl", line("a", 1)))
    provider.change(batches={"server_error_share": 1.0})
    assert batch("run", where, "--base-url", provider.base_url, *RUN, "--set", "max_attempts=1").exit_code == 0
    failed = json.loads(batch("results", where).stdout)
    assert failed["response"]["status_code"] == 500

    assert batch("retry", where, "--all").stdout == "1 jobs wait again\n"
    assert batch("retry", where).exit_code == 2
    assert batch("retry", where, "a", "--all").exit_code == 2


def test_cancelled_jobs_are_sent_no_more(where: Path, tmp_path: Path) -> None:
    batch("submit", where, lines_of(tmp_path / "jobs.jsonl", line("a", 1), line("b", 2)))

    assert batch("cancel", where, "a").stdout == "1 cancelled, 0 under way and not sent again\n"
    assert json.loads(batch("results", where).stdout)["error"]["code"] == "cancelled"
    unknown = batch("cancel", where, "c")
    assert (unknown.exit_code, "'c'" in unknown.stderr) == (2, True)
    assert batch("cancel", where).exit_code == 2
    assert batch("cancel", where, "--all").stdout == "1 cancelled, 0 under way and not sent again\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "line 2: expected JSON"),
        ("[]", "line 2: expected an object"),
        ('{"custom_id": 1, "body": {}}', "line 2: expected"),
        ('{"custom_id": "x", "method": "GET", "url": "/v1/chat/completions", "body": {}}', "POST"),
        (json.dumps({**line("x", 7), "body": {**body(7), "stream": True}}), "stream"),
        (json.dumps(line("a", 7)), "'a'"),
    ],
)
def test_invalid_job_line_is_reported_without_its_content(
    where: Path, tmp_path: Path, wrong: str, message: str
) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text(json.dumps(line("a", 1)) + "\n" + wrong + "\n")

    result = batch("submit", where, file)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "job number" not in result.output


def test_invalid_arguments_are_refused_with_a_remedy(
    where: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OTHER", "sk-secret")
    for arguments, code, message in (
        (["run", where], 2, "OPENAI_API_KEY"),
        (["run", where, "--base-url", "https://api.example.com/v1"], 2, "--api-key-env"),
        (["run", where, "--base-url", "https://api.example.com/v1", "--api-key-env", "NONE"], 2, "NONE"),
        (["run", where, "--lane", "bus"], 2, "lane"),
        (["run", where, "--set", "linger=0"], 2, "linger_s"),
        (["run", where, "--set", "linger_s"], 2, "NAME=VALUE"),
        (["submit", where, tmp_path / "none.jsonl"], 2, "No such file"),
        (["status", "mysql://host/db"], 2, "postgresql://"),
    ):
        result = batch(*arguments)

        assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
        assert "sk-secret" not in result.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_unwritable_output_is_reported_in_one_line(where: Path, tmp_path: Path) -> None:
    batch("submit", where, lines_of(tmp_path / "jobs.jsonl", line("a", 1)))
    batch("cancel", where, "a")
    for out, message in ((tmp_path / "none" / "out", "No such file"), ("/dev/full", "No space left")):
        result = batch("results", where, "--out", out)

        assert (result.exit_code, result.stderr.count("\n"), message in result.stderr) == (1, 1, True)


@pytest.mark.slow
def test_results_into_a_closed_pipe_print_no_error(where: Path, tmp_path: Path) -> None:
    batch("submit", where, lines_of(tmp_path / "jobs.jsonl", *(line(str(number), number) for number in range(2_000))))
    batch("cancel", where, "--all")
    command = f"{sys.executable} -m fastlane batch results {where} | head -1"

    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300)

    assert json.loads(ended.stdout)["custom_id"] == "0"
    assert ended.stderr == ""


def test_status_reports_no_worker_and_retry_abandons_origin(where: Path, tmp_path: Path) -> None:
    submitted = batch("submit", where, lines_of(tmp_path / "jobs.jsonl", *(line(key, 1) for key in "abc")))
    assert "no worker runs" in submitted.stderr
    assert "no worker runs" in batch("status", where).stdout
    gone = "https://gone.example/v1"
    with Queue(where) as queue:
        advanced(queue.storage, claim(queue.storage, origin=f"{gone}/", model="model", most_requests=2, lease_s=-1.0))
        leased = claim(queue.storage, "alive", origin=f"{gone}/", model="model")
        queue.cancel("b")

        assert batch("retry", where, "--abandon", "https://elsewhere.example").stdout == "0 jobs wait again\n"
        assert batch("retry", where, "--abandon", gone).stdout == "2 jobs wait again\n"
        assert [queue.job(key).state for key in "abc"] == ["waiting", "cancelled", "packed"]
        assert queue.status().batches == (leased,)
    assert batch("retry", where, "--abandon", gone, "--all").exit_code == 2


def is_at_the_provider(queue: Queue) -> bool:
    return [batch.state for batch in queue.status().batches] == ["created"]


@pytest.mark.slow
def test_signalled_worker_exits_and_reports_unfinished_jobs(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"duration_s": 600.0})
    asked = {signal.SIGTERM: 0, signal.SIGINT: 130}
    queues = {number: Queue(tmp_path / f"{number}.sqlite") for number in asked}
    running = {}
    for number, queue in queues.items():
        submit(queue, range(2))
        command = [sys.executable, "-m", "fastlane", "batch", "run", queue.storage.name, *RUN]
        command += ["--base-url", provider.base_url]
        running[number] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for number, queue in queues.items():
        with running[number] as process, queue:
            until(partial(is_at_the_provider, queue))
            process.send_signal(number)
            _, errors = process.communicate()

            assert process.returncode == asked[number]
            assert "2 packed. Run the command again to go on" in errors
            assert states(queue) == {"packed": 2}
