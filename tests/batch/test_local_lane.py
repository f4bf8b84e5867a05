"""Where a provider has no batch mode, jobs are sent by themselves: several at once, each answer kept when it comes."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from fastlane import CallRecord, OpenAI
from fastlane.batch import JobFailedError, Queue, WorkerSettings
from fastlane.emulator import Emulator
from tests.batch.offline_parts import body, client_of, queue_of, states, submit, wait_until


def calls(provider: Emulator) -> int:
    return sum(record.path.endswith("/chat/completions") for record in provider.log())


def test_jobs_are_sent_by_themselves_where_nobody_knows_of_a_batch_mode(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, lane="auto") as queue:
        submit(queue, range(20))
        asked = {"model": "model", "input": "a question", "max_output_tokens": 3}
        queue.submit(asked, key="r", endpoint="/v1/responses")
        queue.run()

        assert states(queue) == {"done": 21}
        assert calls(provider) == 20
        assert provider.offline().batches == ()
        live = client_of(provider).chat.completions.create(**body(3))
        assert queue.result("3").choices[0].message.content == live.choices[0].message.content
        assert queue.result("r").object == "response"
        assert queue.job("3").output_tokens == 3


def test_failures_that_may_pass_are_tried_again_and_others_kept(provider: Emulator, tmp_path: Path) -> None:
    client = client_of(provider, max_retries=0)
    settings = WorkerSettings(lane="live", retry_s=0.0, max_concurrency=2, max_attempts=3)
    with Queue(tmp_path / "q", client, worker=settings) as queue:
        provider.set_faults("status=500;on=POST chat/completions;every=2", "disconnect;every=5")
        submit(queue, range(6))
        queue.run()
        assert states(queue).get("failed", 0) + states(queue)["done"] == 6

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


def test_a_worker_that_is_stopped_keeps_the_answers_that_are_under_way(provider: Emulator, tmp_path: Path) -> None:
    provider.set_faults("slow_headers=0.5")
    with queue_of(tmp_path / "q", provider, lane="live", max_concurrency=2) as queue:
        submit(queue, range(10))
        queue.start()
        wait_until(lambda: calls(provider) >= 2)
        assert queue.stop(timeout_s=60)

        assert states(queue).get("packed", 0) == 0
        assert states(queue)["done"] == calls(provider)


def test_a_call_that_outlasts_its_lease_while_the_worker_ends_is_sent_by_no_other(
    provider: Emulator, tmp_path: Path
) -> None:
    provider.set_faults("slow_headers=1.5;times=1")
    short = {"lane": "live", "lease_s": 0.6}
    with queue_of(tmp_path / "q", provider, **short) as one, queue_of(tmp_path / "q", provider, **short) as other:
        submit(one, [0])
        one.start()
        wait_until(lambda: calls(provider))
        assert not one.stop(timeout_s=0)
        other.run()

        assert states(other) == {"done": 1}
    assert calls(provider) == 1


def test_models_take_turns(provider: Emulator, tmp_path: Path) -> None:
    with queue_of(tmp_path / "q", provider, lane="live", max_concurrency=1) as queue:
        submit(queue, range(10))
        submit(queue, range(10, 12), model="another")
        queue.run()

        order = [one.key for one in queue.results()]
    assert order.index("11") < 6


def test_calls_of_a_worker_are_offline_ones(provider: Emulator, tmp_path: Path) -> None:
    records: list[CallRecord] = []
    client = OpenAI(base_url=provider.base_url, api_key="sk-test", on_call_end=[records.append])
    with Queue(tmp_path / "q", client, worker=WorkerSettings(lane="live")) as queue:
        submit(queue, range(2))
        queue.run()

    urgencies = [record.urgency.urgency for record in records if record.urgency is not None]
    assert urgencies == ["offline", "offline"]
