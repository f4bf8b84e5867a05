"""Whatever breaks in an experiment or its store, calls go out."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane.experiments import unit
from fastlane.experiments._document import Document
from scripts.redis_server import RedisServer
from tests.experiments.conftest import MESSAGES, MODEL, Make, arm_of, ask

FILE = "experiment.sqlite"


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, " * 500)


def a_folder(path: Path) -> None:
    path.with_suffix(".sqlite-wal").mkdir()


def somebody_elses(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE fastlane_experiments (name TEXT, version INTEGER, document BLOB)")
        connection.execute("INSERT INTO fastlane_experiments VALUES ('mark-2026', 1, x'00112233')")
    connection.close()


BROKEN = [garbage, a_folder, somebody_elses]


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_with_a_file_that_cannot_be_read_calls_go_to_the_reference(
    arguments: dict[str, Any],
    make: Make,
    tmp_path: Path,
    breaks: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    breaks(tmp_path / FILE)
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for number in range(12):
            with unit(f"user-{number}"):
                ask(client)
            assert arm_of(client) == "control"
        record = client.last_call
        assert record is not None
        assert record.experiment is not None
        assert record.experiment.why == "unknown"
        report = experiment.report()

    assert report.problem is not None
    assert "its store is away" in report.problem
    assert "NOTE: its store is away" in str(report)
    assert caplog.text.count("its store is away") == 1
    assert experiment.arm_of("user-1") is None


@pytest.mark.parametrize("breaks", [garbage, somebody_elses], ids=lambda breaks: breaks.__name__)
def test_with_a_file_that_breaks_later_calls_go_on_to_their_arms(
    arguments: dict[str, Any], make: Make, tmp_path: Path, breaks: Callable[[Path], None]
) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask(client)
        for file in tmp_path.glob(f"{FILE}*"):
            file.unlink()
        breaks(tmp_path / FILE)
        arms = set()
        for _ in range(30):
            ask(client)
            arms.add(arm_of(client))
        assert not experiment.flush()
        report = experiment.report()

    assert arms == {"control", "mark"}
    assert sum(arm.calls for arm in report.arms) == 31


def test_a_file_that_is_locked_is_tried_again_later(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    experiment = make()
    holder = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            ask(client)
        assert not experiment.flush()
        holder.execute("ROLLBACK")
        holder.close()

        assert experiment.flush()
        assert sum(arm.calls for arm in experiment.report().arms) == 10
        assert experiment.report().problem is None


def test_a_full_disk_loses_counts_and_no_call(arguments: dict[str, Any], tmp_path: Path) -> None:
    code = """
import resource, signal, sys
import fastlane
from tests.experiments.conftest import CONTROL, Mark, ask
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
arms = {"control": CONTROL, "mark": (*CONTROL, Mark())}
experiment = fastlane.Experiment("one", arms, share={"mark": 0.5}, store=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
with fastlane.OpenAI(api_key="sk-test", base_url=sys.argv[2], experiment=experiment) as client:
    for _ in range(10):
        ask(client)
    print(experiment.flush(), sum(arm.calls for arm in experiment.report().arms), len(client.calls))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / FILE), arguments["base_url"]],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout.split() == ["False", "10", "10"], ran.stderr[-2000:]
    assert ran.stderr.count("its store is away") == 1


def test_a_redis_server_that_does_not_answer_delays_no_call(
    arguments: dict[str, Any], make: Make, redis_of_its_own: RedisServer
) -> None:
    experiment = make(store=redis_of_its_own.url)
    redis_of_its_own.pause()
    try:
        with fastlane.OpenAI(**arguments, experiment=experiment) as client:
            for _ in range(20):
                ask(client)
            assert {record.outcome for record in client.calls} == {"completed"}
            asking = threading.Thread(target=experiment.flush)
            asking.start()
            # While somebody waits for the server, scores do not.
            assert experiment.score(client.calls[0], quality=1.0)
            assert asking.is_alive()
            asking.join()
    finally:
        redis_of_its_own.resume()
    assert experiment.flush()


def test_without_a_redis_server_calls_go_to_the_reference(arguments: dict[str, Any], make: Make) -> None:
    with fastlane.OpenAI(**arguments, experiment=make(store="redis://127.0.0.1:9/0")) as client:
        for _ in range(10):
            ask(client)
            assert arm_of(client) == "control"


def test_a_function_for_units_that_raises_leaves_the_calls_to_the_client(
    arguments: dict[str, Any], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(body: Any) -> str:
        raise RuntimeError(f"what the user said: {body}")

    with fastlane.OpenAI(**arguments, experiment=make(unit=broken)) as client:
        for _ in range(5):
            ask(client)
        assert [record.experiment for record in client.calls] == [None] * 5

    assert caplog.text.count("could not assign a call (RuntimeError)") == 1
    assert "what the user said" not in caplog.text


def test_an_application_that_cannot_be_copied_keeps_to_the_reference(
    arguments: dict[str, Any], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Own(fastlane.OpenAI):
        def __init__(self, number: int, **options: Any) -> None:
            super().__init__(**options)
            self.number = number

    with Own(7, **arguments, experiment=make()) as client:
        for _ in range(20):
            ask(client)
            assert arm_of(client) == "control"
        why = {record.experiment.why for record in client.calls if record.experiment is not None}

    assert why == {None, "failed"}
    assert caplog.text.count("could not make a client for its arm 'mark' (TypeError)") == 1


def test_a_callback_that_raises_ends_the_arm_all_the_same(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def broken(ended: Any) -> None:
        raise RuntimeError("a secret")

    experiment = make(on_end=broken)
    experiment.end("mark")

    assert experiment.report()["mark"].ended is not None
    assert "on_end of the experiment 'mark-2026' raised RuntimeError" in caplog.text
    assert "a secret" not in caplog.text


def test_another_definition_that_comes_later_stops_the_assignment(
    arguments: dict[str, Any], make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = make()
    for file in tmp_path.glob(f"{FILE}*"):
        file.unlink()
    make(unit="user")
    with caplog.at_level(logging.WARNING), fastlane.OpenAI(**arguments, experiment=experiment) as client:
        assert not experiment.flush()
        for _ in range(10):
            ask(client)
            assert arm_of(client) == "control"

    assert "is kept with another definition: its unit was 'user', and is None" in caplog.text


@pytest.mark.asyncio
async def test_nothing_waits_for_the_store_on_an_event_loop(
    arguments: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    experiment = make()
    holder = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    async with fastlane.AsyncOpenAI(**arguments, experiment=experiment) as client:
        for _ in range(10):
            await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert len(client.calls) == 10
    holder.close()


@pytest.mark.parametrize("at", [0, 3, 4, 40, 200, -1])
def test_a_document_that_is_cut_off_or_changed_is_refused_as_such(make: Make, at: int) -> None:
    experiment = make(store=":memory:")
    document = experiment._ledger.known()
    assert document is not None
    document.sums_of("mark").add(0, 0, 1.0)
    written = document.to_bytes()

    assert Document.from_bytes(written).to_bytes() == written
    for damaged in (written[:at], bytes([*written[:at], written[at] ^ 0x41, *written[at + 1 :]]) if at >= 0 else b""):
        try:
            Document.from_bytes(damaged)
        except ValueError:
            pass  # and nothing else
