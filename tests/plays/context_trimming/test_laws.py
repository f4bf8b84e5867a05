"""What holds of every history, however it was drawn, and of every budget."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge import tokens as _tokens
from fastlane.plays.context_trimming.cut import Counting, Marks
from fastlane.plays.context_trimming.parts import Piece, pieces_of, read_role
from fastlane.plays.context_trimming.play import counted_with
from fastlane.plays.context_trimming.replay import Memory, ReplaySettings, Trimmed, trim
from tests.plays.context_trimming.histories import broken_pairs, history
from tests.plays.context_trimming.trimming import TrimmedContext, trim_context

ENDPOINTS = ("/chat/completions", "/responses")
Count = Callable[[Mapping[str, Any]], int]


def counting() -> Count:
    """Tokens of a message; another function each time, and with it another conversation."""
    return lambda message: 4 + len(json.dumps(message, ensure_ascii=False)) // 4


def size(messages: Any) -> int:
    return sum(map(counting(), messages))


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = history(Random(draw(st.integers(0, 2**32))), draw(st.sampled_from(ENDPOINTS)))
    assert broken_pairs(made) == []
    return made


BUDGETS = st.integers(20, 4_000)
KEPT = st.integers(1, 3)


def protected(messages: list[dict[str, Any]], keep_turns: int) -> list[int]:
    """Instructions, and the last turns: what is kept where it fits."""
    starts = [
        index
        for index, message in enumerate(messages)
        if message.get("role") == "user"
        and next(
            (one.get("role") for one in reversed(messages[:index]) if one.get("role") not in ("system", "developer")),
            "",
        )
        != "user"
    ]
    first = starts[-keep_turns] if len(starts) >= keep_turns else 0
    return [
        index
        for index, message in enumerate(messages)
        if index >= first or message.get("role") in ("system", "developer")
    ]


def fits(messages: list[dict[str, Any]], keep_turns: int, budget: int) -> bool:
    return size([messages[index] for index in protected(messages, keep_turns)]) <= budget


@settings(max_examples=60)
@given(histories(), BUDGETS, KEPT)
def test_no_pair_of_a_call_and_its_result_is_broken(
    messages: list[dict[str, Any]], budget: int, keep_turns: int
) -> None:
    assert broken_pairs(trim_context(messages, budget, keep_turns=keep_turns, count=counting())) == []


@settings(max_examples=60)
@given(histories(), BUDGETS, KEPT)
def test_protected_messages_are_kept_and_budget_met_if_possible(
    messages: list[dict[str, Any]], budget: int, keep_turns: int
) -> None:
    kept = [messages[index] for index in protected(messages, keep_turns)]
    middle = (budget + max(1, budget // 2)) // 2

    trimmed = trim_context(messages, budget, keep_turns=keep_turns, count=counting())

    if size(kept) <= budget:
        assert size(trimmed) <= budget
    if all(fits(messages[:end], keep_turns, middle) for end in range(1, len(messages) + 1)):
        assert [message for message in trimmed if any(message is one for one in kept)] == kept
    instructions = [message for message in messages if message.get("role") in ("system", "developer")]
    assert [message for message in trimmed if message.get("role") in ("system", "developer")] == instructions
    # The last question and what came after the model's last answer are kept whatever they come to.
    assert trimmed[-1] == messages[-1]


ITEMS = st.lists(
    st.tuples(st.sampled_from(("user", "says", "calls", "returns")), st.sampled_from((1, 100, 299))),
    min_size=8,
    max_size=40,
)


@settings(max_examples=100)
@given(ITEMS, st.integers(10, 400), KEPT)
def test_late_tool_results_stay_with_their_calls(drawn: list[tuple[str, int]], budget: int, keep_turns: int) -> None:
    items: list[dict[str, Any]] = []
    waiting: list[str] = []
    for number, (kind, length) in enumerate(drawn):
        if kind == "calls":
            items.append({"type": "function_call", "call_id": f"{number}", "name": "run", "arguments": "{}"})
            waiting.append(f"{number}")
        elif kind == "returns" and waiting:
            call_id = waiting.pop(length % len(waiting))
            items.append({"type": "function_call_output", "call_id": call_id, "output": "o" * 3 * length})
        elif kind in ("user", "says"):
            items.append({"role": "user" if kind == "user" else "assistant", "content": "t" * length})

    trimmed = trim_context(items, budget, keep_turns=keep_turns, count=counting())

    def ids(messages: list[dict[str, Any]], kind: str) -> set[str]:
        return {item["call_id"] for item in messages if item.get("type") == kind}

    answered = ids(items, "function_call_output")
    assert ids(trimmed, "function_call") & answered == ids(trimmed, "function_call_output")
    assert trimmed.record.tokens_after == size(trimmed)


@settings(max_examples=25)
@given(histories(), BUDGETS)
def test_between_two_cuts_a_conversation_only_grows(messages: list[dict[str, Any]], budget: int) -> None:
    count = counting()
    before: TrimmedContext | None = None
    for end in range(1, len(messages) + 1):
        if broken_pairs(messages[:end]):
            continue
        trimmed = trim_context(messages[:end], budget, count=count)
        if before is not None and not trimmed.record.new_cuts:
            assert trimmed[: len(before)] == before
        # A process that sees the conversation for the first time gets the same result.
        assert trimmed == trim_context(messages[:end], budget, count=counting())
        before = trimmed


def stays(messages: list[dict[str, Any]], keep_turns: int) -> int:
    """Tokens that no cut of these messages can do without: questions of the last turns, and the last steps."""
    steps = [index for index, message in enumerate(messages) if message["role"] == "assistant"][-keep_turns:]
    first_question = next(index for index, message in enumerate(messages) if message["role"] == "user")
    kept = {
        index
        for index in protected(messages, keep_turns)
        if messages[index]["role"] in ("system", "user") or index >= min(steps, default=0)
    }
    return size([messages[index] for index in kept | {first_question}])


STEPS_OF_TURNS = st.lists(st.integers(1, 14), min_size=2, max_size=5)


@settings(max_examples=25)
@given(STEPS_OF_TURNS, st.sampled_from((200, 700, 1_500)), st.integers(800, 3_000), st.integers(1, 9), KEPT)
def test_cuts_are_half_the_room_between_the_marks_apart(
    turns: list[int], characters: int, budget: int, tenths: int, keep_turns: int
) -> None:
    low = budget * tenths // 10
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for turn, steps in enumerate(turns):
        messages.append({"role": "user", "content": f"And part {turn}?"})
        for number in range(steps):
            call_id = f"{turn}.{number}"
            function = {"name": "read_file", "arguments": json.dumps({"path": call_id if number % 3 else "same"})}
            call = {"id": call_id, "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": f"{call_id} " * (characters // 5)})
        messages.append({"role": "assistant", "content": f"That was part {turn}."})

    count = counting()
    batches = 0
    grown = room = 0
    for end in range(1, len(messages) + 1):
        record = trim_context(messages[:end], budget, low=low, keep_turns=keep_turns, count=count).record
        grown += size([messages[end - 1]])
        if record.batches == batches:
            continue
        assert grown > room
        batches, grown = record.batches, 0
        room = budget - max((low + budget) // 2, stays(messages[:end], keep_turns))


@settings(max_examples=40)
@given(histories(), BUDGETS, KEPT)
def test_trimming_is_idempotent(messages: list[dict[str, Any]], budget: int, keep_turns: int) -> None:
    once = trim_context(messages, budget, keep_turns=keep_turns, count=counting())

    twice = trim_context(list(once), budget, keep_turns=keep_turns, count=counting())

    assert twice == once
    assert twice.record.cuts == ()


@settings(max_examples=40)
@given(histories(), BUDGETS)
def test_trimming_keeps_input_unchanged_and_record_consistent(messages: list[dict[str, Any]], budget: int) -> None:
    given_before = copy.deepcopy(messages)

    trimmed = trim_context(messages, budget, count=counting())

    record = trimmed.record
    assert messages == given_before
    assert record.tokens_before == size(messages)
    assert record.tokens_after == size(trimmed)
    assert record.tokens_before - sum(cut.tokens for cut in record.cuts) == record.tokens_after
    assert len({cut.path for cut in record.cuts}) == len(record.cuts)
    left_out = [cut for cut in record.cuts if cut.kind == "turn"]
    assert len(trimmed) == len(messages) - len(left_out)
    assert 0 <= record.new_cuts <= len(record.cuts)
    assert bool(record.cuts) == bool(record.batches)


@settings(max_examples=40)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ("role", "type", "content", "tool_calls", "id", "function", "call_id", "output", "name")
                    ),
                    inner | st.sampled_from(("assistant", "tool", "user", "function_call", "x_call", "x_output")),
                    max_size=5,
                )
            ),
        ).filter(lambda value: isinstance(value, dict)),
        max_size=8,
    ),
    st.integers(1, 60),
)
def test_any_messages_can_be_trimmed(messages: list[Any], budget: int) -> None:
    trimmed = trim_context(messages, budget, count=counting())

    assert trimmed.record.tokens_after <= trimmed.record.tokens_before


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_generated_histories_cover_every_cut_kind(endpoint: str) -> None:
    kinds: set[str] = set()
    for seed in range(60):
        made = history(Random(seed), endpoint)
        for budget in (1_000, 2_000, 3_000):
            trimmed = trim_context(made, budget, count=counting())
            kinds |= {cut.kind for cut in trimmed.record.cuts}

    assert kinds == {"stubbed", "turn"}


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


def size_of(messages: Messages) -> int:
    return sum(map(tokens, messages))


# What goes, and in which order


def test_oldest_tool_results_are_trimmed_first() -> None:
    messages = [user("?")]
    for number in range(4):
        messages += step(str(number), name=f"tool{number}", output=text(60, f"{number}"))
    messages += END

    found = kinds(
        messages,
        size_of(messages) - 1,
        low=size_of(messages) - size_of(messages[2:3]) - 10,
    )

    assert found == {"messages[2]": "stubbed", "messages[4]": "stubbed"}


def test_oldest_turns_are_trimmed_next_and_first_question_last() -> None:
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


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "x" * 900},
        {"role": "tool", "tool_call_id": "elsewhere", "content": LONG},
        {"type": "computer_call_output", "call_id": "elsewhere", "output": {"image_url": "x" * 900}},
    ],
)
def test_unknown_and_reference_items_are_kept(item: dict[str, Any]) -> None:
    messages = [user("a" * 400), says("b" * 400), user("c"), item, says("d"), *END]

    assert item["type" if "type" in item else "role"] in [
        message.get("type", message.get("role")) for message in trim_context(messages, 60, count=tokens)
    ]


# Stubs


def test_trimmed_stub_contains_none_of_the_output() -> None:
    messages = [user("?"), *step("1", name="fetch", output=LONG, url="u", body="x" * 100, tags=[1]), *END]

    content = trim_context(messages, size_of(messages) - 1, low=size_of(messages) - 2, count=tokens)[2]["content"]

    assert content == f"[fetch: 40 lines, {len(LONG)} characters, left out to save space]"


# The same at every turn


def test_changed_time_in_instructions_keeps_the_conversation() -> None:
    messages = [user("Solve this.")]
    for number in range(8):
        messages += step(str(number), name=f"tool{number}", output=text(30, f"{number}"))

    first = trim_context([{"role": "system", "content": "It is 9:59."}, *messages], 800)
    second = trim_context([{"role": "system", "content": "It is 10:00."}, *messages], 800)

    assert first.record.cuts
    assert first[1:] == second[1:]
    assert second.record.tokens_before == first.record.tokens_before


@given(st.integers(0, 23), st.integers(0, 59))
def test_time_in_instructions_moves_no_cut(hour: int, minute: int) -> None:
    counts = _tokens.counter(None)
    now, then = ({"role": "system", "content": f"It is {time}."} for time in (f"{hour}:{minute}", "0:0"))

    beside = [counted_with(counts, [system], None).overhead for system in (now, then)]
    assert beside[0] == beside[1] >= counts.message(now)


def count(message: Mapping[str, Any]) -> int:
    return len(json.dumps(message)) // 4


def talk(name: str, turns: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(turns):
        made += [{"role": "user", "content": f"{name} {number} " * 20}, {"role": "assistant", "content": "Yes. " * 30}]
    return [*made, {"role": "user", "content": "And now?"}]


def settings_replay(memory: Memory) -> ReplaySettings:
    return ReplaySettings(Marks(600, 300, 2), memory, lambda leading: Counting(count, 0), "test")


def grown(name: str, memory: Memory) -> list[Trimmed]:
    return [trim("messages", talk(name, turns), settings_replay(memory)) for turns in range(1, 25)]


# What is remembered


# What belongs together


def of(*messages: dict[str, Any]) -> list[Piece]:
    return pieces_of([read_role(message) for message in messages])


def calls(*ids: str) -> dict[str, Any]:
    function = {"name": "run", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": one, "type": "function", "function": function} for one in ids]}
