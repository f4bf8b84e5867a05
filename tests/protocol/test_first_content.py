from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.protocol.content import choices_kind
from fastlane.protocol.fields import from_json
from fastlane.protocol.first_content import FirstContent, Verdict, is_empty_answer
from tests.attempts.events import (
    BEFORE,
    BEFORE_RESPONSE,
    CALL,
    CHAT,
    COMMENT,
    COMPLETIONS,
    CREATED,
    DONE,
    MESSAGE,
    RESPONSES,
    ROLE,
    STOP,
    THOUGHT,
    USAGE,
    choice_event,
    chunk,
    data,
    response,
    whole_response,
)


def fed(pieces: Iterable[bytes], endpoint: str = CHAT) -> list[Verdict | None]:
    first = FirstContent(endpoint)
    return [first.feed(piece) for piece in pieces]


def verdict(*pieces: bytes, endpoint: str = CHAT) -> tuple[Verdict, int | None]:
    """The verdict on all of a body, and the status of its error."""
    first = FirstContent(endpoint)
    for piece in pieces:
        found = first.feed(piece)
        if found is not None:
            return found, first.status_of_error
    return first.ended(), first.status_of_error


# What a first content is


CALLED = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}]
RHINE = choice_event(content="Rhine")
RESPONSE_RHINE = response("output_text.delta", output_index=0, content_index=0, delta="Rhine")
NO_TEXT, TEXT = (data(chunk({"index": 0, "text": text, "finish_reason": None})) for text in ("", "Rhine"))


@pytest.mark.parametrize(
    ("endpoint", "before", "content"),
    [
        *((CHAT, before, RHINE) for before in BEFORE),
        *((RESPONSES, before, RESPONSE_RHINE) for before in BEFORE_RESPONSE),
        (COMPLETIONS, NO_TEXT, TEXT),
        (CHAT, choice_event("stop"), choice_event(index=1, content="Rhine")),
        (CHAT, ROLE, choice_event(content="\n")),
        (CHAT, ROLE, choice_event(content=[{"type": "text", "text": "Rhine"}])),
        (CHAT, ROLE, choice_event(content=None, reasoning_content="Hm")),
        (CHAT, ROLE, choice_event(content="", reasoning="Hm")),
        (CHAT, ROLE, choice_event(reasoning_details=[{"type": "reasoning.text", "text": "Hm"}])),
        (CHAT, ROLE, choice_event(refusal="No")),
        (CHAT, ROLE, choice_event(tool_calls=CALLED)),
        (CHAT, ROLE, choice_event(function_call={"name": "look", "arguments": ""})),
        (CHAT, ROLE, choice_event(audio={"id": "audio_1", "data": "AAAA"})),
        (CHAT, ROLE, data({"choices": [None, {"message": {"role": "assistant", "content": "Rhine"}}]})),
    ],
)
def test_preamble_is_no_content_and_each_output_is(endpoint: str, before: bytes, content: bytes) -> None:
    assert fed([before, content], endpoint) == [None, "content"]


def test_first_token_of_the_record_is_content() -> None:
    names = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "audio", "role")
    for name in names:
        for value in ("", None, "text", [], [{"index": 0, "type": "text", "text": "text"}], {"name": "look"}):
            event = chunk({"index": 0, "delta": {name: value}, "finish_reason": None})
            token = choices_kind(from_json(json.dumps(event)).choices)
            assert fed([data(event)]) == [None if token is None else "content"], (name, value)


