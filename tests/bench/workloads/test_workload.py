from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.bench import Conversation, Workload, read_workload

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello there."}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return path


def test_every_answer_is_a_turn_with_the_whole_history_before_it() -> None:
    turns = Conversation(name="greeting", messages=(SYSTEM, USER, ANSWER, USER, ANSWER), tools=(TOOL,)).turns

    assert [turn.messages for turn in turns] == [(SYSTEM, USER), (SYSTEM, USER, ANSWER, USER)]
    assert [turn.number for turn in turns] == [1, 2]
    assert turns[0].tools == (TOOL,)


def test_recorded_answer_sets_the_tokens_to_ask_for() -> None:
    turn, *_ = Conversation(name="greeting", messages=(USER, ANSWER)).turns
    short, *_ = Conversation(name="silence", messages=(USER, {"role": "assistant", "content": ""})).turns

    assert turn.answer_tokens == 3
    assert short.answer_tokens == 2
    # What answers nothing is no turn.
    assert len(Conversation(name="greeting", messages=(ANSWER, USER, ANSWER)).turns) == 1


def test_workload_without_an_answer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing to replay"):
        Workload(name="monologue", conversations=(Conversation(name="a", messages=(USER, USER)),))


def test_file_is_read_with_its_names_and_tools(tmp_path: Path) -> None:
    path = written(
        tmp_path / "talks.jsonl",
        {"messages": [USER, ANSWER]},
        {"run": "second", "messages": [USER, ANSWER], "tools": [TOOL, TOOL]},
    )

    workload = read_workload(path)

    assert workload.name == "talks.jsonl"
    assert [each.name for each in workload.conversations] == ["line 1", "second"]
    assert [len(each.tools) for each in workload.conversations] == [0, 2]
    assert workload.notes == ()


def test_line_separators_inside_a_message_end_no_line(tmp_path: Path) -> None:
    odd = {"role": "user", "content": "one\u2028two\x85three"}

    workload = read_workload(written(tmp_path / "talks.jsonl", {"messages": [odd, ANSWER]}))

    assert workload.conversations[0].messages[0] == odd


def test_empty_lines_and_byte_order_marks_are_no_conversations(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text("\ufeff\n" + json.dumps({"messages": [USER, ANSWER]}) + "\r\n\n", encoding="utf-8")

    assert [each.name for each in read_workload(path).conversations] == ["line 2"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("[1, 2", "line 2: not valid JSON: Expecting ',' delimiter at column 6"),
        ('{"text": "Hi"}', "under \"messages\", got an object with the keys 'text'"),
        ('{"messages": "Hi"}', '"messages" is not a list of chat messages, but a string'),
        ('{"messages": []}', '"messages" is empty'),
        ("[]", "got a list"),
        ('{"messages": [{"role": "user"}, 7]}', "message 2 is no chat message"),
        ('{"messages": [{"role": "user"}], "tools": {"name": "read"}}', "expected tools as a list"),
    ],
)
def test_broken_line_is_named(tmp_path: Path, row: str, expected: str) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps({"messages": [USER, ANSWER]}) + "\n" + row + "\n")

    with pytest.raises(ConfigurationError, match=r"talks\.jsonl, line 2: .*") as raised:
        read_workload(path)

    assert expected in str(raised.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").write_text("")

    for name, expected in (("absent", "cannot read"), ("binary", "not UTF-8"), ("empty", "holds no conversation")):
        with pytest.raises(ConfigurationError, match=f"{expected}|{name}.*{expected}"):
            read_workload(tmp_path / name)


def test_project_conversations_may_be_a_list(tmp_path: Path) -> None:
    talk = {"messages": [USER, ANSWER]}

    workload = read_workload(written(tmp_path / "talks.json", [talk, talk]))

    assert [each.name for each in workload.conversations] == ["item 1", "item 2"]


def test_limit_keeps_the_first_conversations(tmp_path: Path) -> None:
    talks = tuple(Conversation(name=str(at), messages=(USER, ANSWER)) for at in range(3))
    workload = Workload(name="talks", conversations=talks)

    assert workload.limited(2).conversations == talks[:2]
    assert workload.limited(None) == workload
    with pytest.raises(ConfigurationError, match="1 or more"):
        read_workload(written(tmp_path / "talks.jsonl", {"messages": [USER, ANSWER]}), limit=0)
