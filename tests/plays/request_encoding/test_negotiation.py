"""One logical call is billed once and answered rightly, whatever a server makes of encoded bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane import RequestEncoding
from fastlane.emulator import Emulator, RequestLog, preset
from fastlane.emulator.wire import Wire
from fastlane.providers import ProviderFacts
from tests.plays.facts import fact
from tests.waiting import Form

PROMPT = " ".join(f"Sentence {number} of the text that is to be looked at." for number in range(600))
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]
CALL: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 3}


@pytest.fixture(scope="module", params=["HTTP/2", "HTTP/1.1"])
def running_provider(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    """A provider that takes every form, until a fault says otherwise."""
    # A form that takes more CPU time than a round trip is given up, and a busy machine is slow.
    wire = Wire(round_trip_time_s=0.02)
    with Emulator(model=preset("instant"), wire=wire, http2=request.param == "HTTP/2") as provider:
        yield provider


@pytest.fixture
def takes_all() -> ProviderFacts:
    """Facts that say of a provider that it takes every form."""
    forms = ("json", "json+gzip", "msgpack", "msgpack+gzip")
    endpoints = ("/chat/completions", "/completions", "/responses")
    return ProviderFacts(slug="takes_all", encodings=dict.fromkeys(endpoints, fact(forms)))


@pytest.fixture
def ask(form: Form) -> Any:
    def ask(
        provider: Emulator, play: RequestEncoding, *, stream: bool, calls: int = 1, times: int = 1, **options: Any
    ) -> Any:
        asked = {**CALL, "messages": [{"role": "user", "content": PROMPT * times}]}
        plays = [fastlane.Connection(), play]
        outcomes = []
        with form.make(fastlane, api_key="k", base_url=provider.base_url, only_plays=plays, **options) as client:
            for _ in range(calls):
                try:
                    answer: Any = client.chat.completions.create(**asked, stream=stream)
                    if stream:
                        answer = list(answer)
                except openai.OpenAIError as error:
                    answer = error
                outcomes.append((answer, client.last_call))
        return outcomes if calls > 1 else outcomes[0]

    return ask


def billed(provider: Emulator) -> list[RequestLog]:
    return [entry for entry in provider.log() if entry.output_tokens]


def is_encoded(entry: RequestLog) -> bool:
    return entry.content_encoding is not None or "msgpack" in (entry.content_type or "")


def is_whole(answer: Any) -> bool:
    """Whether an answer, or the events of a stream, is an answer to the prompt."""
    if isinstance(answer, list):
        return bool(answer[-1].choices[0].finish_reason)
    return bool(answer.choices[0].message.content) and answer.usage.prompt_tokens > 1_000


@pytest.mark.parametrize("stream", [False, True])
def test_server_that_takes_encoded_bodies_gets_one(
    provider: Emulator, ask: Any, stream: bool, takes_all: ProviderFacts
) -> None:
    answer, record = ask(provider, RequestEncoding(facts=takes_all), stream=stream)

    assert is_whole(answer)
    (only,) = provider.log()
    assert (only.content_encoding, only.content_type) == ("gzip", "application/json")
    assert only.prompt_tokens > 1_000
    assert only.bytes_in == record.request_encoding.sent_bytes == record.attempts[0].request_body_bytes
    assert only.bytes_in_decoded == record.request_encoding.plain_bytes
    assert record.request_encoding.form == record.attempts[0].form == "json+gzip"
    assert record.request_encoding.sent_bytes < record.request_encoding.plain_bytes / 3
    assert record.request_encoding.cpu_s > 0
    assert record.request_encoding.refused is None


@pytest.mark.parametrize("times", [1, 10])  # in a thread from 256 kB on
@pytest.mark.parametrize("encoding", ["msgpack", "msgpack+gzip"])
def test_msgpack_body_decodes_to_the_json(
    provider: Emulator, ask: Any, encoding: Any, times: int, takes_all: ProviderFacts
) -> None:
    _, plain = ask(provider, RequestEncoding(), stream=False, times=times)
    play = RequestEncoding(facts=takes_all, forms=(encoding,))

    answer, record = ask(provider, play, stream=False, times=times)

    first, second = provider.log()
    assert is_whole(answer)
    assert second.content_type == "application/vnd.msgpack"
    assert second.content_encoding == ("gzip" if encoding.endswith("gzip") else None)
    assert second.prompt_tokens == first.prompt_tokens
    assert record.request_encoding.form == encoding
    assert plain.request_encoding.form == "json"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", ["400", "413", "415", "422"])
def test_refused_encoded_body_is_resent_as_json_despite_facts(
    provider: Emulator, ask: Any, status: str, stream: bool, takes_all: ProviderFacts
) -> None:
    provider.set_faults(f"status={status};only=encoded")

    (first, first_record), (second, second_record) = ask(
        provider, RequestEncoding(facts=takes_all, forms=("json+gzip",)), stream=stream, calls=2, max_retries=0
    )

    assert is_whole(first)
    assert is_whole(second)
    assert [is_encoded(entry) for entry in provider.log()] == [True, False, False]
    assert [is_encoded(entry) for entry in billed(provider)] == [False, False]
    assert [(each.kind, each.form, each.status_code) for each in first_record.attempts] == [
        ("first", "json+gzip", int(status)),
        ("plain", "json", 200),
    ]
    assert (first_record.request_encoding.form, first_record.request_encoding.refused) == ("json", status)
    assert first_record.request_encoding.sent_bytes == first_record.request_encoding.plain_bytes
    assert [each.kind for each in second_record.attempts] == ["first"]
    assert status in second_record.request_encoding.reason


@pytest.mark.parametrize("fault", ["status=500", "disconnect", "hang"])
def test_encoded_body_that_breaks_is_retried_as_json(
    provider: Emulator, ask: Any, fault: str, takes_all: ProviderFacts
) -> None:
    provider.set_faults(f"{fault};only=encoded")
    options = {"max_retries": 1, "timeout": openai.Timeout(40, read=2 if fault == "hang" else 40)}

    (first, first_record), (second, second_record) = ask(
        provider, RequestEncoding(facts=takes_all, forms=("json+gzip",)), stream=False, calls=2, **options
    )

    assert is_whole(first)
    assert is_whole(second)
    assert [is_encoded(entry) for entry in billed(provider)] == [False, False]
    assert [(each.kind, each.form) for each in first_record.attempts] == [("first", "json+gzip"), ("retry", "json")]
    assert [each.kind for each in second_record.attempts] == ["first"]
    assert fault != "hang" or first_record.request_encoding.refused == "ReadTimeout"


def test_invalid_call_gives_no_verdict_on_encoding(provider: Emulator, ask: Any, takes_all: ProviderFacts) -> None:
    provider.set_faults("status=400;times=2")

    (first, _), (second, record) = ask(provider, RequestEncoding(facts=takes_all), stream=False, calls=2, max_retries=0)

    assert isinstance(first, openai.BadRequestError)
    assert is_whole(second)
    assert record.request_encoding.form == "json+gzip"


def test_small_body_is_sent_as_json(provider: Emulator, ask: Any, takes_all: ProviderFacts) -> None:
    _, record = ask(provider, RequestEncoding(facts=takes_all, min_bytes=10**6), stream=False)

    assert [is_encoded(entry) for entry in provider.log()] == [False]
    assert "min_bytes" in record.request_encoding.reason


def test_embeddings_and_files_are_not_encoded(provider: Emulator, takes_all: ProviderFacts) -> None:
    plays = [RequestEncoding(facts=takes_all)]
    with fastlane.OpenAI(api_key="k", base_url=provider.base_url, only_plays=plays) as client:
        client.embeddings.create(model="m", input=PROMPT)
        client.files.create(file=("a.txt", PROMPT.encode()), purpose="assistants")

        assert [record.request_encoding for record in client.calls] == [None, None]
    assert [is_encoded(entry) for entry in provider.log()] == [False, False]


@pytest.mark.parametrize("header", ["Content-Type", "content-encoding"])
def test_body_with_caller_content_type_is_not_encoded(
    provider: Emulator, takes_all: ProviderFacts, header: str
) -> None:
    values = {"Content-Type": "text/json", "content-encoding": "identity"}
    plays = [RequestEncoding(facts=takes_all)]
    with fastlane.OpenAI(api_key="k", base_url=provider.base_url, only_plays=plays) as client:
        client.chat.completions.create(**CALL, extra_headers={header: values[header]})

    (only,) = provider.log()
    assert only.bytes_in == only.bytes_in_decoded


def test_body_that_messagepack_cannot_hold_is_sent_as_json(
    provider: Emulator, takes_all: ProviderFacts, caplog: pytest.LogCaptureFixture
) -> None:
    plays = [RequestEncoding(facts=takes_all, forms=("msgpack+gzip",))]
    with fastlane.OpenAI(api_key="k", base_url=provider.base_url, only_plays=plays) as client:
        client.chat.completions.create(**CALL, extra_body={"metadata": {"number": 2**70}})

        record: Any = client.last_call
        assert "OverflowError" in record.request_encoding.reason
    assert [is_encoded(entry) for entry in provider.log()] == [False]
    assert "OverflowError" in caplog.text
    assert PROMPT[:20] not in caplog.text