@pytest.mark.parametrize(
    "event",
    [
        response("output_text.delta", delta="Rhine"),
        response("refusal.delta", delta="No"),
        response("reasoning_text.delta", delta="Hm"),
        response("reasoning_summary_text.delta", delta="Hm"),
        response("function_call_arguments.delta", delta="{"),
        response("custom_tool_call_input.delta", delta="ls"),
        response("mcp_call_arguments.delta", delta="{"),
        response("audio.delta", delta="AAAA"),
        response("web_search_call.in_progress", output_index=0),
        response("code_interpreter_call.interpreting", output_index=0),
        # Of providers that send no deltas.
        response("output_text.done", text="Rhine"),
        response("content_part.done", part={"type": "output_text", "text": "Rhine"}),
        response("function_call_arguments.done", arguments="{}"),
        response("output_item.done", item={**MESSAGE, "content": [{"type": "output_text", "text": "Rhine"}]}),
        response("output_item.done", item={**THOUGHT, "summary": [{"type": "summary_text", "text": "Hm"}]}),
        response("output_item.done", item=CALL),
        response("completed", response=whole_response(CALL)),
        response("incomplete", response=whole_response(CALL, status="incomplete")),
    ],
)
def test_each_event_of_a_response_that_says_something_is_content(event: bytes) -> None:
    assert fed([CREATED, event], RESPONSES) == [None, "content"]


# What ends without any


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (DONE,),
        (COMMENT, COMMENT),
        (ROLE, STOP, USAGE, DONE),
        (ROLE, STOP),
        (ROLE, choice_event("tool_calls"), DONE),
        (ROLE,),
        (
            choice_event(
                "stop", role="assistant", content="", annotations=[], provider_specific_fields={"refusal": None}
            ),
        ),
        (ROLE + STOP + DONE,),
        (ROLE, b'data: {"choices": [{"index": 0, "delta": {"content": "cut off by the e'),
    ],
)
def test_answer_that_says_nothing_is_empty(pieces: tuple[bytes, ...]) -> None:
    assert verdict(*pieces) == ("empty", None)
    assert set(fed(piece for piece in pieces if DONE not in piece)) <= {None}, "the answer is not over yet"


CUT_OFF = whole_response(THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
FAILED = whole_response(status="failed", error={"code": "server_error", "message": "no"})
PICTURE = choice_event(content="", images=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((*BEFORE_RESPONSE, response("completed", response=whole_response(THOUGHT, MESSAGE))), ("empty", None)),
        ((CREATED,), ("empty", None)),
        ((CREATED, response("incomplete", response=CUT_OFF)), ("unknown", None)),
        ((CREATED, response("failed", response=FAILED)), ("error", 500)),
        ((CREATED, data({"type": "error", "code": "rate_limit_exceeded", "message": "no"})), ("error", 429)),
    ],
    ids=["no text", "no end", "limit", "failed", "error"],
)
def test_response_without_content_has_its_verdict(pieces: tuple[bytes, ...], expected: Any) -> None:
    assert verdict(*pieces, endpoint=RESPONSES) == expected


@pytest.mark.parametrize("reason", ["length", "content_filter", "max_tokens", "LENGTH"])
def test_empty_answer_at_limit_or_filter_has_unknown_verdict(reason: str) -> None:
    assert verdict(ROLE, choice_event(reason), DONE) == ("unknown", None)


def test_answer_with_unknown_delta_has_content() -> None:
    assert verdict(ROLE, PICTURE, STOP, DONE) == ("content", None)


def test_first_content_gives_up_after_16_mb() -> None:
    large = response("created", response=whole_response(status="in_progress", instructions="x" * 3_000_000))
    found = fed([large] * 7, RESPONSES)
    assert found[:5] == [None] * 5
    assert found[-1] == "unknown"


# What fails before any


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "no", "code": 503}}, 503),
        ({"error": {"message": "no", "type": "rate_limit_exceeded"}}, 429),
        ({"error": {"message": "no", "type": "invalid_request_error"}}, 400),
        ({"error": "no"}, 500),
        ({**chunk({"index": 0, "delta": {"content": ""}, "finish_reason": "error"}), "error": {"code": 502}}, 502),
        (chunk({"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": {"code": 429}}), 429),
        ({"object": "error", "message": "no", "code": 400}, 400),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "no", "param": None}, 429),
    ],
)
def test_error_before_content_has_its_status(event: dict[str, Any], status: int) -> None:
    assert verdict(COMMENT, ROLE, data(event)) == ("error", status)


