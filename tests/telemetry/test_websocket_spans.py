"""Each response over a WebSocket has one span and its metrics, as over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.telemetry.conftest import Listening, attributes_of
from tests.waiting import Form

HELLO: Any = {"type": "response.create", "model": "m", "input": "Hello", "temperature": 0.5}
ENDS = ("response.completed", "error")


@pytest.mark.parametrize("level", ["call", "phases"])
def test_each_response_has_its_span_in_its_lane(
    form: Form, arguments: dict[str, Any], provider: Emulator, listening: Listening, level: str
) -> None:
    captured = listening(level=level)
    with form.make(fastlane, **arguments) as client, client.responses.connect() as connection:
        for lane in ("a", "b"):
            connection.send({**HELLO, "stream_id": lane})
        connection.send({**HELLO, "previous_response_id": "resp_none"})
        ended = 0
        while ended < 3:
            ended += connection.recv().type in ENDS

    spans = captured.named("chat")
    found = [attributes_of(span) for span in spans]
    ids = {each.get("gen_ai.response.id") for each in found}
    assert ids == {f"resp_{log.sequence_number:012d}" for log in provider.log() if log.status == 200} | {None}
    assert [each.get("error.type") for each in found].count("previous_response_not_found") == 1
    assert min(each.get("gen_ai.usage.output_tokens", 0) for each in found) == 0
    assert {each["gen_ai.request.temperature"] for each in found} == {0.5}
    if level == "phases":
        attempts = [one for span in spans for one in captured.children(span) if one.name == "POST"]
        assert ["http.request.body.size" in attributes_of(one) for one in attempts] == [True] * 3
    assert sum(point.count for point in captured.points()["gen_ai.client.operation.duration"]) == 3
