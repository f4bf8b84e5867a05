from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import fastlane
from fastlane import BoundedOutput, InvalidOutputError
from fastlane.emulator import Emulator, RequestLog
from tests.plays.bounded_output.answers import FORMAT, MESSAGES, SCHEMA, Ticket, create, output_of, parse
from tests.waiting import SYNC, Form, until


class Open(BaseModel):
    notes: str
    tags: list[str]


def client(
    arguments: dict[str, Any], *plays: fastlane.Play, manner: str | None = None, form: Form = SYNC, **more: Any
) -> Any:
    headers = {} if manner is None else {"x-emulator-manner": manner}
    plays = (fastlane.Connection(), *plays)
    made = {**arguments, "only_plays": plays, "raise_play_errors": True, "default_headers": headers, **more}
    return form.make(fastlane, **made)


def reset(provider: Emulator) -> RequestLog:
    """The streamed request, once the provider has seen that its stream was reset."""
    until(lambda: any(one.reset_ns is not None for one in provider.log()))
    (request,) = [one for one in provider.log() if one.stream]
    return request


def stock_ticket(arguments: dict[str, Any]) -> Any:
    with openai.OpenAI(**arguments) as stock:
        return parse(stock)


def without_ids(answer: Any) -> dict[str, Any]:
    data: dict[str, Any] = answer.model_dump(warnings=False)
    for name in ("id", "created", "created_at"):
        data.pop(name, None)
    for item in data.get("output") or ():
        item.pop("id", None)
    return data


# What the caller sees


def test_parsed_response_is_the_stock_clients(arguments: dict[str, Any]) -> None:
    asked: Any = {"model": "m", "input": "Which category?", "text_format": Ticket}
    with client(arguments, BoundedOutput()) as bounded, openai.OpenAI(**arguments) as stock:
        answer, expected = bounded.responses.parse(**asked), stock.responses.parse(**asked)

    # The request's own limit stands in the answer.
    assert answer.output_parsed == expected.output_parsed
    assert without_ids(answer) | {"max_output_tokens": None} == without_ids(expected)


# The limit


def test_limit_is_what_the_longest_valid_answer_takes(arguments: dict[str, Any]) -> None:
    with client(arguments, BoundedOutput(reasoning_tokens=0)) as bounded:
        parse(bounded)
        output = output_of(bounded)
        create(bounded, max_tokens=300)
        limited = output_of(bounded)

    assert output.bound_tokens <= output.ceiling_tokens < 200
    assert output.verdict == "valid"
    assert output.unbounded == ()
    # The limit of the caller is kept.
    assert (limited.ceiling_tokens, limited.ceiling_field) == (None, None)


def test_field_without_a_bound_is_named_or_given_one(arguments: dict[str, Any]) -> None:
    outputs = []
    for play in (BoundedOutput(), BoundedOutput(unbounded=200, reasoning_tokens=0)):
        with client(arguments, play) as bounded:
            bounded.chat.completions.parse(model="m", messages=MESSAGES, response_format=Open)
            outputs.append(output_of(bounded))

    named, given = outputs
    assert named.ceiling_tokens is None
    assert "Open.notes: string without maxLength" in named.unbounded
    assert any(name.startswith("Open.tags: ") for name in named.unbounded)
    assert 400 <= given.ceiling_tokens <= 2_000


def test_function_that_must_be_called_once_is_bounded(arguments: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "ticket", "parameters": SCHEMA, "strict": True}}]
    choice = {"type": "function", "function": {"name": "ticket"}}
    asked: Any = {"model": "m", "messages": MESSAGES, "tools": tools, "tool_choice": choice}
    with client(arguments, BoundedOutput(reasoning_tokens=0)) as bounded:
        answer = bounded.chat.completions.create(**asked, parallel_tool_calls=False)
        once = output_of(bounded)
        bounded.chat.completions.create(**asked)
        often = output_of(bounded)

    assert 0 < once.bound_tokens <= once.ceiling_tokens < 200
    assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments).keys() == SCHEMA["properties"].keys()
    assert (often.bound_tokens, often.ceiling_tokens) == (None, None)


