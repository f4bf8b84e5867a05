from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.knowledge import tokens as _tokens
from fastlane.plays.context_trimming.play import counted_with
from tests.plays.context_trimming.trimming import trim_context

Messages = list[dict[str, Any]]
LONG = "\n".join(f"line {number} of a long output" for number in range(40))


def tokens(message: Mapping[str, Any]) -> int:
    return len(json.dumps(message)) // 4


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(call_id: str, name: str = "read_file", output: str = LONG, **arguments: Any) -> Messages:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def text(lines: int, name: str) -> str:
    return "\n".join(f"{name} {number * number}" for number in range(lines))


SYSTEM = {"role": "system", "content": "Be brief."}
END: Messages = [says("Done."), user("One more."), says("Yes."), user("And this?")]


def kinds(messages: Messages, budget: int, **options: Any) -> dict[str, str]:
    return {cut.path: cut.kind for cut in trim_context(messages, budget, count=tokens, **options).record.cuts}


def size(messages: Messages) -> int:
    return sum(map(tokens, messages))


# What goes, and in which order


def test_the_oldest_results_go_until_it_is_enough() -> None:
    messages = [user("?")]
    for number in range(4):
        messages += step(str(number), name=f"tool{number}", output=text(60, f"{number}"))
    messages += END

    found = kinds(messages, size(messages) - 1, low=size(messages) - size(messages[2:3]) - 10)

    assert found == {"messages[2]": "stubbed", "messages[4]": "stubbed"}


def test_then_the_oldest_turns_go_and_the_first_question_last() -> None:
    messages = [SYSTEM]
    for number in range(6):
        messages += [user(f"question {number} " + "x" * 200), says(f"answer {number} " + "y" * 200)]
    messages.append(user("last"))

    trimmed = trim_context(messages, 500, low=300, count=tokens)
    tight = trim_context(messages, 200, count=tokens)

    assert trimmed[:2] == messages[:2]
    assert trimmed[2:] == messages[-len(trimmed) + 2 :]
    assert {cut.kind for cut in trimmed.record.cuts} == {"turn"}
    assert tight == [SYSTEM, *messages[-3:]]


def test_a_turn_of_many_steps_loses_its_older_steps_and_never_its_question() -> None:
    messages = [SYSTEM, user("Solve this. " + "z" * 400)]
    for number in range(20):
        messages += step(str(number), name=f"tool{number}", output=text(60, f"{number}"))

    trimmed = trim_context(messages, 1_000, count=tokens)

    assert trimmed[:2] == messages[:2]
    assert trimmed[-4:] == messages[-4:]
    assert size(trimmed) <= 1_000


def test_the_last_turns_are_kept_below_the_middle_of_the_marks() -> None:
    messages = [SYSTEM]
    for number in range(24):
        messages += [user(f"Part {number}")] if number % 8 == 0 else []
        messages += step(str(number), path=f"{number}.py", output=text(80, f"{number}"))
    last = next(index for index, message in enumerate(messages) if message["content"] == "Part 8")

    kept = size(messages[last:]) + 200
    fits = trim_context(messages, kept + 400, low=kept - 400, count=tokens)
    tight = trim_context(messages, kept + 100, low=500, count=tokens)

    assert fits.record.cuts
    assert fits[-len(messages[last:]) :] == messages[last:]
    assert len(tight) < len(messages[last:])
    assert [message for message in tight if message["role"] == "user"][-2:] == [
        message for message in messages if message["role"] == "user"
    ][-2:]


def test_the_first_question_goes_only_where_the_older_steps_of_the_last_turns_do_not_make_room() -> None:
    messages = [SYSTEM, user("Solve this. " + "z" * 400), says("I will.")]
    for number in range(24):
        messages += [user(f"Part {number}")] if number % 12 == 0 else []
        messages += step(str(number), path=f"{number}.py", output=text(80, f"{number}"))

    trimmed = trim_context(messages, 2_000, low=1_000, count=tokens)

    assert trimmed[:2] == messages[:2]
    assert size(trimmed) <= 2_000


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "x" * 900},
        {"role": "tool", "tool_call_id": "elsewhere", "content": LONG},
        {"type": "computer_call_output", "call_id": "elsewhere", "output": {"image_url": "x" * 900}},
    ],
)
def test_what_nobody_here_knows_or_belongs_to_something_elsewhere_is_kept(item: dict[str, Any]) -> None:
    messages = [user("a" * 400), says("b" * 400), user("c"), item, says("d"), *END]

    assert item["type" if "type" in item else "role"] in [
        message.get("type", message.get("role")) for message in trim_context(messages, 60, count=tokens)
    ]


# Stubs


def test_a_stub_holds_nothing_of_the_output() -> None:
    messages = [user("?"), *step("1", name="fetch", output=LONG, url="u", body="x" * 100, tags=[1]), *END]

    content = trim_context(messages, size(messages) - 1, low=size(messages) - 2, count=tokens)[2]["content"]

    assert content == f"[fetch: 40 lines, {len(LONG)} characters, left out to save space]"


# The same at every turn


def test_a_clock_in_the_instructions_makes_no_other_conversation() -> None:
    messages = [user("Solve this.")]
    for number in range(8):
        messages += step(str(number), name=f"tool{number}", output=text(30, f"{number}"))

    first = trim_context([{"role": "system", "content": "It is 9:59."}, *messages], 800)
    second = trim_context([{"role": "system", "content": "It is 10:00."}, *messages], 800)

    assert first.record.cuts
    assert first[1:] == second[1:]
    assert second.record.tokens_before == first.record.tokens_before


@given(st.integers(0, 23), st.integers(0, 59))
def test_a_clock_in_the_instructions_moves_no_cut_in_another_process_either(hour: int, minute: int) -> None:
    counts = _tokens.counter(None)
    now, then = ({"role": "system", "content": f"It is {time}."} for time in (f"{hour}:{minute}", "0:0"))

    beside = [counted_with(counts, [system], None).overhead for system in (now, then)]
    assert beside[0] == beside[1] >= counts.message(now)
