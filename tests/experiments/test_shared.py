"""Processes and machines share an experiment, through restarts, forks and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane.experiments import Experiment, ExperimentRecord, unit
from scripts.servers import RedisServer
from tests.experiments.conftest import Make, arm_of, ask
from tests.waiting import until

PROCESS = """
import json, sys, time
import fastlane
from fastlane import Connection
from fastlane.experiments import Experiment, unit
from tests.experiments.conftest import Mark, ask

settings = json.loads(sys.argv[1])
arms = {"control": (Connection(),), "mark": (Connection(), Mark())}
experiment = Experiment(settings["name"], arms, share={"mark": 0.5}, store=settings["store"])
client = fastlane.OpenAI(api_key="sk-test", base_url=settings["base_url"], experiment=experiment)
arms = []
for number in range(settings["calls"]):
    with unit(f"user-{number}"):
        ask(client)
    arms.append(client.last_call.experiment.arm)
if settings.get("flushes", True):
    experiment.flush()
if settings.get("ends"):
    experiment.end("mark")
print(json.dumps(arms), flush=True)
if settings.get("waits"):
    ask(client)
    time.sleep(60)
"""


def process(base_url: str, store: Any, calls: int = 20, **settings: Any) -> subprocess.Popen[str]:
    settings_json = json.dumps(
        {"name": "mark-2026", "base_url": base_url, "store": str(store), "calls": calls, **settings}
    )
    return subprocess.Popen([sys.executable, "-c", PROCESS, settings_json], stdout=subprocess.PIPE, text=True)


def arms_of_process(one: subprocess.Popen[str]) -> list[str]:
    out, _ = one.communicate(timeout=300)
    assert one.returncode == 0
    return list(json.loads(out))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "redis"])
def test_processes_assign_alike_and_count_together(
    request: pytest.FixtureRequest, arguments: dict[str, Any], make: Make, tmp_path: Path, kind: str
) -> None:
    name = f"test-{os.urandom(4).hex()}"
    store = tmp_path / "shared.sqlite" if kind == "file" else request.getfixturevalue("redis_server").url
    experiment = make(name, store=store)
    both = [process(arguments["base_url"], store, name=name) for _ in range(2)]

    one, other = map(arms_of_process, both)
    assert one == other == [experiment.arm_of(f"user-{number}") for number in range(20)]
    report = experiment.report()
    assert {arm.name: arm.calls for arm in report.arms} == {arm: 2 * one.count(arm) for arm in ("control", "mark")}

    experiment.end("mark")
    assert make(name, store=store).report()["mark"].ended is not None


def test_arm_ended_in_one_process_ends_in_the_others(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    experiment = make()
    with fastlane.OpenAI(**arguments, experiment=experiment) as client:

        def ended() -> bool:
            for number in range(10):
                with unit(f"user-{number}"):
                    ask(client)
                if arm_of(client) == "mark":
                    return False
            return True

        assert not ended()
        arms_of_process(process(arguments["base_url"], tmp_path / "experiment.sqlite", calls=0, ends=True))
        until(ended)


def test_killed_process_loses_its_last_second_at_most(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    killed = process(arguments["base_url"], tmp_path / "experiment.sqlite", waits=True)
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()

    assert sum(arm.calls for arm in make().report().arms) in (20, 21)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_counts_its_own_calls(arguments: dict[str, Any], make: Make) -> None:
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


def test_concurrent_changes_at_a_redis_server_lose_nothing(make: Make, redis_server: RedisServer) -> None:
    name = f"test-{os.urandom(4).hex()}"
    several = [make(name, store=redis_server.url) for _ in range(6)]

    def work(one: Experiment) -> None:
        for number in range(10):
            record = ExperimentRecord(name=name, arm="mark", drawn="mark", unit_id_hash=f"{number:016x}")
            assert one.ledger.count(0.5, record)
            assert one.flush()

    with ThreadPoolExecutor(len(several)) as pool:
        list(pool.map(work, several))

    (quality,) = several[0].report()["mark"].comparisons
    assert quality.calls == 60


def test_redis_that_comes_back_gets_what_was_counted(
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
        assert "its store is unreachable" in report.problem
        assert arms == {"control", "mark"}
        assert sum(arm.calls for arm in report.arms) == 31

        # The new server is empty: it gets what was counted meanwhile.
        redis_of_its_own.start()
        assert experiment.flush()
        assert sum(arm.calls for arm in experiment.report().arms) == 30
    assert caplog.text.count("its store is unreachable") == 1


def test_last_calls_are_shared_at_exit(arguments: dict[str, Any], make: Make, tmp_path: Path) -> None:
    arms_of_process(process(arguments["base_url"], tmp_path / "experiment.sqlite", calls=5, flushes=False))

    assert sum(arm.calls for arm in make().report().arms) == 5