def test_malformed_event_is_an_error_without_status() -> None:
    assert verdict(ROLE, b"data: <html>\n\n") == ("error", None)


def test_error_after_first_content_is_ignored() -> None:
    first = FirstContent(CHAT)
    assert first.feed(choice_event(content="Rhine") + data({"error": {"code": 503}})) == "content"
    assert first.feed(data({"error": {"code": 503}})) == "content"
    assert first.ended() == "content"
    assert first.status_of_error is None


# However it is cut


BROKEN = (data({"error": {"code": 503}}), b"data: {\n\n")
EVENTS = st.lists(st.sampled_from([*BEFORE, RHINE, choice_event("length"), STOP, DONE, *BROKEN]), max_size=5)


@given(EVENTS, st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_piece_boundaries_do_not_change_the_verdict(events: list[bytes], end: bytes, draw: st.DataObject) -> None:
    body = b"".join(events).replace(b"\n", end)
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(body)), max_size=6)))
    pieces = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert verdict(*pieces) == verdict(*events)


# Whole answers


def completion(reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}]}


THOUGHT_ALONE = whole_response({**THOUGHT, "summary": [{"type": "summary_text", "text": "Hm"}]}, MESSAGE)
NO_LEGACY_TEXT = {"index": 0, "text": "", "finish_reason": "stop"}


EMPTY: list[tuple[str, dict[str, Any]]] = [
    (CHAT, completion(content=None)),
    (CHAT, completion(content="", refusal=None, annotations=[])),
    (CHAT, completion(content=[{"type": "text", "text": ""}])),
    (CHAT, completion(content="", reasoning_content="Hm")),
    (CHAT, completion("tool_calls", content=None, tool_calls=[])),
    (CHAT, {"choices": []}),
    (CHAT, {"choices": None}),
    (CHAT, {"error": {"message": "no", "code": 503}}),
    (COMPLETIONS, {"choices": [NO_LEGACY_TEXT]}),
    (RESPONSES, THOUGHT_ALONE),
    (RESPONSES, whole_response(status="failed")),
]
USABLE: list[tuple[str, dict[str, Any]]] = [
    (CHAT, completion(content="Rhine")),
    (CHAT, completion(content=[{"type": "text", "text": "Rhine"}])),
    (CHAT, completion(content=None, refusal="No")),
    (CHAT, completion("tool_calls", content=None, tool_calls=CALLED)),
    (CHAT, completion("function_call", content=None, function_call={"name": "look", "arguments": "{}"})),
    (CHAT, completion(content=None, audio={"id": "audio_1", "data": "AAAA"})),
    (CHAT, completion(content="", images=[{"image_url": {"url": "data:image/png;base64,AAAA"}}])),
    (CHAT, completion("length", content="")),
    (CHAT, completion("content_filter", content=None)),
    (CHAT, {"choices": [*completion(content="")["choices"], *completion(content="Rhine")["choices"]]}),
    (COMPLETIONS, {"choices": [{**NO_LEGACY_TEXT, "text": "Rhine"}]}),
    (COMPLETIONS, {"choices": [{**NO_LEGACY_TEXT, "finish_reason": "length"}]}),
    (RESPONSES, whole_response(CALL)),
    *((RESPONSES, whole_response(status=status)) for status in ("incomplete", "queued", "in_progress", "cancelled")),
    ("/embeddings", {"data": []}),
]


@pytest.mark.parametrize(
    ("is_empty", "endpoint", "answer"), [*((True, *case) for case in EMPTY), *((False, *case) for case in USABLE)]
)
def test_whole_answer_is_empty_without_anything_to_use(is_empty: bool, endpoint: str, answer: dict[str, Any]) -> None:
    assert is_empty_answer(answer, endpoint) == is_empty
