from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastlane.plays.context_trimming.cut import Counting, Marks
from fastlane.plays.context_trimming.parts import Piece, pieces_of, read_role, turns_of
from fastlane.plays.context_trimming.replay import Memory, ReplaySettings, Trimmed, new_memory, trim


def count(message: Mapping[str, Any]) -> int:
    return len(json.dumps(message)) // 4


def talk(name: str, turns: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(turns):
        made += [{"role": "user", "content": f"{name} {number} " * 20}, {"role": "assistant", "content": "Yes. " * 30}]
    return [*made, {"role": "user", "content": "And now?"}]


def settings(memory: Memory) -> ReplaySettings:
    return ReplaySettings(Marks(600, 300, 2), memory, lambda leading: Counting(count, 0), "test")


def grown(name: str, memory: Memory) -> list[Trimmed]:
    return [trim("messages", talk(name, turns), settings(memory)) for turns in range(1, 25)]


def sent(results: list[Trimmed]) -> list[Any]:
    return [result.messages for result in results]


# What is remembered


def test_threads_that_send_the_same_conversations_at_once_send_the_same() -> None:
    alone = {name: sent(grown(name, new_memory())) for name in "abc"}
    memory = new_memory()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda name: sent(grown(name, memory)), "abcabcabcabc"))

    assert results == [alone[name] for name in "abcabcabcabc"]


def test_a_conversation_that_takes_another_way_is_cut_by_itself() -> None:
    memory = new_memory()
    one = talk("one", 20)
    other = [*one[:9], {"role": "user", "content": "Something else. " * 20}, *talk("two", 12)]
    trim("messages", one, settings(memory))

    assert (
        trim("messages", other, settings(memory)).messages == trim("messages", other, settings(new_memory())).messages
    )


def test_what_is_not_known_is_kept_with_the_pair_that_it_stands_in() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "run", "arguments": "{}"}
    unknown = {"type": "item_reference", "id": "msg_1"}
    output = {"type": "function_call_output", "call_id": "a", "output": "done"}

    sent: Any = trim("input", [call, unknown, output, *talk("talk", 20)], settings(new_memory())).messages

    assert sent[:3] == [call, unknown, output]


def test_a_question_that_came_while_a_tool_was_at_work_is_kept_with_its_turn() -> None:
    long = {**result("a"), "content": "done " * 400}
    steps = [message for number in range(9) for message in (calls(f"{number}"), {**long, "tool_call_id": f"{number}"})]
    asked = {"role": "user", "content": "And the other one?"}

    sent: Any = trim("messages", [USER, calls("a"), asked, long, *steps], settings(new_memory())).messages

    assert sent[:3] == [USER, calls("a"), asked]


def test_no_text_of_a_message_is_remembered() -> None:
    memory = new_memory()
    messages = [{"role": ("user", "assistant")[number % 2], "content": "a secret " * 50} for number in range(21)]

    trim("messages", messages, settings(memory))

    assert memory.items()
    assert "secret" not in repr(memory.items())


# What belongs together


def of(*messages: dict[str, Any]) -> list[Piece]:
    return pieces_of([read_role(message) for message in messages])


USER: dict[str, Any] = {"role": "user", "content": "?"}
SAYS: dict[str, Any] = {"role": "assistant", "content": "!"}
SYSTEM: dict[str, Any] = {"role": "developer", "content": "."}


def calls(*ids: str) -> dict[str, Any]:
    function = {"name": "run", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": one, "type": "function", "function": function} for one in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def spans(pieces: list[Piece]) -> list[tuple[int, int, str]]:
    return [(piece.start, piece.end, piece.kind) for piece in pieces]


def test_a_step_is_an_answer_with_the_results_of_all_its_calls() -> None:
    assert spans(of(SYSTEM, USER, calls("a", "b"), result("b"), result("a"), calls("c"), result("c"), SAYS)) == [
        (0, 1, "system"),
        (1, 2, "user"),
        (2, 5, "answer"),
        (5, 7, "answer"),
        (7, 8, "answer"),
    ]


@pytest.mark.parametrize("kind", ["custom_tool_call", "computer_call", "local_shell_call", "shell_call"])
def test_other_calls_of_responses_have_results_too(kind: str) -> None:
    call = {"type": kind, "call_id": "a"}
    assert spans(of({"type": "reasoning"}, call, {"type": f"{kind}_output", "call_id": "a"})) == [(0, 3, "answer")]


def test_a_turn_begins_with_a_question_and_several_in_a_row_are_one() -> None:
    pieces = of(SYSTEM, SAYS, USER, USER, SAYS, SYSTEM, USER, calls("a"), result("a"), SAYS)

    assert turns_of(pieces) == [-1, 0, 1, 1, 1, 1, 2, 2, 2]