# Early stop


@pytest.mark.parametrize("manner", ["whitespace", "prose", "second"])
@pytest.mark.parametrize("early_stop", [True, "at_once"])
def test_runaway_answer_is_stopped(arguments: dict[str, Any], provider: Emulator, manner: str, early_stop: Any) -> None:
    bounding = BoundedOutput(early_stop=early_stop, reasoning_tokens=4_000)
    with client(arguments, bounding, manner=manner) as bounded:
        headers = {"x-emulator-token-ms": "5"}
        answer = parse(bounded, extra_headers=headers)
        record = bounded.last_call

    assert answer.choices[0].message.parsed == stock_ticket(arguments).choices[0].message.parsed
    output = record.output
    assert record.outcome == "stopped"
    # What follows the last brace may be in one piece with it.
    assert output.stop_reason in ({"complete"} if early_stop == "at_once" else set()) | {
        manner.replace("second", "prose")
    }
    assert output.verdict == "valid"
    assert record.usage.estimated
    assert (answer.usage.model_extra or {})["estimated"] is True
    assert output.tokens_not_generated > 3_000
    request = reset(provider)
    assert request.reset_code == 8
    assert request.output_tokens < 400


def test_stopped_caller_stream_gets_its_closing_events(arguments: dict[str, Any], provider: Emulator) -> None:
    with (
        client(arguments, BoundedOutput(reasoning_tokens=4_000), manner="prose") as bounded,
        bounded.chat.completions.stream(
            model="m",
            messages=MESSAGES,
            response_format=Ticket,
            extra_headers={"x-emulator-token-ms": "5"},
        ) as stream,
    ):
        texts = [event.delta for event in stream if event.type == "content.delta"]
        assert texts
        record = bounded.last_call

    assert record.outcome == "stopped"
    assert record.finish_reason == "stop"
    assert record.output.stop_reason == "prose"
    assert reset(provider).output_tokens < 400


def test_streaming_helper_gets_answer_without_fence(arguments: dict[str, Any]) -> None:
    with (
        client(arguments, BoundedOutput(), manner="fence") as bounded,
        bounded.chat.completions.stream(model="m", messages=MESSAGES, response_format=Ticket) as stream,
    ):
        completion = stream.get_final_completion()

    assert completion.choices[0].message.parsed == stock_ticket(arguments).choices[0].message.parsed


def test_stream_running_on_inside_json_raises(arguments: dict[str, Any]) -> None:
    headers = {"x-emulator-output-text": '{"category": ' + " " * 1_000 + '"bug", "confidence": 0.5}'}
    with client(arguments, BoundedOutput()) as bounded:
        stream = create(bounded, stream=True, extra_headers=headers)
        with pytest.raises(InvalidOutputError, match="white space"):
            list(stream)
        record = bounded.last_call

    assert record.error == "InvalidOutputError"
    assert record.usage.estimated
    assert record.output.stop_reason == "whitespace"
    assert record.output.verdict == "invalid"


def test_invalid_streamed_answer_is_recorded(arguments: dict[str, Any]) -> None:
    with client(arguments, BoundedOutput(), manner="wrong_enum") as bounded:
        list(create(bounded, stream=True))

    output = output_of(bounded)
    assert output.verdict == "invalid"
    assert (output.problem or "").startswith("category: ")


@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True}}])
def test_truncated_caller_stream_has_verdict_truncated(arguments: dict[str, Any], more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "response_format": FORMAT, "max_tokens": 3, **more}
    with client(arguments, BoundedOutput()) as bounded:
        list(bounded.chat.completions.create(**asked, stream=True))

    assert output_of(bounded).verdict == "truncated"


# Valid or not


