from __future__ import annotations

from collections import Counter
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from fastlane.emulator import Emulator, prompt_digest
from tests.emulator.offline import create, ended, jsonl, line, read, until, upload


@pytest.fixture
def protocol() -> str:
    return "HTTP/2"


def lines(count: int) -> list[dict[str, Any]]:
    return [line(f"line-{number}", f"Number {number}") for number in range(count)]


def test_batch_is_answered_line_by_line_as_live_calls_are(client: openai.OpenAI) -> None:
    given = lines(40)
    made = create(client, given, metadata={"name": "nightly"})
    batch = ended(client, made)
    answers = read(client, batch.output_file_id)
    live = client.chat.completions.create(**given[7]["body"])
    offline = ChatCompletion.model_validate(answers["line-7"]["response"]["body"], strict=True)

    assert (made.status, made.metadata, made.endpoint) == ("validating", {"name": "nightly"}, "/v1/chat/completions")
    assert (batch.status, batch.error_file_id, batch.errors, batch.model) == ("completed", None, None, "some-model")
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 40, "completed": 40, "failed": 0}
    assert answers.keys() == {each["custom_id"] for each in given}
    assert list(answers) != [each["custom_id"] for each in given]
    assert all(each["error"] is None and each["response"]["status_code"] == 200 for each in answers.values())
    assert len({each["response"]["body"]["id"] for each in answers.values()}) == 40
    assert offline.choices == live.choices
    assert offline.usage == live.usage


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("/v1/responses", {"input": "Say it."}, Response),
        ("/v1/completions", {"prompt": "Say it."}, openai.types.Completion),
        ("/v1/embeddings", {"input": ["a", "b"]}, CreateEmbeddingResponse),
    ],
)
def test_batches_of_other_endpoints_have_their_response_type(
    client: openai.OpenAI, endpoint: str, body: dict[str, Any], kind: type[openai.BaseModel]
) -> None:
    given = line("one", url=endpoint) | {"body": {"model": "some-model", **body}}
    batch = ended(client, create(client, [given], endpoint=endpoint))
    answer = read(client, batch.output_file_id)["one"]["response"]["body"]

    assert kind.model_validate(answer, strict=True).to_dict()["model"] == "some-model"


@pytest.mark.parametrize(
    ("broken", "code", "at", "param"),
    [
        (b"{no json\n", "invalid_json_line", 2, None),
        (b"[]\n", "invalid_json_line", 2, None),
        (line("first"), "duplicate_custom_id", 2, "custom_id"),
        (line("other", url="/v1/responses"), "url_mismatch", 2, "url"),
        (line("other", method="GET"), "invalid_method", 2, "method"),
        (line("other", body={"model": "another", "messages": []}), "model_mismatch", 2, "body.model"),
        (line("other", body={"messages": []}), "missing_required_parameter", 2, "body.model"),
        ({"method": "POST", "url": "/v1/chat/completions", "body": {}}, "missing_required_parameter", 2, "custom_id"),
        (line("other", body="text"), "invalid_type", 2, "body"),
        (line(""), "invalid_type", 2, "custom_id"),
    ],
)
def test_batch_with_invalid_line_fails_with_its_line_number(
    client: openai.OpenAI, emulator: Emulator, broken: Any, code: str, at: int, param: str | None
) -> None:
    batch = ended(client, create(client, [line("first"), broken, line("third")]))

    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.errors is not None
    assert [(each.code, each.line, each.param) for each in batch.errors.data or ()] == [(code, at, param)]
    assert batch.output_file_id is batch.error_file_id is None
    assert emulator.offline().lines == ()


@pytest.mark.parametrize(
    ("settings", "count", "code"),
    [
        ({}, 0, "empty_file"),
        ({}, 50_001, "too_many_tasks"),
        ({"enqueued_tokens": 5}, 3, "token_limit_exceeded"),
    ],
)
def test_batch_past_a_limit_fails(
    client: openai.OpenAI, emulator: Emulator, settings: dict[str, Any], count: int, code: str
) -> None:
    emulator.change(batches=settings)
    batch = ended(client, create(client, lines(count)))

    assert batch.status == "failed"
    assert batch.errors is not None
    assert [each.code for each in batch.errors.data or ()] == [code]


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"endpoint": "/v1/nothing"}, ("endpoint", "invalid_value")),
        ({"completion_window": "1h"}, ("completion_window", "invalid_value")),
        ({"input_file_id": "file-none"}, ("input_file_id", "invalid_file")),
        ({"purpose": "user_data"}, ("input_file_id", "invalid_file_purpose")),
    ],
)
def test_request_for_a_batch_that_cannot_be_is_refused(
    client: openai.OpenAI, wrong: dict[str, Any], found: tuple[str, str]
) -> None:
    purpose = wrong.pop("purpose", "batch")
    file = client.files.create(file=("a.jsonl", jsonl([line("one")])), purpose=purpose)
    settings = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **wrong}
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.create(**settings)

    assert (refused.value.param, refused.value.code) == found
    assert client.batches.list().data == []
    with pytest.raises(openai.NotFoundError, match="No batch found"):
        client.batches.retrieve("batch_none")


