from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from fastlane import OpenAI
from fastlane.bench._recorder import Place, Sample, _carries_output, record
from fastlane.emulator import Emulator, preset

PLACE = Place(arm="baseline", tag="baseline/0/0", lane=0, block=0, conversation="greeting", turn=1)
BODY = {
    "model": "any",
    "messages": [{"role": "user", "content": "Hi"}],
    "stream_options": {"include_usage": True},
}


@pytest.fixture(scope="module")
def provider() -> Iterator[Emulator]:
    with Emulator(model=preset("instant")) as emulator:
        yield emulator


def recorded(
    provider: Emulator, monkeypatch: pytest.MonkeyPatch, client_class: type[openai.OpenAI], **headers: str
) -> Sample:
    for name, value in provider.environment.items():
        monkeypatch.setenv(name, value)
    with client_class(base_url=provider.base_url, api_key="secret", max_retries=0) as client:
        return record(client, PLACE, BODY, {f"x-emulator-{name}": value for name, value in headers.items()})


@pytest.mark.parametrize("client_class", [openai.OpenAI, OpenAI], ids=["stock", "fastlane"])
def test_every_token_has_a_stamp_between_issue_and_end(
    provider: Emulator, monkeypatch: pytest.MonkeyPatch, client_class: type[openai.OpenAI]
) -> None:
    sample = recorded(provider, monkeypatch, client_class, **{"output-tokens": "7"})

    assert sample.error is None
    assert (sample.output_tokens, len(sample.token_ns), sample.finish_reason) == (7, 7, "stop")
    stamps = [sample.issued_ns, *sample.token_ns, sample.ended_ns]
    assert stamps == sorted(stamps)
    assert sample.time_to_first_token_s is not None
    assert sample.api_end_to_end_s is not None
    assert 0 < sample.time_to_first_token_s <= sample.api_end_to_end_s


def test_the_clients_own_record_is_kept_where_there_is_one(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded(provider, monkeypatch, openai.OpenAI).call is None
    own = recorded(provider, monkeypatch, OpenAI).call
    assert own is not None
    assert own["usage"]["output_tokens"] == 64


def test_an_error_is_a_result(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = recorded(provider, monkeypatch, openai.OpenAI, **{"output-tokens": "many"})

    assert sample.error == "BadRequestError 400"
    assert sample.error_message is not None
    assert "x-emulator-output-tokens" in sample.error_message
    assert sample.time_to_first_token_s is None
    assert sample.api_end_to_end_s is None


def test_no_key_is_kept_in_an_error() -> None:
    class Client:
        api_key = "secret"

        @property
        def chat(self) -> Any:
            raise openai.OpenAIError("your key secret is wrong")

    sample = record(Client(), PLACE, BODY, {})  # type: ignore[arg-type]

    assert (sample.error, sample.error_message) == ("OpenAIError", "your key … is wrong")


def test_roles_and_empty_texts_are_no_tokens() -> None:
    empty: dict[str, Any] = {"content": None, "tool_calls": None, "refusal": None}

    assert not _carries_output(None)
    assert not _carries_output(SimpleNamespace(**{**empty, "role": "assistant", "content": ""}))
    assert _carries_output(SimpleNamespace(**{**empty, "content": "a"}))
    assert _carries_output(SimpleNamespace(**{**empty, "tool_calls": [1]}))
    assert _carries_output(SimpleNamespace(**{**empty, "reasoning_content": "a"}))
    assert _carries_output(SimpleNamespace(**{**empty, "reasoning": "a"}))


def test_an_error_is_told_with_what_it_came_from_and_without_the_key() -> None:
    class Failing:
        api_key = "secret"

        @property
        def chat(self) -> Any:
            try:
                raise ConnectionRefusedError(111, "Connection refused by secret")
            except ConnectionRefusedError as error:
                raise RuntimeError("Connection error.") from error

    sample = record(Failing(), PLACE, BODY, {})  # type: ignore[arg-type]

    assert sample.error == "RuntimeError"
    assert sample.error_message == "Connection error. <- ConnectionRefusedError: [Errno 111] Connection refused by …"