def test_read_timeout_covers_the_whole_bounded_answer(arguments: dict[str, Any]) -> None:
    headers = {"x-emulator-token-ms": "100"}
    with client(arguments, BoundedOutput(), max_retries=0) as bounded, pytest.raises(openai.APITimeoutError):
        bounded.with_options(timeout=0.4).chat.completions.parse(
            model="m", messages=MESSAGES, response_format=Ticket, extra_headers=headers
        )


def test_answer_truncated_at_the_added_limit_is_recorded(arguments: dict[str, Any]) -> None:
    with (
        client(arguments, BoundedOutput(unbounded=1, reasoning_tokens=0, early_stop=False)) as bounded,
        pytest.raises(openai.LengthFinishReasonError),
    ):
        bounded.chat.completions.parse(
            model="m",
            messages=MESSAGES,
            response_format=Open,
            extra_headers={"x-emulator-output-text": json.dumps({"notes": "long " * 200, "tags": []})},
        )

    output = output_of(bounded)
    assert output.verdict == "truncated"
    assert "BoundedOutput had set" in (output.problem or "")


def test_answer_that_is_not_valid_is_carried_by_the_error(arguments: dict[str, Any]) -> None:
    with (
        client(arguments, BoundedOutput(), manner="wrong_enum") as bounded,
        pytest.raises(InvalidOutputError, match="category: ") as caught,
    ):
        create(bounded)

    (attempt,) = caught.value.attempts
    assert attempt.text.startswith('{"category"')
    assert attempt.text not in str(caught.value)
    output = output_of(bounded)
    assert output.verdict == "invalid"
    assert output.stop_reason is None
    assert output.problem.startswith("category: ")


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("parsed", [True, False])
def test_invalid_answer_is_requested_again(
    arguments: dict[str, Any], provider: Emulator, early_stop: bool, parsed: bool
) -> None:
    with client(arguments, BoundedOutput(reasks=2, early_stop=early_stop), manner="wrong_enum") as bounded:
        ask = bounded.chat.completions.parse if parsed else bounded.chat.completions.create
        answer = ask(model="m", messages=MESSAGES, response_format=Ticket if parsed else FORMAT)
        record = bounded.last_call

    Ticket.model_validate_json(answer.choices[0].message.content)
    assert record.outcome == "completed"
    assert [attempt.kind for attempt in record.attempts] == ["first", "repair"]
    (repair,) = record.output.rejected
    assert repair.verdict == "invalid"
    assert repair.problem.startswith("category: ")
    assert repair.output_tokens
    assert not repair.estimated
    assert record.output.verdict == "valid"
    assert len(provider.log()) == 2


def test_exhausted_reasks_raise_with_every_answer(arguments: dict[str, Any], form: Form) -> None:
    play = BoundedOutput(reasks=2)
    with (
        client(arguments, play, manner="wrong_enum;repairs=1", form=form) as bounded,
        pytest.raises(InvalidOutputError, match="none of 3 answers") as caught,
    ):
        parse(bounded)

    assert len(caught.value.attempts) == 3


def test_unvalidated_answer_is_stopped_when_it_runs_on(arguments: dict[str, Any], provider: Emulator) -> None:
    play = BoundedOutput(validate=False, reasoning_tokens=4_000)
    with client(arguments, play, manner="wrong_enum,whitespace") as bounded:
        create(bounded, extra_headers={"x-emulator-token-ms": "5"})
        output = output_of(bounded)

    assert output.stop_reason == "whitespace"
    assert output.verdict is None
    assert reset(provider).output_tokens < 400


def test_truncated_answer_is_not_invalid(arguments: dict[str, Any]) -> None:
    with (
        client(arguments, BoundedOutput(reasks=2)) as bounded,
        pytest.raises(openai.LengthFinishReasonError),
    ):
        parse(bounded, max_tokens=3)

    output = output_of(bounded)
    assert output.verdict == "truncated"
    assert output.rejected == ()
