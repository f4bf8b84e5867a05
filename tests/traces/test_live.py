"""`fastlane live` follows the files of running applications."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fastlane._clock import wall_ns
from fastlane.emulator import Emulator, preset
from fastlane.traces._live import Follower, LiveServer
from tests.programs import run_python
from tests.traces.recorded import MODEL, START_NS, everyday, recording
from tests.waiting import until

APPLICATION = """
import fastlane, fastlane.telemetry, os, pathlib, time
fastlane.telemetry.configure()
files = pathlib.Path(os.environ["FASTLANE_TRACE_DIR"])
with fastlane.OpenAI(api_key="the-key-is-snipe") as client:
    for number in range(3):
        stream = client.chat.completions.create(
            model="large", messages=[{"role": "user", "content": "the-launch-code-is-plover"}], stream=True,
            stream_options={"include_usage": True},
        )
        for at, _ in enumerate(stream):
            if (number, at) == (2, 3):
                time.sleep(3)
                print(*(path.read_text() for path in files.glob("*.running")))
deadline = time.monotonic() + 20
while list(files.glob("*.running")) and time.monotonic() < deadline:
    time.sleep(0.1)
print(*files.glob("*.running*"))
"""


def some_calls(path: Path, *times_to_first_token_ms: float, **attributes: object) -> Path:
    with recording(path) as made:
        for at, each in enumerate(times_to_first_token_ms):
            chat = made.chat(at * 1_000, at * 1_000 + each + 200, ttft=each, **attributes)  # type: ignore[arg-type]
            made.attempt(chat, at * 1_000, wait=each - 10, cold=each > 300)
    return path


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_each_call_is_a_row_once(follower: Follower, tmp_path: Path) -> None:
    assert follower.poll() == []

    everyday(tmp_path / "one.jsonl")
    first = follower.poll()
    some_calls(tmp_path / "two.jsonl", 100.0, 110.0)
    second = follower.poll()

    assert any(row.error is not None for row in first)
    assert [row.time_to_first_token_s for row in second] == [0.1, 0.11]
    assert follower.poll() == []
    assert follower.saved.calls == len(first) + len(second) == len(follower.rows)


def test_line_that_is_not_whole_yet_waits_for_its_end(tmp_path: Path) -> None:
    data = some_calls(tmp_path / "calls.json", 100.0).read_bytes()
    growing = tmp_path / "growing.jsonl"
    follower = Follower(tmp_path)

    growing.write_bytes(data[:100])
    assert follower.poll() == []
    growing.write_bytes(data)
    assert len(follower.poll()) == 1
    with growing.open("ab") as file:
        file.write(b"no JSON\n")
    assert follower.poll() == []


def test_earlier_calls_are_left_out_on_request(tmp_path: Path) -> None:
    some_calls(tmp_path / "old.jsonl", 100.0, 100.0)
    follower = Follower(tmp_path)
    follower.skip()
    some_calls(tmp_path / "new.jsonl", 120.0)

    assert [row.time_to_first_token_s for row in follower.poll()] == [0.12]


def test_slow_call_row_lists_its_reasons(follower: Follower, tmp_path: Path) -> None:
    some_calls(tmp_path / "usual.jsonl", *[100.0] * 8)
    assert not any(row.is_slow or row.reasons for row in follower.poll())

    with recording(tmp_path / "slow.jsonl") as made:
        chat = made.chat(0, 900, ttft=400, phases={"dns": 20, "connect": 40, "tls": 60}, server=200)
        made.attempt(chat, 0, cold=True, wait=300)
        retried = made.chat(2_000, 4_000, ttft=1_500, server=100)
        _, ended = made.attempt(retried, 2_000, status=429, wait=50)
        made.attempt(retried, ended + 1_200, number=2, kind="retry", wait=90)
        made.chat(
            5_000, 5_400, ttft=105, fastlane__cache__mismatch_reason="timestamp", fastlane__cache__lost_tokens=1_666,
            fastlane__cache__mismatch_path="messages[0].content",
        )  # fmt: skip
        made.chat(6_000, 6_900, ttft=600, phases={"send": 2}, server=98, fastlane__admission__wait__duration=0.5)
    connecting, limited, missed, queued = follower.poll()

    assert connecting.is_slow
    assert limited.is_slow
    assert not missed.is_slow
    assert any(reason.startswith("server ") for reason in connecting.reasons)
    assert any(reason.startswith("429 ") for reason in limited.reasons)
    assert missed.reasons == ("cache miss: timestamp in messages[0].content, 1,666 tokens",)
    assert queued.reasons == ("queue 500 ms",)
    assert follower.saved.slow == 3


def write_running(path: Path, *start_ns: int, at_ns: int | None = None, **fields: object) -> None:
    call = {"model": "large", "stream": True, "attempts": 1, "first_token_s": 0.1, "chunks": 12} | fields
    calls = [{"start_ns": each, **call} for each in start_ns]
    path.write_text(json.dumps({"at_ns": wall_ns() if at_ns is None else at_ns, "calls": calls}))


def test_running_call_has_a_row_until_it_has_ended(follower: Follower, tmp_path: Path) -> None:
    write_running(tmp_path / "a.running", START_NS, wall_ns() - 2_000_000_000)

    first, second = follower.running()
    some_calls(tmp_path / "a.jsonl", 100.0)
    follower.poll()

    assert (first.is_running, first.time_to_first_token_s, first.reasons) == (True, 0.1, ("12 chunks",))
    assert 2 <= second.duration_s < 60
    assert [row.at_ms for row in follower.running()] == [second.at_ms]
    (tmp_path / "a.running").unlink()
    until(lambda: follower.running() == [])


def test_running_calls_of_a_process_that_died_are_not_shown(follower: Follower, tmp_path: Path) -> None:
    write_running(tmp_path / "a.running", START_NS, at_ns=wall_ns() - 60_000_000_000)
    (tmp_path / "b.running").write_text('{"at_ns": 1}')
    (tmp_path / "c.running").write_text('{"calls": [')

    assert follower.running() == []


def test_waiting_call_row_shows_its_wait_and_can_be_slow(follower: Follower, tmp_path: Path) -> None:
    some_calls(tmp_path / "usual.jsonl", *[100.0] * 8)
    follower.poll()
    write_running(tmp_path / "a.running", START_NS + 1_000_000, model=MODEL, first_token_s=None, chunks=0, attempts=0)

    (row,) = follower.running()

    assert row.is_slow
    assert row.reasons == ("not sent yet",)


def test_memory_is_bounded(follower: Follower, tmp_path: Path) -> None:
    some_calls(tmp_path / "many.jsonl", *[100.0] * 900)

    follower.poll()

    assert len(follower.rows) == 500
    assert follower.saved.calls == 900


def test_calls_of_a_long_user_action_are_counted_once(follower: Follower, tmp_path: Path) -> None:
    with recording(tmp_path / "action.jsonl") as made:
        action = made.span("invoke_workflow research", 0, 90_000, gen_ai__operation__name="invoke_workflow")
        for at in range(600):
            made.chat(at * 100, at * 100 + 90, parent=action)
    assert len(follower.poll()) == 600
    with recording(tmp_path / "more.jsonl") as made:
        made.chat(70_000, 70_100, parent=action)

    assert len(follower.poll()) == 1
    assert follower.saved.calls == 601


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(Follower(tmp_path), 0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def test_live_page_needs_the_secret_in_its_url(server: LiveServer, tmp_path: Path) -> None:
    some_calls(tmp_path / "calls.jsonl", 100.0)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
    statuses = {}
    for path in ("/", "/calls", "/guess/calls", f"/{server.secret}/calls"):
        connection.request("GET", path)
        answer = connection.getresponse()
        statuses[path], text = answer.status, answer.read()
    connection.close()

    assert list(statuses.values()) == [404, 404, 404, 200]
    assert json.loads(text)["saved"]["calls"] == 1


def test_page_shows_calls_as_they_come(server: LiveServer, tmp_path: Path, browser: Browser) -> None:
    console: list[str] = []
    page = browser.new_page(viewport={"width": 1_280, "height": 700})
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.goto(server.url)
    expect(page.get_by_role("status")).to_have_text("Waiting for the first call.")

    some_calls(tmp_path / "calls.jsonl", 100.0, 100.0)
    rows = page.locator("#calls tbody tr")
    expect(rows).to_have_count(2, timeout=20_000)
    expect(page.locator("#saved")).to_contain_text("19,200 tokens, 91 %")
    write_running(tmp_path / "a.running", wall_ns(), model="<i>mid", first_token_s=None, chunks=0)
    expect(rows).to_have_count(3, timeout=20_000)
    expect(rows.first).to_contain_text("running · no token yet")
    expect(rows.first).to_contain_text("<i>mid")
    (tmp_path / "a.running").unlink()
    expect(rows).to_have_count(2, timeout=20_000)
    some_calls(
        tmp_path / "more.jsonl", 400.0, fastlane__cache__mismatch_reason="<b>timestamp", model="<img src=x>",
        fastlane__route__price=0.00123,
    )  # fmt: skip
    expect(rows).to_have_count(3, timeout=20_000)
    expect(rows.first).to_contain_text("cache miss: <b>timestamp")
    expect(rows.first).to_contain_text("<img src=x>")
    expect(rows.first).to_contain_text("0.00123")
    expect(rows.first).to_contain_text("new")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1_280
    assert console == []
    page.close()


@pytest.mark.slow
def test_running_application_is_followed_on_a_terminal(tmp_path: Path) -> None:
    environment = {**os.environ, "FASTLANE_TRACE_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "fastlane", "live", "--text"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as live:
        try:
            with Emulator(model=preset("instant")) as emulator:
                its = {**environment, **emulator.environment, "OPENAI_BASE_URL": emulator.base_url}
                application = [sys.executable, "-c", APPLICATION]
                done = subprocess.run(application, env=its, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
            assert live.stdout is not None
            under_way, lines = list[str](), list[str]()
            while len(lines) < 3:
                line = live.stdout.readline()
                (under_way if "running" in line else lines).append(line)
        finally:
            live.send_signal(signal.SIGINT)
    assert live.returncode == 0
    running, left = done.stdout.splitlines()
    (call,) = json.loads(running)["calls"]
    assert (call["model"], call["stream"], call["attempts"], call["chunks"] > 0) == ("large", True, 1, True)
    assert call["first_token_s"] > 0
    assert "plover" not in running
    assert "snipe" not in running
    assert left == ""
    assert under_way
    assert all("chunks" in line or " yet" in line for line in under_way)
    assert all("large" in line and "first token" in line for line in lines)
    assert "new connection" in lines[0]
    assert "connection reused" in lines[1]
    assert not any("plover" in path.read_text() for path in tmp_path.iterdir())


def test_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run_python("-m", "fastlane", "live", str(tmp_path / "none"))

    assert done.returncode == 2
    assert "is no directory of trace files yet" in done.stderr
