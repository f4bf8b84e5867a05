from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, Connection, InvalidOutputError
from fastlane._clock import now_ns
from fastlane.emulator import Emulator
from fastlane.engine import refused_fields as _refused_fields
from tests.attempts.events import whole_response
from tests.call_peer import Asked, CallPeer, Reply
from tests.plays.bounded_output import answers as sse
from tests.plays.bounded_output.answers import (
    FORMAT,
    MESSAGES,
    VALID,
    WRONG,
    bounded,
    create,
    output_of,
    parse,
    refusing,
    streamed,
    whole,
)
from tests.transport.resources import descriptors, threads
from tests.waiting import Form, comes_true, until

HOUR_NS = 3_600 * 10**9


def strict_server(*refused: str) -> Any:
    """Answers what is asked without these fields, and refuses one of them at a time."""

    def answer(asked: Asked) -> Reply:
        body = json.loads(asked.body)
        for name in refused:
            if name in body:
                return refusing(f"Unsupported parameter: '{name}'")
        return streamed(sse.streamed_text(VALID)) if body.get("stream") else whole(VALID)

    return answer


NOTHING_NAMED = [
    refusing("Bad request"),
    Reply(400, (("content-type", "text/html"),), b"<html>400 Bad Request</html>"),
    refusing("Please stop: the text of this message could not be read as a stream of words."),
]


@pytest.mark.parametrize("field", ["stream", "stream_options", "max_tokens"])
def test_refused_added_fields_are_left_out(one_peer: CallPeer, field: str) -> None:
    with bounded(one_peer) as client:
        one_peer.usually = strict_server(field)
        answers = [create(client) for _ in range(2)]
        record = client.last_call

    bodies = [json.loads(one.body) for one in one_peer.take()]
    assert [field in body for body in bodies] == [True, False, False]
    assert {answer.choices[0].message.content for answer in answers} == {VALID}
    assert len(record.attempts) == 1
    assert "stream" in bodies[-1] or "stream_options" not in bodies[-1]


def respond(client: Any, **more: Any) -> Any:
    wanted = {"type": "json_schema", "name": "answer", "schema": sse.SCHEMA, "strict": True}
    return client.responses.create(model="m", input="Which?", text={"format": wanted}, **more)


@pytest.mark.parametrize("ask", [create, respond])
@pytest.mark.parametrize("reply", NOTHING_NAMED)
def test_400_that_names_no_field_is_sent_once(one_peer: CallPeer, reply: Reply, form: Form, ask: Any) -> None:
    """It is the caller's error: nothing is taken back, nothing is remembered, and the next call streams."""
    one_peer.usually = lambda _: reply
    with bounded(one_peer, form=form) as client:
        for _ in range(2):
            with pytest.raises(openai.BadRequestError):
                ask(client)
        records = client.calls

    assert [json.loads(one.body)["stream"] for one in one_peer.take()] == [True, True]
    assert [len(record.attempts) for record in records] == [1, 1]
    assert not [change for record in records for change in record.changes if "sent again" in change]


