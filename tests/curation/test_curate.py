from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletionMessage

from fastlane.errors import ConfigurationError
from fastlane.knowledge import tokens as _tokens
from fastlane.plays.context_trimming._curate import counted_with, curate

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
    return {cut.path: cut.kind for cut in curate(messages, budget, count=tokens, **options).record.cuts}


def size(messages: Messages) -> int:
    return sum(map(tokens, messages))


# What goes, and in which order


def test_what_fits_is_returned_as_it_is() -> None:
    messages = [SYSTEM, user("Hello"), *step("1", path="a.py")]

    curated = curate(messages, 10_000)

    assert curated == messages
    assert curated.messages[2] is messages[2]
    assert curated.record.cuts == ()
    assert curated.record.tokens_before == curated.record.tokens_after > 0


def test_an_output_that_was_read_again_goes_first() -> None:
    messages = [SYSTEM, user("Fix it"), *step("1", path="a.py"), *step("2", path="b.py", output=text(90, "b"))]
    messages += [*step("3", path="a.py", output=LONG.replace("long", "new")), *END]

    curated = curate(messages, size(messages) - 1, low=size(messages) - 100, count=tokens)

    assert [(cut.kind, cut.path) for cut in curated.record.cuts] == [("superseded", "messages[3]")]
    assert curated[3] == {
        "role": "tool",
        "tool_call_id": "1",
        "content": f'[read_file(path="a.py"): 40 lines, {len(LONG)} characters, '
        "left out because it was read again later]",
    }
    assert curated[:3] == messages[:3]
    assert curated[4:] == messages[4:]


@pytest.mark.parametrize(
    ("earlier", "later", "superseded"),
    [
        ({"path": "a"}, {"path": "a"}, True),
        ({"path": "a", "start": 1}, {"path": "a"}, True),
        ({"path": "a", "start": 1}, {"path": "a", "start": 1}, True),
        ({"path": "a", "start": 1}, {"path": "a", "start": 90}, False),
        ({"path": "a"}, {"path": "a", "start": 90}, False),
        ({"path": "a"}, {"path": "b"}, False),
        ({"file_path": "a"}, {"path": "a"}, True),
        ({}, {}, False),
    ],
)
def test_a_later_reading_counts_if_it_is_of_the_whole_or_of_the_same_part(
    earlier: dict[str, Any], later: dict[str, Any], superseded: bool
) -> None:
    messages = [user("?"), *step("1", output=text(40, "x"), **earlier), *step("2", output=text(40, "y"), **later), *END]

    found = kinds(messages, size(messages) - 1, low=size(messages) - 2)

    assert found["messages[2]"] == ("superseded" if superseded else "stubbed")


@pytest.mark.parametrize("name", ["viewFile", "open", "GetFile"])
def test_tools_that_read_are_known_by_their_names(name: str) -> None:
    messages = [user("?"), *step("1", name=name, path="a", start=1), *step("2", path="a"), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2)["messages[2]"] == "superseded"


@pytest.mark.parametrize("name", ["write_file", "read_and_replace", "search"])
def test_other_tools_supersede_nothing_but_themselves(name: str) -> None:
    first = text(40, "x")
    messages = [user("?"), *step("1", path="a", output=first), *step("2", name=name, path="a"), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2)["messages[2]"] == "stubbed"


def test_a_short_answer_such_as_not_found_supersedes_nothing() -> None:
    messages = [user("?"), *step("1", path="a"), *step("2", path="a", output="No such file."), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2)["messages[2]"] == "stubbed"


@pytest.mark.parametrize("later", [LONG, LONG + "\nand one more", LONG.replace("line 7 ", "line 7b ")])
def test_the_earlier_of_two_equal_or_nearly_equal_outputs_goes(later: str) -> None:
    messages = [user("?"), *step("1", name="a"), *step("2", name="b", output=later), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2) == {"messages[2]": "duplicate"}


def test_outputs_of_which_half_is_the_same_are_no_copies() -> None:
    half = text(30, "the very same")
    one, other = (f"{half}\n{text(30, name)}" for name in ("this one", "that one"))
    messages = [user("?"), *step("1", name="a", output=one), *step("2", name="b", output=other), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2) == {"messages[2]": "stubbed"}


def test_one_line_of_json_is_compared_in_parts() -> None:
    one = json.dumps({f"field{number}": number for number in range(60)})
    messages = [user("?"), *step("1", name="a", output=one), *step("2", name="b", output=one.replace("59", "60")), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2) == {"messages[2]": "duplicate"}


