"""A record is right in the corner cases too: odd bodies, odd copies, abandoned calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call
from fastlane.emulator import Emulator
from tests.session_play import SessionPlay

MODEL = "gpt-4.1-nano"
MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


@dataclass(frozen=True, slots=True)
class Unnamed(SessionPlay):
    """Makes the given change without recording it."""

    headers: bool = False

    def plan(self, call: Call) -> Call:
        if self.headers:
            return replace(call, headers={"x-of-a-play": "1"})
        return replace(call, body={**call.body, "max_tokens": 3})


@dataclass(frozen=True, slots=True)
class Broken(SessionPlay):
    field: str
    value: Any

    def plan(self, call: Call) -> Call:
        return replace(call, **{self.field: self.value})


@dataclass(frozen=True, slots=True)
class Nothing(SessionPlay):
    def plan(self, call: Call) -> Call:
        return call.with_body("nothing to speak of", user="u")


@pytest.mark.parametrize(("headers", "what"), [(False, "body"), (True, "headers")])
def test_change_that_a_play_does_not_name_is_named_after_it(
    arguments: dict[str, Any], headers: bool, what: str
) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[Unnamed(headers=headers)]) as client:
        client.chat.completions.create(model=MODEL, messages=MESSAGES)

        assert client.calls[0].changes == (f"Unnamed changed the {what}",)


@pytest.mark.parametrize("broken", [Broken("body", None), Broken("headers", {"x-a": 1})])
def test_unserializable_plan_is_discarded(arguments: dict[str, Any], broken: Broken) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[broken]) as client:
        answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)

        assert answer.choices
        assert client.calls[0].changes == ()


def test_omitted_extra_body_field_is_not_sent_beside_a_play(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[Nothing()]) as client:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"top_p": openai.omit})

        assert client.calls[0].outcome == "completed"


def test_query_of_an_address_is_not_recorded(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        client.get("/models?note=secret", cast_to=object)

        assert "secret" in provider.log()[0].path
        assert client.calls[0].endpoint == "/models"
        assert "secret" not in repr(client.calls[0].to_dict())


def test_repr_of_a_record_is_one_line_of_what_happened(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        client.models.list()
        with pytest.raises(openai.APIConnectionError):
            client.copy(base_url="https://127.0.0.1:9/v1", max_retries=1).models.list()

        failed, shown = client.calls[-1], repr(client.calls)
    assert [attempt.error for attempt in failed.attempts] == ["ConnectError", "ConnectError"]
    assert failed.error == "APIConnectionError"
    assert re.search(r"<CallRecord /models None: completed in [\d.]+ s>", shown)
    assert re.search(r"<CallRecord /models None: failed \(APIConnectionError\) in [\d.]+ s, 2 attempts>", shown)


def test_bytes_of_uploads_and_whole_answers_are_counted(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model=MODEL, messages=MESSAGES)
        client.files.create(file=b"{}", purpose="batch")

        attempts = [attempt for record in client.calls for attempt in record.attempts]
    answered, uploaded = provider.log()
    assert attempts[0].response_body_bytes == answered.bytes_out
    assert attempts[1].request_body_bytes == uploaded.bytes_in