def test_refused_field_is_sent_again_after_an_hour(one_peer: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    time_ns = now_ns()
    monkeypatch.setattr(_refused_fields, "now_ns", lambda: time_ns)
    with bounded(one_peer) as client:
        one_peer.usually = strict_server("stream_options")
        create(client)
        assert output_of(client).refused_fields == ("stream_options",)
        one_peer.take()
        one_peer.usually = strict_server()
        for passed_ns in (0, HOUR_NS - 1, HOUR_NS):
            monkeypatch.setattr(_refused_fields, "now_ns", lambda passed_ns=passed_ns: time_ns + passed_ns)
            create(client)
        assert ["stream_options" in json.loads(one.body) for one in one_peer.take()] == [False, False, True]


def test_field_refused_for_one_key_is_sent_with_another(one_peer: CallPeer) -> None:
    """A client for each request does not find it out each time; whose organisation may not stream, is its own."""
    one_peer.usually = lambda asked: (
        refusing("Your organization must be verified to stream this model.", param="stream")
        if asked.header("authorization") == "Bearer sk-test" and json.loads(asked.body).get("stream")
        else strict_server()(asked)
    )
    for key in ("sk-test", "sk-test", "sk-other"):
        with bounded(one_peer, api_key=key) as client:
            create(client)

    assert ["stream" in json.loads(one.body) for one in one_peer.take()] == [True, False, False, True]


def test_added_limit_above_the_context_is_left_out(one_peer: CallPeer) -> None:
    def answer(asked: Asked) -> Reply:
        limit = json.loads(asked.body).get("max_tokens", 0)
        if limit > 4_000:
            return refusing(
                f"This model's maximum context length is 4096 tokens. However, you requested {limit + 10} tokens (10 "
                f"in the messages, {limit} in the completion). Please reduce the length of the messages or completion.",
                code=400,
            )
        return streamed(sse.streamed_text(VALID))

    with bounded(one_peer, BoundedOutput(reasoning_tokens=5_000)) as client:
        one_peer.usually = answer
        assert create(client).choices[0].message.content == VALID
        assert output_of(client).refused_fields == ("max_tokens",)


def test_fields_of_the_caller_are_never_left_out(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.usually = strict_server("response_format")
        with pytest.raises(openai.BadRequestError, match="response_format"):
            create(client)
        assert len(one_peer.take()) == 1


def test_complete_answer_at_length_limit_is_valid(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(f"{VALID}  \n", finish="length"))]
        answer = create(client)
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("stop", VALID)
        assert answer.usage.completion_tokens == 12
        assert output_of(client).verdict == "valid"
        assert output_of(client).stop_reason is None
        assert (client.last_call.outcome, client.last_call.usage.estimated) == ("completed", False)


def test_body_that_requests_streaming_is_not_changed(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(VALID))]
        answer = client.post(
            "/chat/completions",
            body={"model": "m", "messages": MESSAGES, "response_format": FORMAT, "stream": True},
            cast_to=str,
        )
        assert answer.startswith("data: ")


# Tools


TOOLS: Any = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


def calling(text: str) -> list[Any]:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    events_before = sse.streamed_text(text, finish=None)
    return [*events_before, sse.chunk(tool_calls=[call]), sse.chunk(finish="tool_calls"), sse.usage_chunk()]


@pytest.mark.parametrize("text", ["Let me look that up.", f"{VALID} Let me see.", "", f"{VALID}{VALID}"])
def test_text_before_a_tool_call_is_not_validated(one_peer: CallPeer, text: str) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(calling(text))]
        message = create(client, tools=TOOLS).choices[0].message

    assert message.tool_calls[0].function.name == "look_up"
    assert message.content == (text or None)


def test_fence_around_arguments_is_taken_off(one_peer: CallPeer) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": ""}}
    pieces = ("```json\n", '{"a"', ": 1}", "\n", "```", " I called the tool", " for you.")
    events_before = [sse.chunk(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in pieces]
    events = [sse.chunk(role="assistant", tool_calls=[call]), *events_before]
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(events)]
        (made,) = create(client, tools=TOOLS, response_format=openai.omit).choices[0].message.tool_calls
    assert made.function.arguments == '{"a": 1}'


def test_without_a_check_the_application_has_all_of_the_answer(one_peer: CallPeer) -> None:
    text = f'{{"category":{" " * 300}"none"}}'
    with bounded(one_peer, BoundedOutput(validate=False)) as client:
        one_peer.replies = [streamed(sse.streamed_text(text))]
        assert create(client).choices[0].message.content == text


def test_answer_without_tool_call_is_validated_beside_tools(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text("I cannot say."))]
        with pytest.raises(InvalidOutputError):
            create(client, tools=TOOLS)


# Chains of answers


@pytest.mark.parametrize(("text", "shown"), [(WRONG, WRONG), ('{"a"' + " \n" * 500, '{"a"'), (" ", "(no text)")])
def test_repair_request_appends_answer_and_problem(one_peer: CallPeer, text: str, shown: str) -> None:
    with bounded(one_peer, BoundedOutput(reasks=1, early_stop=False)) as client:
        one_peer.replies = [whole(text), whole(VALID)]
        create(client)

    first, again = (json.loads(one.body) for one in one_peer.take())
    *before, answer, correction = again["messages"]
    assert {**again, "messages": before} == first
    assert answer == {"role": "assistant", "content": shown}
    assert correction["content"].startswith("Your last answer is not valid. What is wrong with it:\n")
    assert correction["content"].endswith(
        "\nGive the whole answer again, corrected: only the answer itself, in the requested form."
    )


