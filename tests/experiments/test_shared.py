"""Processes and machines share an experiment, through restarts, forks and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import Experiment
from fastlane.experiments import unit
from scripts.redis_server import RedisServer
from tests.experiments.conftest import CONTROL, Make, arm_of, ask
from tests.knowledge.redis_servers import eventually

PROCESS = """
import json, os, sys, time
import fastlane
from fastlane import Connection, Experiment
from fastlane.experiments import unit
from tests.experiments.conftest import BAD_REQUEST, Mark, ask

settings = json.loads(sys.argv[1])
plays = (Connection(), BAD_REQUEST if settings.get("broken") else Mark())
experiment = Experiment(
    settings["name"], {"control": (Connection(),), "mark": plays}, share={"mark": 0.5}, store=settings["store"]
)
with fastlane.OpenAI(api_key="sk-test", base_url=settings["base_url"], experiment=experiment) as client:
    arms = []
    for number in range(settings["calls"]):
        with unit(f"user-{number}"):
            try:
                ask(client)
            except fastlane.BadRequestError:
                pass
        arms.append(client.last_call.experiment.arm)
    experiment.flush()
    print(json.dumps(arms), flush=True)
    if settings.get("waits"):
        ask(client)
        time.sleep(60)
"""


def process(base_url: str, store: Any, calls: int = 20, **settings: Any) -> subprocess.Popen[str]:
    told = json.dumps({"name": "mark-2026", "base_url": base_url, "store": str(store), "calls": calls, **settings})
    return subprocess.Popen([sys.executable, "-c", PROCESS, told], stdout=subprocess.PIPE, text=True)


def arms_said(one: subprocess.Popen[str]) -> list[str]:
    out, _ = one.communicate(timeout=60)
    assert one.returncode == 0
    return list(json.loads(out))


def test_two_processes_draw_alike_and_count_together(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    experiment = make()
    both = [process(arguments["base_url"], tmp_path / "experiment.sqlite") for _ in range(2)]

    one, other = map(arms_said, both)
    assert one == other == [experiment.arm_of(f"user-{number}") for number in range(20)]
    report = experiment.report()
    assert {arm.name: arm.calls for arm in report.arms} == {arm: 2 * one.count(arm) for arm in ("control", "mark")}
    assert sum(arm.units for arm in report.arms) == 20


def test_an_arm_that_one_process_ends_ends_in_the_others(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    from tests.experiments.conftest import BAD_REQUEST

    told: list[Any] = []
    arms = {"control": CONTROL, "mark": (*CONTROL, BAD_REQUEST)}
    experiment = make(arms=arms, on_end=told.append)
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask_quietly(client)  # which begins the thread that hears of it
        arms_said(process(arguments["base_url"], tmp_path / "experiment.sqlite", calls=80, broken=True))

        assert eventually(lambda: bool(told))
        for number in range(10):
            with unit(f"user-{number}"):
                ask(client)
            assert arm_of(client) == "control"


def ask_quietly(client: fastlane.OpenAI) -> None:
    try:
        ask(client)
    except fastlane.BadRequestError:
        pass


def test_a_restart_goes_on_where_it_was(arguments: dict[str, Any], make: Make) -> None:
    for _ in range(2):
        experiment = make()
        with fastlane.OpenAI(**arguments, experiment=experiment) as client:
            for _ in range(5):
                ask(client)
        experiment.close()

    assert sum(arm.calls for arm in make().report().arms) == 10


def test_a_process_that_is_killed_loses_its_last_batch_at_most(
    arguments: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    killed = process(arguments["base_url"], tmp_path / "experiment.sqlite", waits=True)
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()

    assert sum(arm.calls for arm in make().report().arms) in (20, 21)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_counts_what_it_did_and_nothing_else(arguments: dict[str, Any], make: Make) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        for _ in range(5):
            ask(client)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with fastlane.OpenAI(**arguments, experiment=experiment) as own:
                    for _ in range(3):
                        ask(own)
                    code = 0 if experiment.flush() else 2
            finally:
                os._exit(code)
        for _ in range(4):
            ask(client)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert sum(arm.calls for arm in experiment.report().arms) == 12


def test_machines_share_a_redis_server(arguments: dict[str, Any], make: Make, redis_server: RedisServer) -> None:
    name = f"test-{os.urandom(4).hex()}"
    experiment = make(name, store=redis_server.url)
    both = [process(arguments["base_url"], redis_server.url, name=name) for _ in range(2)]

    one, other = map(arms_said, both)
    assert one == other == [experiment.arm_of(f"user-{number}") for number in range(20)]
    assert sum(arm.calls for arm in experiment.report().arms) == 40

    experiment.end("mark")
    again = make(name, store=redis_server.url)
    assert again.report()["mark"].ended is not None


def test_many_at_once_at_a_redis_server_lose_nothing(make: Make, redis_server: RedisServer) -> None:
    import threading

    name = f"test-{os.urandom(4).hex()}"
    several = [make(name, store=redis_server.url) for _ in range(6)]

    def work(one: Experiment) -> None:
        for number in range(10):
            one._ledger.add_score("mark", f"{number:016x}", 1, 6, 0.5, count=1.0)
            assert one.flush()

    threads = [threading.Thread(target=work, args=(one,)) for one in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (quality,) = several[0].report()["mark"].comparisons
    assert quality.calls == 60


def test_a_redis_server_that_goes_away_and_comes_back_loses_nothing_that_was_counted(
    arguments: dict[str, Any], make: Make, redis_of_its_own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = make(store=redis_of_its_own.url)
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:
        ask(client)
        assert experiment.flush()
        redis_of_its_own.kill()
        arms = set()
        for _ in range(30):
            ask(client)
            arms.add(arm_of(client))
        report = experiment.report()
        assert report.problem is not None
        assert "its store is away" in report.problem
        # What is known here is known.
        assert arms == {"control", "mark"}
        assert sum(arm.calls for arm in report.arms) == 31

        # It keeps nothing: it is told anew what this process knows.
        redis_of_its_own.start()
        assert experiment.flush()
        assert sum(arm.calls for arm in experiment.report().arms) == 31
    assert caplog.text.count("its store is away") == 1


def test_what_was_counted_last_is_told_at_exit_though_nobody_holds_the_experiment(
    arguments: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    code = """
import sys
import fastlane
from tests.experiments.conftest import Mark, ask

def main():
    arms = {"control": (fastlane.Connection(),), "mark": (fastlane.Connection(), Mark())}
    experiment = fastlane.Experiment("mark-2026", arms, share={"mark": 0.5}, store=sys.argv[1])
    client = fastlane.OpenAI(api_key="sk-test", base_url=sys.argv[2], experiment=experiment)
    for _ in range(5):
        ask(client)

main()
"""
    store = tmp_path / "experiment.sqlite"
    subprocess.run([sys.executable, "-c", code, str(store), arguments["base_url"]], check=True, timeout=60)

    assert sum(arm.calls for arm in make(store=store).report().arms) == 5


def test_a_store_that_is_emptied_under_way_is_filled_again(make: Make, tmp_path: Path) -> None:
    experiment = make(share={"mark": 0.1})
    experiment.ramp(mark=0.4)
    units = [f"user-{number}" for number in range(200)]
    before = [experiment.arm_of(one) for one in units]
    experiment.end("mark")
    for file in tmp_path.glob("experiment.sqlite*"):
        file.unlink()

    report = experiment.report()
    assert (report.stage, report["mark"].share) == (2, 0.4)
    assert report["mark"].ended is not None
    experiment.resume("mark")
    assert [make(share={"mark": 0.1}).arm_of(one) for one in units] == before
