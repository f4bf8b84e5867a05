"""What goes wrong before an answer: retried as the stock client does, and every attempt is on the record."""

from __future__ import annotations

import uuid
from typing import Any

import openai
import pytest

from fastlane.emulator import Emulator


def attempts(caller: Any) -> list[tuple[int, str, int | None, str | None]]:
    return [(each.number, each.kind, each.status_code, each.error) for each in caller.last_call.attempts]


def tagged(fault: str) -> dict[str, Any]:
    return {"fault": fault, "tag": uuid.uuid4().hex, "output_tokens": 2}


@pytest.mark.parametrize("stream", [False, True])
def test_a_rate_limit_is_waited_for_and_retried(caller: Any, provider: Emulator, stream: bool) -> None:
    wish = tagged("status=429;retry_after=0.1;times=1")
    answer = caller.read(**wish) if stream else caller.ask(**wish)
    record = caller.last_call

    assert answer
    assert attempts(caller) == [(1, "first", 429, None), (2, "retry", 200, None)]
    assert record.outcome == "completed"
    assert record.status_code == 200
    assert record.duration_s >= 0.1
    assert record.attempts[0].wire.ended_ns <= record.attempts[1].wire.started_ns
    assert len(provider.log()) == 2
    assert len({entry.connection_id for entry in provider.log()}) == 1
    if stream:
        assert record.time_to_first_token_s >= 0.1


@pytest.mark.usefixtures("without_pauses")
def test_a_server_that_fails_every_time_ends_the_retries(caller: Any, provider: Emulator) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        caller.ask(fault="status=500;retry_after=0.01")
    record = caller.last_call

    assert raised.value.status_code == 500
    assert attempts(caller) == [(1, "first", 500, None), (2, "retry", 500, None), (3, "retry", 500, None)]
    assert record.outcome == "failed"
    assert record.error == "InternalServerError"
    assert record.status_code == 500
    assert record.api_end_to_end_s is None
    assert len(provider.log()) == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
    ],
)
def test_a_refusal_is_not_retried(caller: Any, status: int, error: type[openai.APIStatusError]) -> None:
    with pytest.raises(error):
        caller.read(fault=f"status={status}")

    assert attempts(caller) == [(1, "first", status, None)]
    assert caller.last_call.outcome == "failed"
    assert caller.last_call.error == error.__name__


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_does_not_answer_runs_into_the_time_out(caller: Any, stream: bool) -> None:
    caller.client = caller.client.with_options(timeout=openai.Timeout(40, read=0.3), max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        caller.read(prefill_ms=600_000) if stream else caller.ask(prefill_ms=600_000)
    record = caller.last_call

    assert record.outcome == "failed"
    assert record.error == "APITimeoutError"
    assert record.attempts[0].error == "ReadTimeout"
    assert record.duration_s >= 0.29
    caller.client = caller.client.with_options(timeout=40)
    caller.ask(output_tokens=1)


@pytest.mark.usefixtures("without_pauses")
def test_a_request_that_the_server_refuses_to_begin_is_retried(caller: Any) -> None:
    assert caller.ask(**tagged("refuse;times=1")).choices
    record = caller.last_call

    assert record.outcome == "completed"
    assert 1 <= len(record.attempts) <= 2
    assert record.attempts[-1].status_code == 200


def test_nobody_listens_there(make_caller: Any) -> None:
    with make_caller(base_url="http://127.0.0.1:9/v1", api_key="sk-test", max_retries=0) as caller:
        with pytest.raises(openai.APIConnectionError):
            caller.ask()
        record = caller.last_call

    assert record.outcome == "failed"
    assert record.error == "APIConnectionError"
    assert record.attempts[0].error == "ConnectError"
    assert record.attempts[0].http_version is None
    assert record.status_code is None
