"""A worker sends what waits as batches, collects the answers, and sends again what may succeed then."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

import fastlane
from fastlane.batch import JobCancelledError, JobFailedError, Queue, WorkerDeniedError, WorkerSettings
from fastlane.emulator import Emulator
from scripts.servers import free_port
from tests.batch.offline_parts import (
    QUICK,
    body,
    client_of,
    executions,
    files_left,
    queue_of,
    states,
    submit,
    wait_until,
)


def test_every_job_gets_its_own_answer_in_as_few_batches_as_there_is_room_for(
    provider: Emulator, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize("share", ["server_error_share", "rate_limited_share", "timeout_share", "missing_share"])
def test_a_line_that_may_succeed_the_next_time_is_sent_again(provider: Emulator, tmp_path: Path, share: str) -> None:
    provider.change(batches={share: 0.3})
    with queue_of(tmp_path / "q", provider, max_attempts=50) as queue:
        submit(queue, range(30))
        queue.run()

        assert states(queue) == {"done": 30}
        assert max(finished.job.attempts for finished in queue.results()) > 1


def test_a_job_that_fails_again_and_again_fails_for_good_with_what_the_provider_said(
    provider: Emulator, tmp_path: Path
) -> None:
    provider.change(batches={"server_error_share": 1.0})
    with queue_of(tmp_path / "q", provider, max_attempts=2) as queue:
        submit(queue, range(2))
        queue.run()

        assert states(queue) == {"failed": 2}
        assert queue.job("0").attempts == 2
        with pytest.raises(openai.InternalServerError) as caught:
            queue.result("0")
        assert caught.value.status_code == 500
        provider.change(batches={"server_error_share": 0.0})
        assert queue.retry_failed() == 2
        queue.run()
        assert states(queue) == {"done": 2}


def test_what_is_done_of_an_expired_batch_is_kept_and_the_rest_sent_again(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"expires_after_s": 0.3, "duration_s": 0.5})
    with queue_of(tmp_path / "q", provider, most_requests=20, max_attempts=50) as queue:
        submit(queue, range(20))
        queue.start()
        wait_until(lambda: "expired" in {batch.status for batch in provider.offline().batches})
        provider.change(batches={"duration_s": 0.0})
        queue.wait(timeout_s=60)

        assert states(queue) == {"done": 20}
        assert "expired" in {batch.status for batch in provider.offline().batches}
        assert executions(provider, range(20)) == [1] * 20


def test_batches_get_smaller_where_they_are_too_much_for_the_account(provider: Emulator, tmp_path: Path) -> None:
    provider.change(batches={"enqueued_tokens": 60})
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(32))
        queue.run()

        assert states(queue) == {"done": 32}
        batches = provider.offline().batches
        assert {batch.total for batch in batches if batch.status == "failed"}
        assert 0 < max(batch.total for batch in batches if batch.status == "completed") < 32


def test_files_get_smaller_where_a_gateway_bears_no_larger_ones(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("status=413;on=POST files;times=2")
    with queue_of(tmp_path / "q", provider, max_attempts=1) as queue:
        submit(queue, range(8))
        queue.run()

        assert states(queue) == {"done": 8}
        assert max(batch.total for batch in provider.offline().batches) <= 4


def test_a_job_that_is_larger_than_a_file_may_be_fails_and_holds_nobody_up(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, most_bytes=2_000) as queue:
        queue.submit({"model": "model", "messages": [{"role": "user", "content": "x" * 3_000}]}, key="large")
        submit(queue, range(5))
        queue.run()

        assert states(queue) == {"done": 5, "failed": 1}
        with pytest.raises(JobFailedError, match="too_large"):
            queue.result("large")


def test_jobs_wait_for_others_to_share_a_batch_with(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, linger_s=3_600.0, most_requests=5) as queue:
        queue.start()
        for number in range(5):
            submit(queue, [number])
        queue.wait(timeout_s=60)

    assert [batch.total for batch in provider.offline().batches] == [5]


def test_a_batch_of_which_nobody_wants_an_answer_is_cancelled_at_the_provider(
    provider: Emulator, tmp_path: Path
) -> None:
    provider.change(batches={"duration_s": 600.0})
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(3))
        queue.start()
        wait_until(lambda: [batch.status for batch in provider.offline().batches] == ["in_progress"])
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
        wait_until(lambda: provider.offline().batches)
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
def test_what_goes_wrong_on_the_way_neither_loses_nor_doubles_a_job(
    provider: Emulator, tmp_path: Path, faults: list[str]
) -> None:
    provider.change(batches={"listing_delay_s": 0.05})
    provider.set_faults(*faults)
    with queue_of(tmp_path / "q", provider, most_requests=4) as queue:
        submit(queue, range(8))
        queue.run()
        provider.set_faults()

        assert states(queue) == {"done": 8}
        assert executions(provider, range(8)) == [1] * 8


def test_a_refused_key_ends_the_worker_and_no_job(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("status=401")
    with queue_of(tmp_path / "q", provider) as queue:
        submit(queue, range(2))
        with pytest.raises(WorkerDeniedError, match="401"):
            queue.run()
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


def test_a_provider_that_cannot_be_reached_is_told_with_what_the_system_says_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = fastlane.OpenAI(base_url=f"http://127.0.0.1:{free_port()}/v1", api_key="sk-test", max_retries=0)
    with Queue(tmp_path / "q", nobody, worker=WorkerSettings(**QUICK)) as queue:
        submit(queue, range(1))
        with caplog.at_level(logging.WARNING, logger="fastlane.batch"):
            queue.start()
            wait_until(lambda: caplog.records)
            queue.stop()

    assert "Connection refused" in caplog.text


def test_what_was_never_created_at_another_address_is_sent_to_this_one(provider: Emulator, tmp_path: Path) -> None:
    nobody = fastlane.OpenAI(base_url=f"http://127.0.0.1:{free_port()}/v1", api_key="sk-test", max_retries=0)
    with Queue(tmp_path / "q", nobody, worker=WorkerSettings(**QUICK)) as queue:
        submit(queue, range(3))
        queue.start()
        wait_until(lambda: [batch.state for batch in queue.status().batches] == ["uploading"])
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

    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "created, with" in told
    assert "job number" not in told
    assert "sk-test" not in told
    assert json.dumps(answer.choices[0].message.content)[1:-1] not in told


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