@pytest.mark.parametrize(("earlier", "requests"), [("previous_response_id", 2), ("conversation", 1)])
def test_repair_of_a_response_appends_to_its_input(one_peer: CallPeer, earlier: str, requests: int) -> None:
    """A conversation holds question and answer already: nothing can be appended."""
    text = {"type": "output_text", "text": WRONG, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    one_peer.usually = lambda _: Reply(body=json.dumps(whole_response(message)).encode())
    with bounded(one_peer, BoundedOutput(reasks=1, early_stop=False)) as client, pytest.raises(InvalidOutputError):
        respond(client, **{earlier: "an-id"})

    first, *again = (json.loads(one.body)["input"] for one in one_peer.take())
    assert (first, len(again)) == ("Which?", requests - 1)
    assert [one[:2] for one in again] == [
        [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": WRONG}]
    ] * (requests - 1)


def test_malformed_response_format_is_sent_unchanged(one_peer: CallPeer) -> None:
    forms: list[Any] = [
        3, [], "json", {}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 3}, {"type": ["x"]},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": True}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#/nowhere"}}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strin"}, "strict": True}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "required": True}}},
    ]  # fmt: skip
    with bounded(one_peer, raise_play_errors=False) as client:
        one_peer.usually = strict_server()
        for form in forms:
            assert create(client, response_format=form).choices[0].message.content == VALID
            sent = json.loads(one_peer.take()[0].body)
            assert sent["response_format"] == form


def test_call_cancelled_at_any_point_leaks_nothing(arguments: dict[str, Any], provider: Emulator) -> None:
    records: list[fastlane.CallRecord] = []
    slow = {"x-emulator-token-ms": "1", "x-emulator-prefill-ms": "5", "x-emulator-manner": "wrong_enum"}

    async def run() -> None:
        plays = (Connection(), BoundedOutput(reasks=1, reasoning_tokens=0))
        async with fastlane.AsyncOpenAI(
            **arguments, only_plays=plays, raise_play_errors=True, on_call_end=[records.append]
        ) as client:
            for step in range(40):
                call = asyncio.ensure_future(parse(client, extra_headers=slow))
                await asyncio.sleep(step * 0.0015)
                call.cancel()
                try:
                    await call
                except asyncio.CancelledError:
                    pass
                assert len(records) == step + 1
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(left) <= 3, left  # of the connection
        assert await asyncio.to_thread(comes_true, lambda: not open_streams(provider))

    before = descriptors(), threads()
    asyncio.run(run())
    assert {record.outcome for record in records} <= {"cancelled", "completed"}
    assert records[0].outcome == "cancelled"
    until(lambda: (descriptors() - before[0], threads() - before[1]) == (set(), set()))


def open_streams(provider: Emulator) -> list[Any]:
    return [one for one in provider.log() if one.finished_ns is None and one.reset_ns is None]


def test_refusal_and_a_filter_are_as_with_the_stock_client(one_peer: CallPeer) -> None:
    refused = [sse.chunk(role="assistant"), sse.chunk(refusal="I "), sse.chunk(refusal="must not."),
               sse.chunk(finish="stop"), sse.usage_chunk()]  # fmt: skip
    with bounded(one_peer, BoundedOutput(reasks=1)) as client:
        one_peer.replies = [streamed(refused)]
        message = parse(client).choices[0].message
        assert (message.refusal, message.parsed) == ("I must not.", None)
        assert client.last_call.output.verdict == "refused"
        one_peer.replies = [streamed(sse.streamed_text(VALID[:9], finish="content_filter"))]
        with pytest.raises(openai.ContentFilterFinishReasonError):
            parse(client)
        assert len(one_peer.take()) == 2