def test_a_long_text_that_the_user_has_pasted_again_goes_once() -> None:
    pasted = text(200, "pasted")
    messages = [user("First"), says("Yes?"), user(pasted), says("Hm."), user(pasted), says("Ah."), *END]

    assert kinds(messages, size(messages) - 1, low=size(messages) - 2) == {"messages[2]": "duplicate"}


def test_then_the_oldest_outputs_go_until_it_is_enough() -> None:
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

    curated = curate(messages, 500, low=300, count=tokens)
    tight = curate(messages, 200, count=tokens)

    assert curated[:2] == messages[:2]
    assert curated[2:] == messages[-len(curated) + 2 :]
    assert {cut.kind for cut in curated.record.cuts} == {"turn"}
    assert tight == [SYSTEM, *messages[-3:]]


def test_a_turn_of_many_steps_loses_its_older_steps_and_never_its_question() -> None:
    messages = [SYSTEM, user("Solve this. " + "z" * 400)]
    for number in range(20):
        messages += step(str(number), name=f"tool{number}", output=text(60, f"{number}"))

    curated = curate(messages, 1_000, count=tokens)

    assert curated[:2] == messages[:2]
    assert curated[-4:] == messages[-4:]
    assert size(curated) <= 1_000


def test_where_turns_do_not_fit_their_older_steps_go_with_the_same_cut_and_not_with_one_soon_after() -> None:
    # Two of these turns are more than the high-water mark. Once a third has begun, the last two are just below it.
    messages = [SYSTEM]
    cuts: list[tuple[int, int]] = []
    grown = 0
    for number in range(60):
        asked = [user(f"Now look at part {number}")] if number % 12 == 0 else []
        new = [*asked, *step(str(number), path=f"{number}.py", output=text(80, f"{number}"))]
        messages += new
        grown += size(new)
        record = curate(messages, 3_000, low=1_500, count=tokens).record
        if record.new_cuts:
            cuts.append((grown, record.tokens_after))
            grown = 0

    assert len(cuts) > 3
    # A cut may come with the call of a tool, and the tool's output right behind it.
    assert all(after <= 1_500 + size(new) for _, after in cuts)
    assert all(between >= 1_500 for between, _ in cuts)


def test_the_last_turns_are_kept_whole_as_long_as_so_many_have_always_fitted() -> None:
    messages = [SYSTEM]
    for number in range(24):
        messages += [user(f"Part {number}")] if number % 8 == 0 else []
        messages += step(str(number), path=f"{number}.py", output=text(80, f"{number}"))
    last = next(index for index, message in enumerate(messages) if message["content"] == "Part 8")

    curated = curate(messages, size(messages[last:]) + 200, low=500, count=tokens)

    assert curated.record.cuts
    assert curated[-len(messages[last:]) :] == messages[last:]


def test_the_first_question_goes_only_where_the_older_steps_of_the_last_turns_do_not_make_room() -> None:
    messages = [SYSTEM, user("Solve this. " + "z" * 400), says("I will.")]
    for number in range(24):
        messages += [user(f"Part {number}")] if number % 12 == 0 else []
        messages += step(str(number), path=f"{number}.py", output=text(80, f"{number}"))

    curated = curate(messages, 2_000, low=1_000, count=tokens)

    assert curated[:2] == messages[:2]
    assert size(curated) <= 2_000


def test_parallel_calls_go_together() -> None:
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        for number in range(3)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{number}", "content": "short"} for number in (2, 0, 1)]
    messages = [user("a"), {"role": "assistant", "content": "w" * 400, "tool_calls": calls}, *results, *END]

    curated = curate(messages, size(messages) - 1, low=20, count=tokens)

    assert [message for message in curated if message.get("tool_calls") or message["role"] == "tool"] == []


def test_items_of_responses_are_cut_in_their_own_form() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "read_file", "arguments": '{"path": "a"}'}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    output = {"type": "function_call_output", "call_id": "1", "output": LONG}
    items = [user("?"), thought, call, output, *END]

    stubbed = curate(items, size(items) - 1, low=size(items) - 2, count=tokens)
    gone = curate(items, size(items) - 1, low=1, count=tokens)

    assert stubbed[3]["output"].startswith('[read_file(path="a"): 40 lines')
    assert stubbed[3]["call_id"] == "1"
    assert gone == [items[0], *END[1:]]


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
        message.get("type", message.get("role")) for message in curate(messages, 60, count=tokens)
    ]


def test_openai_objects_are_messages_and_come_back_as_they_were() -> None:
    answer = ChatCompletionMessage(role="assistant", content="Yes, and " + "n" * 300)
    messages: list[Any] = [user("a"), says("b" * 900), user("c"), answer, user("d")]

    curated = curate(messages, 300, count=tokens)

    assert curated.record.cuts
    assert any(message is answer for message in curated)


# Stubs


