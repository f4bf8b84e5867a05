from __future__ import annotations

import json
from typing import Any

import pytest

import fastlane
from fastlane import Call, ContextTrimming
from fastlane.emulator import Emulator
from tests.plays.context_trimming.histories import call, plan

SYSTEM = {"role": "system", "content": "Be brief."}


def step(number: int, characters: int = 2_000) -> list[dict[str, Any]]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/file{number}.py"})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number} " * (characters // 3)},
    ]


def conversation(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [SYSTEM, {"role": "user", "content": "Solve this."}]
    for number in range(steps):
        messages += step(number)
    return messages


def small(**settings: Any) -> ContextTrimming:
    return ContextTrimming(**{"high_water_tokens": 4_000, "low_water_tokens": 2_000, **settings})


# What it does to a call


def test_instructions_and_tools_are_part_of_the_prompt() -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool{number}", "description": "x y " * 99}} for number in range(9)
    ]
    asked = call(conversation(7))
    beside = call(conversation(7), tools=tools)

    (_, alone), (_, together) = plan(small(), asked), plan(small(), beside)

    assert alone.cuts == ()
    assert together.cuts
    assert together.tokens_before > alone.tokens_before + 500


def test_stable_messages_are_kept_and_volatile_ones_not_counted() -> None:
    play = small()
    example = {"role": "user", "content": "An example. " * 100}
    messages = [SYSTEM, example, *conversation(12)[1:]]
    placements = ["stable", "stable", *["session"] * (len(messages) - 2), "volatile"]
    planned: Any = [
        plan(play, call([*messages, {"role": "system", "content": f"It is {time}."}], placements=tuple(placements)))
        for time in ("10:00", "10:05")
    ]

    first, second = (one.body["messages"] for one, _ in planned)
    assert first[1] is example
    assert first[:-1] == second[:-1]
    assert second[-1]["content"] == "It is 10:05."
    assert planned[1][1].new_cuts == 0
    for one, _ in planned:
        assert len(one.placements) == len(one.body["messages"])
        assert one.placements[:2] == ("stable", "stable")
        assert one.placements[-1] == "volatile"


@pytest.mark.parametrize(
    "asked",
    [
        call("text " * 9_000, endpoint="/responses", name="input"),
        call(conversation(12), endpoint="/responses", name="input", previous_response_id="resp_1"),
        call(conversation(12), endpoint="/responses", name="input", conversation="conv_1"),
        call("text " * 9_000, endpoint="/completions", name="prompt"),
        call(conversation(12), endpoint="/embeddings"),
        call([]),
        call([*conversation(12), "no message"]),
        call(None),
    ],
    ids=["text", "behind a response", "in a conversation", "completion", "embedding", "nothing", "other", "none"],
)
def test_incomplete_conversation_is_not_trimmed(asked: Call) -> None:
    assert small().open(asked) is None


def test_agent_works_with_it_over_the_wire(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[fastlane.Connection(), small()], raise_play_errors=True) as client:
        for steps in range(1, 20):
            client.chat.completions.create(model="m", messages=conversation(steps))  # type: ignore[arg-type]
        record: Any = client.last_call

    # A cut loses the provider's cache: it is made seldom.
    assert 2 <= record.context_trimming.batches <= 6
    assert record.changes[0].startswith("ContextTrimming cut messages from ")
    prompts = [request.prompt_tokens for request in provider.log()]
    assert max(prompts) < 4_400
    assert record.usage.input_tokens == prompts[-1]
