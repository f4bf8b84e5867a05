"""In which order plays plan, and which calls a client remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import fastlane
from fastlane import Call, Stage
from tests.prepared_server import LIBRARY
from tests.session_play import SessionPlay


@dataclass(frozen=True, slots=True)
class Notes(SessionPlay):
    """A play that notes its turn on the call."""

    stage: ClassVar[Stage] = Stage.SHAPE

    def plan(self, call: Call) -> Call:
        name = type(self).__name__
        return call.with_body(name, user=name)


class Routes(Notes):
    stage = Stage.ROUTE


class Shapes(Notes):
    stage = Stage.SHAPE


class ShapesToo(Notes):
    stage = Stage.SHAPE


class Encodes(Notes):
    stage = Stage.ENCODE


def client_with(*plays: Any) -> fastlane.OpenAI:
    """A client whose every call is answered at once."""
    transport = LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json={}))
    http_client = LIBRARY.Client(transport=transport)
    return fastlane.OpenAI(api_key="sk-test", base_url="http://x/v1", http_client=http_client, only_plays=plays)


def test_plays_plan_by_stage_then_by_given_order() -> None:
    with client_with(Encodes(), ShapesToo(), Shapes(), Routes()) as client:
        client.chat.completions.create(model="m", messages=[])

        assert client.calls[0].changes == ("Routes", "ShapesToo", "Shapes", "Encodes")


def test_last_1000_calls_are_remembered_the_oldest_first() -> None:
    with client_with() as client:
        assert (client.calls, client.last_call) == ((), None)
        for number in range(1_005):
            client.get(f"/{number}", cast_to=object)

        assert [call.endpoint for call in client.calls] == [f"/{number}" for number in range(5, 1_005)]
        assert client.last_call is client.calls[-1]
