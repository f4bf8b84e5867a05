"""Keys, prompts and answers stay out of everything that fastlane makes: records, logs, errors."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, Connection
from fastlane.emulator import Emulator
from tests.session_play import SessionPlay

KEY = "sk-not-to-be-read"
HEADER = "header-that-nobody-may-read"
PROMPT = "zyzzyva-prompt"
ANSWER = "quixotry-answer"
MESSAGES: Any = [{"role": "system", "content": PROMPT}, {"role": "user", "content": f"{PROMPT}?"}]
HEADERS = {"x-emulator-output-text": f"{ANSWER} {ANSWER} {ANSWER}", "x-secret": HEADER}


@dataclass(frozen=True, slots=True)
class Repeating(SessionPlay):
    """Raises what it was shown, everywhere."""

    def plan(self, call: Call) -> Call:
        raise ValueError(repr(call))

    def close(self, outcome: Any) -> None:
        raise ValueError(repr(outcome.record))


def assert_silent(text: str) -> None:
    for secret in (KEY, HEADER, PROMPT, ANSWER):
        assert secret not in text


@pytest.fixture
def telling(arguments: dict[str, Any]) -> Iterator[fastlane.OpenAI]:
    options = {**arguments, "api_key": KEY, "default_headers": HEADERS}
    with fastlane.OpenAI(**options, only_plays=[Connection(), Repeating()], max_retries=0) as client:
        yield client


def ask(client: fastlane.OpenAI, way: str, **options: Any) -> None:
    chat = client.chat.completions
    if way == "whole":
        answer = chat.create(model="fast-1", messages=MESSAGES, **options)
        assert ANSWER in (answer.choices[0].message.content or "")
    elif way == "streamed":
        text = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in chat.create(model="fast-1", messages=MESSAGES, stream=True, **options)
        )
        assert ANSWER in text
    elif way == "undecoded":
        with chat.with_streaming_response.create(model="fast-1", messages=MESSAGES, **options) as response:
            assert ANSWER in response.read().decode()
    elif way == "closed":
        chat.create(model="fast-1", messages=MESSAGES, stream=True, **options).close()
    else:
        assert ANSWER in client.responses.create(model="fast-1", input=PROMPT, **options).output_text


WAYS = ("whole", "streamed", "undecoded", "closed", "responses")


@pytest.mark.parametrize("way", WAYS)
def test_record_and_log_hold_no_secret(telling: fastlane.OpenAI, caplog: pytest.LogCaptureFixture, way: str) -> None:
    caplog.set_level(logging.DEBUG, logger="fastlane")
    ask(telling, way)

    (record,) = telling.calls
    assert_silent(repr(record))
    assert_silent(json.dumps(record.to_dict()))
    logged = [record for record in caplog.records if record.name.startswith("fastlane")]
    assert logged
    assert_silent("\n".join(f"{record.getMessage()} {vars(record)!r}" for record in logged))


@pytest.mark.parametrize("fault", ["status=400", "status=500", "drop", "malformed"])
@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_the_record_of_a_failure_holds_no_secret(telling: fastlane.OpenAI, way: str, fault: str) -> None:
    with pytest.raises(Exception, match=r"^"):
        ask(telling, way, extra_headers={"x-emulator-fault": f"{fault}", "x-emulator-tag": KEY})

    (record,) = telling.calls
    assert record.outcome == "failed"
    assert record.error is not None
    assert_silent(repr(record))
    assert_silent(json.dumps(record.to_dict()))


def test_errors_are_recorded_by_their_class_alone() -> None:
    with fastlane.OpenAI(api_key=KEY, base_url="https://127.0.0.1:9/v1", max_retries=1) as client:
        with pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(model="fast-1", messages=MESSAGES)

        (record,) = client.calls
        assert [attempt.error for attempt in record.attempts] == ["ConnectError", "ConnectError"]
        assert record.error == "APIConnectionError"


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_what_fastlane_raises_holds_no_secret(arguments: dict[str, Any], way: str) -> None:
    options = {**arguments, "api_key": KEY, "default_headers": HEADERS}
    with fastlane.OpenAI(**options, only_plays=[Repeating()], raise_play_errors=True) as client:
        with pytest.raises(fastlane.PlayError) as raised:
            ask(client, way)

        assert_silent(str(raised.value))
        assert_silent(repr(raised.value))
        assert_silent(traceback.format_exception_only(raised.value)[0])


def test_a_call_shown_to_plays_names_no_key_in_its_repr(arguments: dict[str, Any]) -> None:
    seen: list[str] = []

    @dataclass(frozen=True, slots=True)
    class Looking(SessionPlay):
        def plan(self, call: Call) -> Call:
            seen.append(repr(call))
            return call

    with fastlane.OpenAI(**{**arguments, "api_key": KEY, "default_headers": HEADERS}, only_plays=[Looking()]) as client:
        client.chat.completions.create(model="fast-1", messages=MESSAGES)

    assert KEY not in seen[0]
    assert HEADER not in seen[0]


def test_a_client_shows_no_key_in_its_repr(telling: fastlane.OpenAI) -> None:
    assert_silent(repr(telling))
    assert_silent(repr(telling._fastlane))


def test_the_query_of_a_path_is_not_recorded(provider: Emulator, telling: fastlane.OpenAI) -> None:
    telling.get(f"/models?note={PROMPT}", cast_to=object)

    assert PROMPT in provider.log()[0].path
    assert telling.calls[0].endpoint == "/models"
    assert_silent(repr(telling.calls))
