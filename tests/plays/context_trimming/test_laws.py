"""What holds of every conversation that is cut, and of every budget."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import ContextTrimming
from fastlane.records import ContextTrimmingRecord
from tests.plays.context_trimming.histories import CHAT, broken_pairs, call, history, plan

RESPONSES = "/responses"
ENDPOINTS = (CHAT, RESPONSES)
Messages = list[dict[str, Any]]
LONG = "\n".join(f"line {number} of a long output" for number in range(40))
BUDGETS = st.integers(20, 4_000)
KEPT = st.integers(1, 3)


def trim(
    messages: Messages, budget: int = 1 << 30, *, low: int | None = None, keep_turns: int = 2, endpoint: str = CHAT
) -> tuple[Messages, ContextTrimmingRecord]:
    """The messages that a play which sees them for the first time sends, and its record."""
    play = ContextTrimming(high_water_tokens=max(2, budget), low_water_tokens=low, keep_turns=keep_turns)
    return trim_with(play, messages, endpoint)


def trim_with(
    play: ContextTrimming, messages: Messages, endpoint: str = CHAT
) -> tuple[Messages, ContextTrimmingRecord]:
    field = "messages" if endpoint == CHAT else "input"
    planned, record = plan(play, call(messages, endpoint=endpoint, name=field))
    return planned.body[field], record


def size(messages: Messages) -> int:
    return trim(messages)[1].tokens_before


def is_instruction(message: dict[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def protected(messages: Messages, keep_turns: int) -> Messages:
    """Instructions, and the last turns: what is kept where it fits."""
    starts, before = [], ""
    for index, message in enumerate(messages):
        if message.get("role") == "user" and before != "user":
            starts.append(index)
        before = before if is_instruction(message) else message.get("role", "")
    first = starts[-keep_turns] if len(starts) >= keep_turns else 0
    return [message for index, message in enumerate(messages) if index >= first or is_instruction(message)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, Messages]:
    endpoint = draw(st.sampled_from(ENDPOINTS))
    made = history(Random(draw(st.integers(0, 2**32))), endpoint)
    assert broken_pairs(made) == []
    return endpoint, made


# Instructions that come to stand together at the beginning are rounded up together.
ROUNDING = 128


@given(histories(), BUDGETS, KEPT)
def test_trimmed_conversation_is_valid_and_recorded(drawn: tuple[str, Messages], budget: int, keep_turns: int) -> None:
    endpoint, messages = drawn
    before = copy.deepcopy(messages)

    sent, record = trim(messages, budget, keep_turns=keep_turns, endpoint=endpoint)

    assert messages == before
    assert broken_pairs(sent) == []
    assert [message for message in sent if is_instruction(message)] == list(filter(is_instruction, messages))
    # The last question and what came after the model's last answer are kept whatever they come to.
    assert sent[-1] == messages[-1]
    assert record.tokens_before == size(messages)
    assert record.tokens_after == pytest.approx(size(sent), abs=ROUNDING)
    assert record.tokens_before - sum(cut.tokens for cut in record.cuts) == record.tokens_after
    assert len({cut.path for cut in record.cuts}) == len(record.cuts)
    assert len(sent) == len(messages) - sum(cut.kind == "turn" for cut in record.cuts)
    assert 0 <= record.new_cuts <= len(record.cuts)
    assert bool(record.cuts) == bool(record.batches)
    if size(protected(messages, keep_turns)) <= budget:
        assert size(sent) <= budget + ROUNDING
    again, twice = trim(list(sent), budget, keep_turns=keep_turns, endpoint=endpoint)
    assert (again, twice.cuts) == (sent, ())


@given(histories(), BUDGETS, KEPT)
def test_last_turns_are_kept_where_they_fit(drawn: tuple[str, Messages], budget: int, keep_turns: int) -> None:
    endpoint, messages = drawn
    ends = [messages[:end] for end in range(1, len(messages) + 1)]
    largest = max(size(protected(end, keep_turns)) for end in ends)

    sent, _ = trim(messages, max(budget, 2 * largest), keep_turns=keep_turns, endpoint=endpoint)

    kept = protected(messages, keep_turns)
    assert [message for message in sent if any(message is one for one in kept)] == kept


ITEMS = st.lists(
    st.tuples(st.sampled_from(("user", "says", "calls", "returns")), st.sampled_from((1, 100, 299))),
    min_size=8,
    max_size=40,
)


@given(ITEMS, st.integers(70, 460), KEPT)
def test_late_tool_results_stay_with_their_calls(drawn: list[tuple[str, int]], budget: int, keep_turns: int) -> None:
    items: Messages = [{"role": "user", "content": "?"}]
    waiting: list[str] = []
    for number, (kind, length) in enumerate(drawn):
        if kind == "calls":
            items.append({"type": "function_call", "call_id": f"{number}", "name": "run", "arguments": "{}"})
            waiting.append(f"{number}")
        elif kind == "returns" and waiting:
            call_id = waiting.pop(length % len(waiting))
            items.append({"type": "function_call_output", "call_id": call_id, "output": "o " * length})
        elif kind in ("user", "says"):
            items.append({"role": "user" if kind == "user" else "assistant", "content": "t " * length})

    sent, _ = trim(items, budget, keep_turns=keep_turns, endpoint=RESPONSES)

    def ids(messages: Messages, kind: str) -> set[str]:
        return {item["call_id"] for item in messages if item.get("type") == kind}

    answered = ids(items, "function_call_output")
    assert ids(sent, "function_call") & answered == ids(sent, "function_call_output")


@given(histories(), BUDGETS)
def test_between_two_cuts_a_conversation_only_grows(drawn: tuple[str, Messages], budget: int) -> None:
    endpoint, messages = drawn
    play = ContextTrimming(high_water_tokens=budget)
    before: Messages = []
    for end in range(1, len(messages) + 1):
        if broken_pairs(messages[:end]):
            continue
        sent, record = trim_with(play, messages[:end], endpoint)
        assert record.new_cuts or sent[: len(before)] == before
        # A process that sees the conversation for the first time gets the same result.
        assert sent == trim(messages[:end], budget, endpoint=endpoint)[0]
        before = sent


NAMES = ("role", "type", "content", "tool_calls", "id", "function", "call_id", "output", "name")
KINDS = ("assistant", "tool", "user", "function_call", "x_call", "x_output")
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner | st.sampled_from(KINDS)),
)


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), ANY | st.sampled_from(KINDS)), min_size=1, max_size=8),
    st.integers(2, 60),
    st.sampled_from(ENDPOINTS),
)
def test_any_messages_can_be_trimmed(messages: Messages, budget: int, endpoint: str) -> None:
    _, record = trim(messages, budget, endpoint=endpoint)

    assert record.tokens_after <= record.tokens_before


# What goes, and in which order


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def step(call_id: str, name: str = "read_file", output: str = LONG, **arguments: Any) -> Messages:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


SYSTEM = {"role": "system", "content": "Be brief."}
END: Messages = [says("Done."), user("One more."), says("Yes."), user("And this?")]


def test_oldest_tool_results_are_trimmed_first() -> None:
    messages = [user("?"), *(one for number in range(4) for one in step(f"{number}", f"tool{number}")), *END]
    whole = size(messages)

    _, record = trim(messages, whole - 1, low=whole - (whole - size(END)) // 3)

    assert {cut.path: cut.kind for cut in record.cuts} == {"messages[2]": "stubbed", "messages[4]": "stubbed"}


def test_oldest_turns_are_trimmed_next_and_first_question_last() -> None:
    messages = [SYSTEM]
    for number in range(6):
        messages += [user(f"question {number} " + "x " * 50), says(f"answer {number} " + "y " * 50)]
    messages.append(user("last"))

    sent, record = trim(messages, 440, low=300)
    tight, _ = trim(messages, 150)

    assert sent[:2] == messages[:2]
    assert sent[2:] == messages[-len(sent) + 2 :]
    assert {cut.kind for cut in record.cuts} == {"turn"}
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
    messages = [user("a " * 400), says("b " * 400), user("c"), item, says("d"), *END]

    sent, record = trim(messages, 70)

    assert record.cuts
    assert any(one.get("type") == item.get("type") and one.get("role") == item.get("role") for one in sent)


def test_trimmed_stub_contains_none_of_the_output() -> None:
    messages = [user("?"), *step("1", name="fetch", url="u", body="x" * 100, tags=[1]), *END]

    sent, _ = trim(messages, size(messages) - 1, low=size(messages) - 2)

    assert sent[2]["content"] == f"[fetch: 40 lines, {len(LONG)} characters, left out to save space]"


def test_changed_time_in_instructions_moves_no_cut() -> None:
    messages = [user("Solve this."), *(one for number in range(8) for one in step(f"{number}", f"tool{number}"))]
    found = [
        trim([{"role": "system", "content": f"It is {hour}:{minute}."}, *messages], 1_200)
        for hour, minute in ((9, 59), (10, "00"), (0, 0), (23, 1))
    ]

    assert found[0][1].cuts
    assert all(sent[1:] == found[0][0][1:] for sent, _ in found)
    assert {record.tokens_before for _, record in found} == {found[0][1].tokens_before}
