"""Whatever breaks in an experiment or its store, calls go out."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import Connection
from fastlane.experiments import unit
from scripts.servers import RedisServer
from tests.experiments.conftest import CONTROL, Make, Mark, arm_of, ask
from tests.programs import run_python
from tests.waiting import Form

FILE = "experiment.sqlite"
ARMS = {"control": CONTROL, "mark": (Connection(), Mark())}


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, " * 500)


def a_folder(path: Path) -> None:
    path.with_suffix(".sqlite-wal").mkdir()


def other_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE fastlane_experiments (name TEXT, version INTEGER, document BLOB)")
    connection.close()


def other_state(path: Path) -> None:
    fastlane.experiments.Experiment("mark-2026", ARMS, share={"mark": 0.5}, store=path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE fastlane_experiments SET state = '{\"arms\": 7}'")
    connection.close()


BROKEN = [garbage, a_folder, other_table, other_state]


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_unreadable_file_sends_calls_to_the_reference(
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
        record: Any = client.last_call
        assert record.experiment.why == "unknown"
        report = experiment.report()

    assert report.problem is not None
    assert "its store is unreachable" in report.problem
    assert "NOTE: its store is unreachable" in str(report)
    assert caplog.text.count("its store is unreachable") == 1
    assert experiment.arm_of("user-1") is None


@pytest.mark.parametrize("breaks", [garbage, other_table, other_state], ids=lambda breaks: breaks.__name__)
def test_file_that_breaks_later_keeps_calls_in_their_arms(
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


def test_locked_file_is_tried_again_later(arguments: dict[str, Any], make: Make, tmp_path: Path, form: Form) -> None:
    experiment = make()
    holder = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with form.make(fastlane, **arguments, experiment=experiment) as client:
        for _ in range(10):
            ask(client)
        assert not experiment.flush()
        holder.execute("ROLLBACK")
        holder.close()

        assert experiment.flush()
        assert sum(arm.calls for arm in experiment.report().arms) == 10
        assert experiment.report().problem is None


@pytest.mark.slow
def test_full_disk_loses_no_call(arguments: dict[str, Any], tmp_path: Path) -> None:
    code = """
import resource, signal, sys
import fastlane
from tests.experiments.conftest import CONTROL, Mark, ask
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
arms = {"control": CONTROL, "mark": (*CONTROL, Mark())}
experiment = fastlane.experiments.Experiment("one", arms, share={"mark": 0.5}, store=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
with fastlane.OpenAI(api_key="sk-test", base_url=sys.argv[2], experiment=experiment) as client:
    for _ in range(10):
        ask(client)
    print(experiment.flush(), sum(arm.calls for arm in experiment.report().arms), len(client.calls))
"""
    ran = run_python("-c", code, str(tmp_path / FILE), arguments["base_url"])

    assert ran.stdout.split() == ["False", "10", "10"], ran.stderr[-2000:]
    assert ran.stderr.count("its store is unreachable") == 1


def test_hanging_redis_delays_no_call(arguments: dict[str, Any], make: Make, redis_of_its_own: RedisServer) -> None:
    experiment = make(store=redis_of_its_own.url)
    redis_of_its_own.signal(signal.SIGSTOP)
    try:
        with fastlane.OpenAI(**arguments, experiment=experiment) as client:
            for _ in range(20):
                ask(client)
            assert {record.outcome for record in client.calls} == {"completed"}
            asking = threading.Thread(target=experiment.flush)
            asking.start()
            # Scores do not wait while another thread waits for the server.
            assert experiment.score(client.calls[0], quality=1.0)
            assert asking.is_alive()
            asking.join()
    finally:
        redis_of_its_own.signal(signal.SIGCONT)
    assert experiment.flush()


def test_unit_function_that_raises_leaves_calls_to_the_client(
    arguments: dict[str, Any], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(body: Any) -> str:
        raise RuntimeError(f"what the user said: {body}")

    with fastlane.OpenAI(**arguments, experiment=make(unit=broken)) as client:
        for _ in range(5):
            ask(client)
        assert [record.experiment for record in client.calls] == [None] * 5

    assert caplog.text.count("could not assign a call: it goes by the client's own plays (RuntimeError") == 1
    assert "what the user said" not in caplog.text


def test_client_that_cannot_be_copied_uses_the_reference(
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
    assert caplog.text.count("could not make a client for an arm: its calls go to the reference arm (TypeError") == 1
