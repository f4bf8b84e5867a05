"""A worker sends what waits as batches, collects the answers, and sends again what may succeed then."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import IO, Any

import openai
import pytest
from openai.types.chat import ChatCompletion

import fastlane
from fastlane import CallRecord, OpenAI
from fastlane.batch import JobCancelledError, JobFailedError, Queue, WorkerDeniedError, WorkerSettings
from fastlane.batch.batches import mode_of
from fastlane.emulator import Emulator
from fastlane.providers import facts_named, names
from scripts.servers import free_port
from tests.batch.conftest import ended, forked
from tests.batch.offline_parts import QUICK, body, client_of, executions, files_left, queue_of, states, submit
from tests.programs import run_python
from tests.waiting import until


def test_all_jobs_are_answered_in_fewest_batches(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, most_requests=20) as queue:
        submit(queue, range(50))
        queue.run()

        assert states(queue) == {"done": 50}
        assert files_left(provider) == 0
        assert sorted(batch.total for batch in provider.offline().batches) == [10, 20, 20]
        assert executions(provider, range(50)) == [1] * 50
        answers = [queue.result(str(number)) for number in range(50)]
        live = client_of(provider).chat.completions.create(**body(3))
        assert all(isinstance(answer, ChatCompletion) for answer in answers)
        assert answers[3].choices[0].message.content == live.choices[0].message.content
        assert len({answer.id for answer in answers}) == 50


def test_repeatedly_failing_job_fails_with_provider_error(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"server_error_share": 1.0})
    with queue_of(tmp_path / "q", provider, max_attempts=3, retry_s=0.1) as queue:
        submit(queue, range(2))
        began_s = time.monotonic()
        queue.run()

        assert time.monotonic() - began_s >= 0.1 + 0.2
        assert states(queue) == {"failed": 2}
        assert queue.job("0").attempts == 3
        with pytest.raises(openai.InternalServerError) as caught:
            queue.result("0")
        assert caught.value.status_code == 500
        provider.change(batches={"server_error_share": 0.0})
        assert queue.retry_failed() == 2
        queue.run()
        assert states(queue) == {"done": 2}


def test_expired_batch_keeps_answers_and_resends_the_rest(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"expires_after_s": 0.3, "duration_s": 0.5})
    with queue_of(tmp_path / "q", provider, most_requests=20, max_attempts=50) as queue:
        submit(queue, range(20))
        queue.start()
        until(lambda: "expired" in {batch.status for batch in provider.offline().batches})
        provider.change(batches={"duration_s": 0.0})
        queue.wait(timeout_s=60)

        assert states(queue) == {"done": 20}
        assert "expired" in {batch.status for batch in provider.offline().batches}
        assert executions(provider, range(20)) == [1] * 20


def test_batches_shrink_when_provider_limit_is_exceeded(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"enqueued_tokens": 60})
    with queue_of(tmp_path / "q", provider, max_attempts=1) as queue:
        submit(queue, range(32))
        queue.run()

        assert states(queue) == {"done": 32}
        batches = provider.offline().batches
        assert {batch.total for batch in batches if batch.status == "failed"}
        assert {finished.job.attempts for finished in queue.results()} == {1}
        assert 0 < max(batch.total for batch in batches if batch.status == "completed") < 32


def test_files_shrink_when_a_gateway_refuses_their_size(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("status=413;on=POST files;times=2")
    with queue_of(tmp_path / "q", provider, max_attempts=1) as queue:
        submit(queue, range(8))
        queue.run()

        assert states(queue) == {"done": 8}
        assert max(batch.total for batch in provider.offline().batches) <= 4


def test_oversized_job_fails_and_others_finish(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, most_bytes=2_000) as queue:
        queue.submit({"model": "model", "messages": [{"role": "user", "content": "x" * 3_000}]}, key="large")
        submit(queue, range(20))
        queue.run()

        assert states(queue) == {"done": 20, "failed": 1}
        uploads = [file.bytes for file in provider.offline().files if file.purpose == "batch"]
        assert 1_000 < max(uploads) <= 2_000
        with pytest.raises(JobFailedError, match="too_large"):
            queue.result("large")


def test_jobs_wait_for_others_to_share_a_batch_with(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, linger_s=3_600.0, most_requests=5) as queue:
        queue.start()
        for number in range(5):
            submit(queue, [number])
        queue.wait(timeout_s=60)

    assert [batch.total for batch in provider.offline().batches] == [5]


def test_batch_of_cancelled_jobs_is_cancelled_upstream(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"duration_s": 600.0})
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(3))
        queue.start()
        until(lambda: [batch.status for batch in provider.offline().batches] == ["in_progress"])
        queue.cancel(["0", "1", "2"])
        queue.wait(timeout_s=60)

        assert [batch.status for batch in provider.offline().batches] == ["cancelled"]
        assert states(queue) == {"cancelled": 3}
        with pytest.raises(JobCancelledError):
            queue.result("0")


def test_one_cancelled_job_of_a_batch_leaves_the_others_alone(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"duration_s": 0.5})
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(3))
        queue.start()
        until(lambda: provider.offline().batches)
        queue.cancel("1")
        queue.wait(timeout_s=60)

        assert [batch.status for batch in provider.offline().batches] == ["completed"]
        assert {queue.job(key).state for key in ("0", "2")} == {"done"}


@pytest.mark.parametrize(
    "faults",
    [
        ["lost_answer;on=POST batches;times=1"],
        ["lost_answer;on=POST files;times=1"],
        ["status=500;on=POST batches;times=1"],
        ["status=429;retry_after=0.05;on=POST batches;times=2", "status=503;on=GET *;every=4"],
        ["disconnect;every=4"],
        ["drop;on=GET files/*/content;times=2"],
    ],
)
def test_network_faults_neither_lose_nor_repeat_a_job(provider: Emulator, tmp_path: Path, faults: list[str]) -> None:
    provider.change(batches={"listing_delay_s": 0.05})
    provider.set_faults(*faults)
    with queue_of(tmp_path / "q", provider, most_requests=4) as queue:
        submit(queue, range(8))
        queue.run()
        provider.set_faults()

        assert states(queue) == {"done": 8}
        assert executions(provider, range(8)) == [1] * 8


def test_refused_key_ends_the_worker_and_no_job(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("status=401")
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(2))
        with pytest.raises(WorkerDeniedError, match="401"):
            queue.run()
        queue.start()
        with pytest.raises(WorkerDeniedError, match="401"):
            queue.wait(timeout_s=60)
        provider.set_faults()
        queue.run()

        assert states(queue) == {"done": 2}


def test_two_workers_on_one_queue_never_send_the_same_job(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"duration_s": 0.1})
    one, other = (queue_of(tmp_path / "q", provider, most_requests=3) for _ in range(2))
    with one, other:
        for first in range(0, 60, 20):
            submit(one, range(first, first + 20))
            one.start()
            other.start()
        one.wait(timeout_s=60)

        assert states(one) == {"done": 60}
    assert executions(provider, range(60)) == [1] * 60


def test_asynchronous_client_is_refused(tmp_path: Path) -> None:
    with Queue(tmp_path / "q", fastlane.AsyncOpenAI(api_key="sk-test")) as queue:
        submit(queue, [0])
        with pytest.raises(fastlane.ConfigurationError, match=r"needs a synchronous client .* got a AsyncOpenAI"):
            queue.run()


def test_uncreated_batch_is_sent_to_the_new_base_url(
    provider: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unreachable = fastlane.OpenAI(base_url=f"http://127.0.0.1:{free_port()}/v1", api_key="sk-test", max_retries=0)
    with Queue(tmp_path / "q", unreachable, worker=WorkerSettings(**QUICK)) as queue:
        submit(queue, range(3))
        queue.start()
        until(lambda: [batch.state for batch in queue.status().batches] == ["uploading"])
        until(lambda: "Connection refused" in caplog.text)
        queue.stop()
    with queue_of(tmp_path / "q", provider) as queue:
        queue.run()

        assert states(queue) == {"done": 3}
        assert {one.job.attempts for one in queue.results()} == {1}
        assert executions(provider, range(3)) == [1] * 3


def test_no_log_shows_a_prompt_an_answer_or_a_key(
    provider: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider.change(batches={"server_error_share": 0.5})
    provider.set_faults("lost_answer;on=POST batches;times=1")
    with caplog.at_level(logging.DEBUG, logger="fastlane.batch"), queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(4))
        queue.run()
        answer = next(one.result() for one in queue.results() if one.job.state == "done")

    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "created, with" in logged
    assert "job number" not in logged
    assert "sk-test" not in logged
    assert json.dumps(answer.choices[0].message.content)[1:-1] not in logged


@pytest.mark.parametrize(
    "wrong",
    [
        {"lane": "bus"},
        {"linger_s": -1},
        {"lease_s": 0},
        {"most_requests": 0},
        {"max_attempts": None},
        {"max_concurrency": True},
        {"listing_lag_s": float("nan")},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(fastlane.ConfigurationError, match=list(wrong)[-1]):
        WorkerSettings(**wrong)


# Where a provider has no batch mode, jobs are sent by themselves: several at once, each answer kept when it comes


def calls(provider: Emulator) -> int:
    return sum(record.path.endswith("/chat/completions") for record in provider.log())


def test_batch_mode_is_known_for_openai_compatible_providers() -> None:
    modes = {name: mode_of(facts_named(name), WorkerSettings()) for name in names()}

    assert {name for name, mode in modes.items() if mode is not None} == {"openai", "azure_openai", "cerebras", "groq"}
    mode = modes["openai"]
    assert mode is not None
    assert (mode.most_requests, mode.most_bytes, mode.window_s) == (50_000, 200_000_000, 86_400.0)
    assert mode.takes("/v1/responses")
    assert not mode.takes("/v1/audio/speech")


def test_jobs_are_sent_live_without_known_batch_mode(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, lane="auto") as queue:
        submit(queue, range(20))
        asked = {"model": "model", "input": "a question", "max_output_tokens": 3}
        queue.submit(asked, key="r", endpoint="/v1/responses")
        queue.run()

        assert states(queue) == {"done": 21}
        assert calls(provider) == 20
        assert provider.offline().batches == ()
        assert queue.result("r").object == "response"
        assert queue.job("3").output_tokens == 3


def test_failures_that_may_pass_are_tried_again_and_others_kept(provider: Emulator, tmp_path: Path) -> None:
    client = client_of(provider, max_retries=0)
    settings = WorkerSettings(lane="live", retry_s=0.0, max_concurrency=2, max_attempts=3)
    with Queue(tmp_path / "q", client, worker=settings) as queue:
        provider.set_faults("status=400;on=POST chat/completions")
        submit(queue, [10])
        queue.run()
        with pytest.raises(openai.BadRequestError):
            queue.result("10")
        assert queue.job("10").attempts == 1

        provider.set_faults("disconnect")
        submit(queue, [11])
        queue.run()
        with pytest.raises(JobFailedError, match="connection"):
            queue.result("11")
        assert queue.job("11").attempts == 3


def test_stopped_worker_keeps_answers_in_flight(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("slow_headers=0.5")
    with queue_of(tmp_path / "q", provider, lane="live", max_concurrency=2) as queue:
        submit(queue, range(10))
        queue.start()
        until(lambda: calls(provider) >= 2)
        assert queue.stop(timeout_s=60)

        assert states(queue).get("packed", 0) == 0
        assert states(queue)["done"] == calls(provider)


def test_job_outlasting_its_lease_is_sent_once(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("slow_headers=1.5;times=1")
    short = {"lane": "live", "lease_s": 0.6}
    with queue_of(tmp_path / "q", provider, **short) as one, queue_of(tmp_path / "q", provider, **short) as other:
        submit(one, [0])
        one.start()
        until(lambda: calls(provider))
        assert not one.stop(timeout_s=0)
        other.run()

        assert states(other) == {"done": 1}
    assert calls(provider) == 1


def test_models_take_turns_also_where_calls_are_slow(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("slow_headers=1.5;times=1")
    with queue_of(tmp_path / "q", provider, lane="live", max_concurrency=1) as queue:
        submit(queue, range(3))
        submit(queue, range(3, 5), model="another")
        queue.run()

        assert [one.key for one in queue.results()] == ["0", "3", "1", "4", "2"]


def test_worker_calls_have_offline_urgency(provider: Emulator, tmp_path: Path) -> None:
    records: list[CallRecord] = []
    client = OpenAI(base_url=provider.base_url, api_key="sk-test", on_call_end=[records.append])
    with Queue(tmp_path / "q", client, worker=WorkerSettings(lane="live")) as queue:
        submit(queue, range(2))
        queue.run()

    urgencies = [record.urgency.urgency for record in records if record.urgency is not None]
    assert urgencies == ["offline", "offline"]


# A worker in a thread of the calling process: it starts, stops, and does not survive a fork


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


def test_background_worker_restarts_repeatedly(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider) as queue:
        for number in range(3):
            submit(queue, [number])
            queue.start()
            queue.start()
            queue.wait(timeout_s=60)
            assert queue.status().workers == 1
            assert queue.stop(timeout_s=60)
            assert queue.status().workers == 0

        assert states(queue) == {"done": 3}


@pytest.mark.slow
def test_process_exit_releases_lease_of_created_batch(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"duration_s": 600.0})
    where = tmp_path / "q"
    program = PROGRAM.format(settings=repr({**QUICK, "lease_s": 3_600.0}))

    ran = run_python("-c", program, str(where), provider.base_url)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "at the provider\n", "")
    provider.change(batches={"duration_s": 0.1})
    with Queue(where) as queue:
        (batch,) = queue.status().batches
        assert batch.state == "created"
        assert batch.lease_until < queue.storage.now()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_starts_its_own_background_worker(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider) as queue:
        queue.start()
        submit(queue, [0])
        queue.wait(timeout_s=60)

        def work(_: IO[str]) -> None:
            assert queue.stop(timeout_s=1)
            submit(queue, [1])
            queue.start()
            queue.wait("1", timeout_s=60)
            assert queue.stop(timeout_s=60)

        assert ended(forked(work)) == 0
        submit(queue, [2])
        until(lambda: states(queue) == {"done": 3})