def test_a_stub_holds_names_and_short_values_of_arguments_and_nothing_of_the_output() -> None:
    messages = [user("?"), *step("1", name="fetch", output=LONG, url="u", body="x" * 100, tags=[1]), *END]

    content = curate(messages, size(messages) - 1, low=size(messages) - 2, count=tokens)[2]["content"]

    assert content == f'[fetch(url="u", body, tags): 40 lines, {len(LONG)} characters, left out to save space]'


def test_pictures_are_counted_and_not_taken_for_copies_of_each_other() -> None:
    def seen(call_id: str, picture: str) -> Messages:
        call = {"type": "function_call", "call_id": call_id, "name": "draw", "arguments": f'{{"seed": {call_id}}}'}
        parts = [{"type": "input_text", "text": LONG}, {"type": "input_image", "image_url": picture}]
        return [call, {"type": "function_call_output", "call_id": call_id, "output": parts}]

    messages = [user("?"), *seen("1", "data:a"), *seen("2", "data:b"), *END]

    curated = curate(messages, size(messages) - 1, low=size(messages) - 2, count=tokens)

    assert [cut.kind for cut in curated.record.cuts] == ["stubbed"]
    assert curated[2]["output"] == (
        f"[draw(seed=1): 40 lines, {len(LONG)} characters, 1 pictures or files, left out to save space]"
    )


def test_a_stub_may_be_worded_otherwise() -> None:
    messages = [user("?"), *step("1", output=LONG), *END]

    curated = curate(messages, size(messages) - 1, low=size(messages) - 2, count=tokens, stub="({tool} gave {lines})")

    assert curated[2]["content"] == "(read_file gave 40)"


# The same at every turn


def test_a_cut_stays_as_it_is_until_the_next_one() -> None:
    messages = [SYSTEM, user("Solve this.")]
    batches: list[int] = []
    before: Messages = []
    for number in range(40):
        messages += step(str(number), name=f"tool{number}", output=text(80, f"{number}"))
        curated = curate(messages, 2_000, count=tokens)
        assert (curated[: len(before)] == before) == (curated.record.new_cuts == 0)
        assert size(curated) <= 2_000
        batches.append(curated.record.batches)
        before = list(curated)

    assert batches == sorted(batches)
    # From 2,000 to 1,000 tokens, of which each step brings 150.
    assert 4 <= batches[-1] <= 8


def test_what_is_learnt_of_a_model_moves_no_cut_of_a_conversation_that_has_begun() -> None:
    try:
        messages = [SYSTEM, user("Solve this.")]
        for number in range(8):
            messages += step(str(number), name=f"tool{number}", output=text(30, f"{number}"))
        before = curate(messages, 1_000, model="a model of its own")
        _tokens.learn("", "a model of its own", estimated=1_000, input_tokens=2_000)
        again = curate(messages, 1_000, model="a model of its own")
        other = curate([SYSTEM, user("Another"), *messages[2:]], 1_000, model="a model of its own")
    finally:
        _tokens.forget()

    assert again == before
    assert other.record.tokens_before > 1.9 * before.record.tokens_before


def test_a_clock_in_the_instructions_makes_no_other_conversation() -> None:
    messages = [user("Solve this.")]
    for number in range(8):
        messages += step(str(number), name=f"tool{number}", output=text(30, f"{number}"))

    try:
        first = curate([{"role": "system", "content": "It is 9:59."}, *messages], 800, model="clock")
        _tokens.learn("", "clock", estimated=1_000, input_tokens=2_000)
        second = curate([{"role": "system", "content": "It is 10:00."}, *messages], 800, model="clock")
    finally:
        _tokens.forget()

    assert first.record.cuts
    assert first[1:] == second[1:]
    assert second.record.tokens_before == first.record.tokens_before


@given(st.integers(0, 23), st.integers(0, 59))
def test_a_clock_in_the_instructions_moves_no_cut_in_another_process_either(hour: int, minute: int) -> None:
    counts = _tokens.counter(None)
    now, then = ({"role": "system", "content": f"It is {time}."} for time in (f"{hour}:{minute}", "0:0"))

    beside = [counted_with(counts, [system], None).overhead for system in (now, then)]
    assert beside[0] == beside[1] >= counts.message(now)


# Summaries


def long_talk(turns: int) -> Messages:
    made: Messages = []
    for number in range(turns):
        made += [user(f"question {number} " + "x" * 100), says(f"answer {number} " + "y" * 100)]
    return [*made, user("last")]


def test_a_summary_that_does_not_fit_is_left_out() -> None:
    messages = [user("old " * 300), says("yes"), user("a " * 300), says("yes"), user("b " * 300)]
    assert 250 < size(messages[2:]) < 400

    curated = curate(messages, 400, count=tokens, summarise=lambda left_out: "short " * 40)

    assert curated == messages[2:]
    assert curated.summary_failure == "TooLong"


