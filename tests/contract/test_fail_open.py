"""A play or a callback that raises never breaks a call, unless the client has `raise_play_errors=True`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, CallRecord, ConfigurationError, Connection, Play, PlayError, Session
from fastlane.emulator import Emulator
from fastlane.engine.session import STOP, Stop
from tests.contract.entry_points import ENTRIES, MODEL, comparable
from tests.session_play import SessionPlay
from tests.waiting import Form, comes_true

SECRET = "sk-of-this-very-call"
PROMPT = "the prompt that must stay secret"


class BrokenError(RuntimeError):
    """Its message quotes what it was about, as messages do."""


@dataclass(frozen=True)
class Raises(SessionPlay):
    """Raises in one of its methods."""

    where: str

    def open(self, call: Call) -> Session | None:
        self.meet("open", call)
        return super().open(call)

    def plan(self, call: Call) -> Call:
        self.meet("plan", call)
        return call

    def on_event(self, event: Any) -> None:
        self.meet("on_event", event)

    def close(self, outcome: Any) -> None:
        self.meet("close", outcome.record)

    def meet(self, where: str, about: object) -> None:
        if where == self.where:
            raise BrokenError(f"{PROMPT} {SECRET} {about!r}")


@dataclass(frozen=True, slots=True)
class ReturnsNoCall(SessionPlay):
    def plan(self, call: Call) -> Call:
        nothing: Any = {"model": "other"}
        return nothing  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class StopsAfter(Play):
    """Asks to stop the stream after so many events with content."""

    contents: int

    def open(self, call: Call) -> Session:
        return Counting(self.contents)


class Counting(Session):
    def __init__(self, contents: int) -> None:
        self.left = contents

    def on_event(self, event: Any) -> Stop | None:
        self.left -= bool(getattr(event, "delta", None) or (event.choices and event.choices[0].delta.content))
        return STOP if self.left == 0 else None


def broken_callback(record: CallRecord) -> None:
    raise BrokenError(f"{PROMPT} {SECRET} {record!r}")


PLAYS = (*map(Raises, ("plan", "open", "on_event", "close")), ReturnsNoCall())


@pytest.mark.parametrize("entry", ["chat", "chat_streamed", "chat_stream_helper", "responses_streamed"])
@pytest.mark.parametrize("play", PLAYS, ids=repr)
def test_play_that_raises_does_not_affect_the_call(
    form: Form, arguments: dict[str, Any], play: Play, entry: str
) -> None:
    with (
        form.make(fastlane, **arguments, only_plays=[]) as without,
        form.make(fastlane, **arguments, only_plays=[play]) as client,
    ):
        expected = comparable(ENTRIES[entry](without))

        assert comparable(ENTRIES[entry](client)) == expected
        assert [record.outcome for record in client.calls] == ["completed"]


@pytest.mark.parametrize("where", ["open", "plan", "on_event", "close"])
def test_play_error_is_logged_once_by_its_class(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture, where: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="fastlane")
    arguments["api_key"] = SECRET
    with fastlane.OpenAI(**arguments, only_plays=[Raises(where)]) as client:
        for _ in range(3):
            list(
                client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": PROMPT}], stream=True)
            )

    (logged,) = [each for each in caplog.records if each.name.startswith("fastlane")]
    assert logged.levelno == logging.WARNING
    assert "BrokenError" in logged.getMessage()
    assert f"in {where} " in logged.getMessage()
    assert SECRET not in caplog.text
    assert PROMPT not in caplog.text
    assert logged.exc_info is None


def test_callback_that_raises_is_logged_once_by_its_name(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with fastlane.OpenAI(**arguments, on_call_end=[broken_callback]) as client:
        ENTRIES["chat"](client)
        ENTRIES["chat"](client)

    (logged,) = [each for each in caplog.records if each.name == "fastlane"]
    assert "broken_callback raised BrokenError in on_call_end" in logged.getMessage()
    assert PROMPT not in caplog.text


@pytest.mark.parametrize("play", PLAYS, ids=repr)
def test_strict_client_raises_what_a_play_raised(
    form: Form, provider: Emulator, arguments: dict[str, Any], play: Play
) -> None:
    with form.make(fastlane, **arguments, only_plays=[play], raise_play_errors=True) as client:
        with pytest.raises(PlayError, match=type(play).__name__) as raised:
            ENTRIES["chat_streamed"](client)

        assert isinstance(raised.value.__cause__, TypeError if isinstance(play, ReturnsNoCall) else BrokenError)
        assert ("plan() must return a Call, got" in str(raised.value)) is isinstance(play, ReturnsNoCall)
        assert PROMPT not in str(raised.value)
        assert SECRET not in str(raised.value)
        (record,) = client.calls
        if play == Raises("plan"):
            assert (record.outcome, record.error, provider.log()) == ("failed", "PlayError", ())


@pytest.mark.parametrize("entry", ["chat", "chat_streamed"])
def test_raise_play_errors_raises_what_a_callback_raised(arguments: dict[str, Any], entry: str) -> None:
    with fastlane.OpenAI(**arguments, on_call_end=[broken_callback], raise_play_errors=True) as client:
        with pytest.raises(PlayError, match="broken_callback raised BrokenError in on_call_end") as raised:
            ENTRIES[entry](client)

        assert isinstance(raised.value.__cause__, BrokenError)
        assert len(client.calls) == 1


# Settings that cannot work

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"plays": [Connection]}, r"the class Connection \(did you mean Connection\(\)\?\)"),
    ({"plays": Connection()}, r"list of plays such as \[Connection\(\)\]"),
    ({"plays": "connection"}, "plays takes a list of plays such as .* got 'connection'"),
    ({"only_plays": Connection()}, "only_plays takes a list of plays"),
    ({"only_plays": [Connection]}, r"the class Connection \(did you mean Connection\(\)\?\)"),
    ({"plays": [], "only_plays": []}, r"either plays=\[...\], which adds .* or only_plays=\[...\], which replaces"),
    ({"plays": ["connection"]}, "instances of fastlane.Play such as .* got str 'connection'"),
    ({"plays": [Connection(), Connection(http2="never")]}, "holds Connection twice"),
    ({"on_call_end": 3}, "a function or a list of functions, got int"),
    ({"on_call_end": [3]}, "functions of one CallRecord, got 3"),
    ({"raise_play_errors": "yes"}, "True or False, got 'yes'"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "AzureOpenAI"])
def test_invalid_client_setting_is_refused_with_a_remedy(
    arguments: dict[str, Any], azure_arguments: dict[str, Any], name: str, settings: dict[str, Any], message: str
) -> None:
    given = azure_arguments if name == "AzureOpenAI" else arguments
    with pytest.raises(ConfigurationError, match=message) as raised:
        getattr(fastlane, name)(**given, **settings)

    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, openai.OpenAIError)


# A stream that a session stops


SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}


@pytest.mark.parametrize("http2", ["prefer", "never"])
def test_on_event_stops_the_stream_and_the_generation(
    form: Form, provider: Emulator, arguments: dict[str, Any], http2: Any
) -> None:
    plays = [Connection(http2=http2), StopsAfter(3)]
    with form.make(fastlane, **arguments, only_plays=plays, default_headers=SLOW, raise_play_errors=True) as client:
        chunks = ENTRIES["chat_streamed"](client)

        assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) == 3
        (record,) = client.calls
        assert (record.outcome, record.error) == ("stopped", None)
        assert record.events == len(chunks)
        assert comes_true(lambda: provider.log()[0].reset_ns is not None), "the provider notices that the client left"
        assert provider.log()[0].output_tokens < 3000
