"""A worker in a thread of the application's own process: it begins, ends, and stays behind in a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastlane.batch import Queue, WorkerDeniedError
from fastlane.emulator import Emulator
from tests.batch.offline_parts import QUICK, queue_of, states, submit, wait_until

PROGRAM = """
import sys
from fastlane import OpenAI
from fastlane.batch import Queue, WorkerSettings

queue = Queue(sys.argv[1], OpenAI(base_url=sys.argv[2], api_key="sk-test"), worker=WorkerSettings(**{settings}))
queue.start()
queue.submit({{"model": "m", "messages": [{{"role": "user", "content": "x"}}]}}, key="0")
while not queue.status().batches or queue.status().batches[0].state != "created":
    pass
print("at the provider")
"""


def test_it_begins_and_ends_as_often_as_it_is_told_to(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider) as queue:
        for number in range(3):
            submit(queue, [number])
            queue.start()
            queue.start()
            queue.wait(timeout_s=60)
            assert queue.stop(timeout_s=60)

        assert states(queue) == {"done": 3}


def test_who_waits_is_told_why_the_worker_has_ended(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("status=403")
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, [1])
        queue.start()

        with pytest.raises(WorkerDeniedError, match="403"):
            queue.wait(timeout_s=60)


@pytest.mark.slow
def test_the_end_of_the_process_ends_it_and_what_it_has_begun_is_free_at_once(
    provider: Emulator, tmp_path: Path
) -> None:
    provider.change(batches={"duration_s": 600.0})
    where = tmp_path / "q"
    program = PROGRAM.format(settings=repr({**QUICK, "lease_s": 3_600.0}))

    ended = subprocess.run(
        [sys.executable, "-c", program, str(where), provider.base_url],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "at the provider\n", "")
    provider.change(batches={"duration_s": 0.1})
    with Queue(where) as queue:
        (batch,) = queue.status().batches
        assert batch.state == "created"
        assert batch.lease_until < queue.storage.now()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_has_none_and_may_begin_its_own(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider) as queue:
        queue.start()
        submit(queue, [0])
        queue.wait(timeout_s=60)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert queue.stop(timeout_s=1)
                submit(queue, [1])
                queue.start()
                queue.wait("1", timeout_s=60)
                code = 0 if queue.stop(timeout_s=60) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        submit(queue, [2])
        wait_until(lambda: states(queue) == {"done": 3})
