"""What is made of the answers of servers that are unlike the emulator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doctor.looking import answering, by_name, look


def whole(content: str, *, tokens: int = 1, finish_reason: str = "stop") -> tuple[int, dict[str, Any]]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    return 200, {"id": "a", "object": "chat.completion", "choices": [choice], "usage": usage}


SEA = {"mood": "calm", "waves": 3, "is_blue": True}


@pytest.mark.parametrize(
    ("name", "answer", "state"),
    [
        ("json_object", whole('{"any": 1}'), "seen"),
        ("json_object", whole("[1]"), "notable"),
        ("json_object", whole("The sea sings."), "notable"),
        ("json_schema", whole(json.dumps(SEA)), "seen"),
        ("json_schema", whole(json.dumps(SEA | {"mood": "sad"})), "notable"),
        ("json_schema", whole(json.dumps(SEA | {"waves": True})), "notable"),
        ("json_schema", whole(json.dumps(SEA | {"more": 1})), "notable"),
        ("json_schema", whole('{"mood": "calm"}'), "notable"),
        ("json_schema", whole('{"mood": "ca', finish_reason="length"), "failed"),
        ("json_schema", (400, {}), "notable"),
        ("json_schema", (429, {}), "failed"),
    ],
)
def test_response_format_is_judged_by_the_answer(name: str, answer: tuple[int, dict[str, Any]], state: str) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return answer if body.get("response_format", {}).get("type") == name else whole("Yes.")

    with answering(reply) as (url, _):
        document = look(url)

    finding = by_name(document)[name]
    assert finding["state"] == state
    assert bool(finding["facts"]) is (state == "seen")
    assert "sea sings" not in json.dumps(document)


@pytest.mark.parametrize(
    ("status_and_tokens", "limit", "refused", "ignored", "calls"),
    [
        (lambda _: (200, 1), "max_completion_tokens", [], [], 1),
        (
            *(lambda body: (200, 1) if "max_tokens" in body else (400, 0), "max_tokens"),
            *(["max_completion_tokens"], [], 2),
        ),
        (
            lambda body: (200, 9) if body.get("max_completion_tokens", 0) >= 16 else (400, 0),
            *("max_completion_tokens", [], [], 3),
        ),
        (lambda body: (200, 1 if "max_tokens" in body else 64), "max_tokens", [], ["max_completion_tokens"], 2),
        (lambda _: (200, 64), "max_tokens", [], ["max_completion_tokens", "max_tokens"], 2),
    ],
)
def test_first_call_finds_the_name_of_the_limit(
    status_and_tokens: Any, limit: str, refused: list[str], ignored: list[str], calls: int
) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, tokens = status_and_tokens(body)
        return whole("Yes.", tokens=tokens) if status == 200 else (status, {})

    with answering(reply) as (url, bodies):
        finding = by_name(look(url))["first call"]

    assert (finding["value"]["refused_limits"], finding["value"]["ignored_limits"]) == (refused, ignored)
    assert (finding["state"] == "notable") is bool(ignored)
    limits = [next(name for name in body if name.startswith("max_")) for body in bodies]
    assert set(limits[calls - 1 :]) == {limit}


@pytest.mark.parametrize(("status", "requests"), [(400, 5), (401, 1), (500, 1)])
def test_first_call_that_is_refused_gives_its_status(status: int, requests: int) -> None:
    with answering(lambda _: (status, {})) as (url, bodies):
        finding = by_name(look(url))["first call"]

    assert finding["seen"].startswith(f"{status}: ")
    assert len(bodies) == requests


def event(**document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def text(content: str) -> bytes:
    return event(choices=[{"delta": {"content": content}}])


END = event(choices=[], usage={"completion_tokens": 8}) + b"data: [DONE]\n\n"
STEADY = [(0.01, text("a"))] * 8
BROKEN_OFF = (0, b"")
BURSTS = [(0.3, text("a") * 8)] * 3


@pytest.mark.parametrize(
    ("pieces", "name", "state", "seen"),
    [
        ([*STEADY, (0, END)], "token counts", "seen", ""),
        ([*STEADY, (0, END)], "end", "seen", ""),
        ([*BURSTS, (0, END)], "chunks", "notable", ""),
        ([(0, b"data: {broken\n\n" + END)], "the stream", "failed", ""),
        ([(0, b"data: {broken\n\n" + END)], "end", "seen", ""),
        ([*STEADY, BROKEN_OFF], "the stream", "failed", "broken off ("),
        ([(0, text("a")), (0, event(choices=[], usage=None))], "token counts", "notable", "none, although asked for"),
    ],
)
def test_stream_is_judged_by_its_events(pieces: Any, name: str, state: str, seen: str) -> None:
    with answering(lambda body: pieces if body.get("stream") else whole("Yes.")) as (url, _):
        finding = by_name(look(url))[name]

    assert finding["state"] == state
    assert finding["seen"].startswith(seen)