def test_failed_lines_are_written_to_error_file(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.change(batches={"server_error_share": 0.25, "rate_limited_share": 0.25, "timeout_share": 0.25})
    broken = line("broken", body={"model": "some-model"})
    batch = ended(client, create(client, [*lines(80), broken]))
    good, bad = read(client, batch.output_file_id), read(client, batch.error_file_id)
    kinds = Counter(
        each["error"]["code"] if each["response"] is None else each["response"]["status_code"] for each in bad.values()
    )

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (len(good), len(bad))
    assert good.keys() | bad.keys() == {each["custom_id"] for each in [*lines(80), broken]}
    assert not good.keys() & bad.keys()
    assert kinds.keys() >= {500, 429, "request_timeout"}
    assert min(len(good), *(kinds[kind] for kind in (500, 429, "request_timeout"))) >= 8
    assert all("message" in each["response"]["body"]["error"] for each in bad.values() if each["response"])


def test_line_that_a_live_call_would_refuse_has_its_error(client: openai.OpenAI) -> None:
    wrong = line("wrong", body={"model": "some-model", "messages": [{"role": "unknown", "content": "x"}]})
    streamed = line("streamed", "x")
    streamed["body"]["stream"] = True
    batch = ended(client, create(client, [wrong, streamed]))
    bad = read(client, batch.error_file_id)

    assert (batch.status, batch.output_file_id) == ("completed", None)
    assert bad["wrong"]["response"]["status_code"] == bad["streamed"]["response"]["status_code"] == 400
    assert bad["wrong"]["response"]["body"]["error"]["code"] == "invalid_value"


def test_executed_line_can_be_missing_from_output_file(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.change(batches={"missing_share": 0.5})
    batch = ended(client, create(client, lines(40)))
    in_files = {each.custom_id for each in emulator.offline().lines if each.written}

    assert 0 < len(in_files) < 40
    assert read(client, batch.output_file_id).keys() == in_files
    assert len(emulator.offline().lines) == 40


def test_cancelled_batch_keeps_what_was_done(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.change(batches={"duration_s": 10.0})
    batch = until(
        client,
        create(client, lines(1_000)),
        lambda batch: batch.request_counts is not None and batch.request_counts.completed >= 3,
    )
    cancelling = client.batches.cancel(batch.id)
    cancelled = ended(client, batch)
    done, left = read(client, cancelled.output_file_id), read(client, cancelled.error_file_id)

    assert cancelling.status == "cancelling"
    assert cancelled.status == client.batches.cancel(batch.id).status == "cancelled"
    assert None not in (cancelled.cancelling_at, cancelled.cancelled_at)
    assert cancelled.request_counts is not None
    assert cancelled.request_counts.to_dict() == {"total": 1_000, "completed": len(done), "failed": 0}
    assert len(done) + len(left) == 1_000
    assert {(each["response"], each["error"]["code"]) for each in left.values()} == {(None, "batch_cancelled")}
    assert {each.custom_id for each in emulator.offline().lines} == done.keys()


def test_batch_list_is_paged_newest_first(client: openai.OpenAI) -> None:
    file = upload(client, [line("one")])
    ids = [
        client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"at": str(at)}
        ).id
        for at in range(25)
    ][::-1]
    page = client.batches.list(limit=2, after=ids[2])

    assert [batch.id for batch in client.batches.list()] == ids
    assert ([batch.id for batch in page.data], page.has_more) == (ids[3:5], True)
    assert len(client.batches.list().data) == 20
    for wrong in (101, 0):
        with pytest.raises(openai.BadRequestError):
            client.batches.list(limit=wrong)


def test_new_batch_shows_late_in_the_list(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.change(batches={"listing_delay_s": 3_600})
    batch = create(client, [line("one")])

    assert client.batches.list().data == []
    assert client.batches.retrieve(batch.id).id == batch.id


def test_batch_is_created_when_its_response_is_lost(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.set_faults("lost_answer;on=POST batches;times=1")
    with pytest.raises(openai.APIConnectionError):
        create(client, [line("one")], metadata={"name": "unheard"})
    (found,) = client.batches.list()

    assert found.metadata == {"name": "unheard"}
    assert ended(client, found).status == "completed"
    assert [each.custom_id for each in emulator.offline().lines] == ["one"]


def test_log_counts_what_was_really_done(client: openai.OpenAI, emulator: Emulator) -> None:
    given = lines(5)
    batch = ended(client, create(client, given, metadata={"name": "a"}))
    log = emulator.offline()

    assert {each.prompt: each.custom_id for each in log.lines} == {
        prompt_digest(each["body"]): each["custom_id"] for each in given
    }
    assert [(each.id, each.metadata, each.completed) for each in log.batches] == [(batch.id, {"name": "a"}, 5)]
    emulator.clear()
    assert emulator.offline().lines == ()
    emulator.reset()
    assert (emulator.offline().batches, client.files.list().data) == ((), [])
