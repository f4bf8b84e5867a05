from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from fastlane import AsyncOpenAI, Call, CallRecord, OpenAI, Play, PlayError, Stage
from fastlane.emulator import Emulator
from fastlane.engine.session import STOP, CallOutcome, Session, Stop
from tests.session_play import SessionPlay
from tests.transport.callers import CALLERS, request


@dataclass(frozen=True)
class Seed(SessionPlay):
    """Sets a seed where the caller set none."""

    stage: ClassVar[Stage] = Stage.SHAPE
    value: int = 7

    def plan(self, call: Call) -> Call:
        return call if "seed" in call.body else call.with_body(f"seed: {self.value}", seed=self.value)


@dataclass(frozen=True)
class StopAfter(Play):
    """Stops a stream after some of its events."""

    events: int = 3

    def open(self, call: Call) -> Session | None:
        return _Counter(self.events) if call.stream else None


class _Counter(Session):
    def __init__(self, left: int) -> None:
        self.left = left

    def on_event(self, event: Any) -> Stop | None:
        self.left -= 1
        return STOP if self.left == 0 else None


@dataclass(frozen=True)
class Breaks(SessionPlay):
    def plan(self, call: Call) -> Call:
        raise ValueError("the prompt")


@dataclass(frozen=True)
class Remembers(SessionPlay):
    records: list[CallRecord] = dataclasses.field(default_factory=list, repr=False)

    def close(self, outcome: CallOutcome) -> None:
        self.records.append(outcome.record)


def test_a_play_that_overrides_nothing_has_no_session() -> None:
    call = Call(call_id="a-1", endpoint="/chat/completions", origin="https://x:443", body={}, stream=False)

    assert Play().open(call) is None
    assert Play().stage is Stage.SHAPE


def test_the_stages_are_in_the_order_in_which_they_see_a_call() -> None:
    assert Stage.ROUTE < Stage.SHAPE < Stage.PREFIX < Stage.ENCODE


@pytest.fixture(params=CALLERS)
def make_caller(request: pytest.FixtureRequest) -> Any:
    return CALLERS[request.param]


def test_what_a_play_changed_is_on_the_record_and_the_callers_own_wins(
    make_caller: Any, arguments: dict[str, Any]
) -> None:
    with make_caller(**arguments, only_plays=[Seed()], raise_play_errors=True) as caller:
        caller.ask()
        caller.client = caller.client.with_options(timeout=40)
        caller.read()

        assert [record.changes for record in caller.calls] == [("seed: 7",), ("seed: 7",)]
        assert caller.last_call.plays == ("Seed(value=7)",)


def test_what_the_caller_set_is_never_overridden_nor_changed_in_place(arguments: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "seed": 1}
    with OpenAI(**arguments, only_plays=[Seed()], raise_play_errors=True) as client:
        client.post("/chat/completions", body=body, cast_to=object)
        client.chat.completions.create(**request(), extra_body={"seed": 2})

        assert [record.changes for record in client.calls] == [(), ()]
    assert body == {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "seed": 1}


def test_on_event_stops_a_stream_and_the_server(
    make_caller: Any, arguments: dict[str, Any], provider: Emulator
) -> None:
    with make_caller(**arguments, only_plays=[StopAfter()], raise_play_errors=True) as caller:
        chunks = caller.read(output_tokens=3_000, token_ms=20)
        caller.read(output_tokens=3_000, token_ms=20)

        assert len(chunks) == 3
        assert [record.outcome for record in caller.calls] == ["stopped", "stopped"]
    assert all(entry.finished_ns is None for entry in provider.log())


def test_a_play_that_raises_does_not_touch_the_call(make_caller: Any, arguments: dict[str, Any]) -> None:
    with make_caller(**arguments, only_plays=[Breaks(), Seed()]) as caller:
        caller.ask()

        assert caller.last_call.outcome == "completed"
        assert caller.last_call.changes == ("seed: 7",)


def test_a_play_that_raises_is_an_error_where_the_client_is_strict(make_caller: Any, arguments: dict[str, Any]) -> None:
    with make_caller(**arguments, only_plays=[Breaks()], raise_play_errors=True) as caller:
        with pytest.raises(PlayError, match="Breaks raised ValueError in plan"):
            caller.ask()

        assert caller.last_call.outcome == "failed"
        assert caller.last_call.error == "PlayError"


def test_a_session_is_closed_with_the_record_of_its_call(make_caller: Any, arguments: dict[str, Any]) -> None:
    play = Remembers()
    with make_caller(**arguments, only_plays=[play], raise_play_errors=True) as caller:
        caller.ask()
        caller.read()
        caller.close_stream(caller.start(1))

        assert [record.outcome for record in play.records] == ["completed", "completed", "closed"]
        assert caller.calls == tuple(play.records)  # no play gave them a section


@pytest.mark.parametrize("client_class", [OpenAI, AsyncOpenAI])
def test_a_copy_with_other_plays_has_a_log_of_its_own(client_class: Any, arguments: dict[str, Any]) -> None:
    client = client_class(**arguments, only_plays=[Seed()])

    assert client.with_plays(StopAfter())._fastlane.pipeline is not client._fastlane.pipeline
    assert client.with_options(timeout=3)._fastlane.pipeline is client._fastlane.pipeline
