"""The laws of a queue's storage, which a file and a server keep alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fastlane import ConfigurationError
from fastlane.batch.jobs import JobOutcome
from fastlane.batch.storage import VERSION, queue
from tests.batch.conftest import Open, claim, new


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_queue_of_another_version_is_refused(open_again: Open, version: int) -> None:
    open_again().run(lambda t: t.execute(sa.update(queue).values(version=version)))

    with pytest.raises(ConfigurationError, match=f"of version {version}, this one knows {VERSION}"):
        open_again()


def test_concurrent_reader_gets_each_answer_once_in_order(open_again: Open) -> None:
    feeding, working, reading = open_again(), open_again(), open_again()
    total = 120

    def feed(part: int) -> None:
        for i in range(part, total, 2):
            feeding.add([new(f"{i}"), new(f"{i ^ 1}")])  # each by both of them

    def work() -> None:
        done = 0
        while done < total:
            if working.groups():
                batch = claim(working, most_requests=7, state="running")
                outcomes = [JobOutcome(number=job.number, state="done") for job in working.heads(batch)]
                done += working.record(batch, outcomes)

    seen: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        parts = [pool.submit(feed, 0), pool.submit(feed, 1), pool.submit(work)]
        last = 0
        while len(seen) < total and not any(part.done() and part.exception() for part in parts):
            for answer in reading.answers(after=last, most=50):
                assert answer.sequence > last
                last = answer.sequence
                seen.append(answer.job.key)
        for part in parts:
            part.result()

    assert sorted(seen, key=int) == [f"{i}" for i in range(total)]