def test_a_summary_stays_until_a_better_one_or_something_that_must_stay_needs_its_place() -> None:
    told = iter(["first " * 20, "second " * 120, "third " * 20])

    def summarise(left_out: Messages) -> str:
        return next(told)

    def after(*messages: dict[str, Any]) -> Any:
        return curate(messages, 400, keep_turns=1, count=tokens, summarise=summarise)

    old = [user("old " * 300), says("yes"), user("a " * 600)]
    more = [*old, says("yes"), user("b " * 400)]
    most = [*more, says("yes"), user("c " * 700)]

    assert [message["content"][:20] for message in after(*old)] == ["[Summary of earlier ", "a a a a a a a a a a "]
    assert after(*more)[0]["content"].endswith("first " * 20)
    assert after(*more).summary_failure == "TooLong"
    assert after(*most) == [most[-1]]
    assert after(*most).summary_failure == "TooLong"
    assert {cut.kind for cut in after(*most).record.cuts} == {"turn"}


def test_what_is_left_out_is_summed_up_once_for_each_cut() -> None:
    asked: list[Messages] = []

    def summarise(messages: Messages) -> str:
        asked.append(messages)
        return f"Summary {len(asked)}"

    for turns in range(1, 30):
        curated = curate(long_talk(turns), 400, count=tokens, summarise=summarise)

    assert len(asked) == curated.record.batches > 2
    assert asked[0][0] == long_talk(1)[1]
    assert asked[1][0]["content"].endswith("\nSummary 1")
    summaries = [message for message in curated if "Summary" in message["content"]]
    assert summaries == [
        {
            "role": "user",
            "content": f"[Summary of earlier messages of this conversation, which are left out]\nSummary {len(asked)}",
        }
    ]
    assert {cut.kind for cut in curated.record.cuts} == {"summarised"}
    assert size(curated) <= 400


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [(ZeroDivisionError("secret"), "ZeroDivisionError"), ("", "NoText"), (None, "NoText"), ("long " * 500, "TooLong")],
)
def test_without_a_usable_summary_turns_are_left_out_without_and_it_says_so(outcome: Any, failure: str) -> None:
    asked: list[Messages] = []

    def summarise(messages: Messages) -> Any:
        asked.append(messages)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    curated = curate(long_talk(9), 400, count=tokens, summarise=summarise)
    again = curate(long_talk(9), 400, count=tokens, summarise=summarise)

    assert curated == curate(long_talk(9), 400, count=tokens)
    assert again == curated
    assert len(asked) == curated.record.batches
    assert curated.summary_failure == failure
    assert {cut.kind for cut in curated.record.cuts} == {"turn"}


# What cannot work


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("text", 10), "curate() takes a list of messages, got str"),
        ((["text"], 10), "messages[0] must be a mapping such as {'role': 'user', 'content': '...'}, got str"),
        (([], 0), "curate(budget=...) takes a whole number of tokens from 1, got 0"),
        (([], True), "curate(budget=...) takes a whole number of tokens from 1, got True"),
    ],
)
def test_what_is_no_conversation_or_budget_is_refused(arguments: tuple[Any, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        curate(*arguments)

    assert str(raised.value) == words


async def coroutine(messages: Messages) -> str:
    return ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 11}, "from 1 to the 10 above which a conversation is cut, got 11"),
        ({"keep_turns": 0}, "curate(keep_turns=...) takes a whole number from 1"),
        ({"count": 3}, "curate(count=...) takes a function that returns the tokens of one message, got int"),
        ({"model": 3}, "curate(model=...) takes the model's name, got int"),
        ({"stub": "{nothing}"}, "curate(stub=...) takes one line of text with any of {tool}, {arguments}"),
        ({"stub": "two\nlines"}, "curate(stub=...) takes one line"),
        ({"summarise": 3}, "curate(summarise=...) takes a function that returns a text"),
        ({"summarise": coroutine}, "and is called, not awaited, got a coroutine function"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        curate([], 10, **settings)

    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("returned", "got"), [("x", "str"), (None, "NoneType"), (1.5, "float"), (True, "bool"), (-1, "-1")]
)
@pytest.mark.parametrize("messages", [[SYSTEM], [user("Hello")]])
def test_a_count_that_is_no_whole_number_is_refused(messages: Messages, returned: Any, got: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        curate(messages, 10, count=lambda message: returned)

    assert str(raised.value) == (
        "curate(count=...) takes a function that returns the tokens of one message as a whole number from 0, and it "
        f"returned {got}: round an estimate with math.ceil()"
    )
