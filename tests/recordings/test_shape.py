from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.workloads import read_workload
from fastlane.recordings.shape import BLOCK_CHARACTERS, Shape, shape_of

SALT, OTHER_SALT = b"a" * 32, b"b" * 32
ROLES = ("system", "user", "assistant", "tool")
CALL = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": st.text(max_size=9), "arguments": st.text(max_size=400)})}
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(ROLES),
        "content": st.one_of(
            st.none(),
            st.text(max_size=900),
            st.lists(
                st.one_of(
                    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=300)}),
                    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}),
                ),
                max_size=3,
            ),
        ),
        "tool_calls": st.lists(CALL, max_size=2),
    }
)
TALK = st.lists(MESSAGE, max_size=8)


@given(talk=TALK, tools=st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=200)), max_size=3))
def test_a_prompt_has_a_digest_for_each_block(talk: list[dict[str, Any]], tools: list[Any]) -> None:
    shape = shape_of(talk, tools, SALT)

    assert len(shape.blocks) == -(-shape.characters // BLOCK_CHARACTERS)


@given(talk=TALK, more=TALK)
def test_a_conversation_that_goes_on_shares_every_whole_block(
    talk: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    before, after = shape_of(talk, (), SALT), shape_of([*talk, *more], (), SALT)
    whole = before.characters // BLOCK_CHARACTERS

    assert before.blocks[:whole] == after.blocks[:whole]


@given(talk=TALK.filter(bool))
def test_digests_of_other_salts_say_nothing_of_each_other(talk: list[dict[str, Any]]) -> None:
    assert not set(shape_of(talk, (), SALT).blocks) & set(shape_of(talk, (), OTHER_SALT).blocks)


@given(text=st.text(min_size=1, max_size=2_000), at=st.integers(0, 1_999))
def test_prompts_that_differ_share_nothing_from_there_on(text: str, at: int) -> None:
    at %= len(text)
    other = f"{text[:at]}{chr((ord(text[at]) + 1) % 0xD800)}{text[at + 1 :]}"
    one, two = (shape_of([{"role": "user", "content": each}], (), SALT).blocks for each in (text, other))
    same = (2 + at) // BLOCK_CHARACTERS

    assert one[:same] == two[:same]
    assert not set(one[same:]) & set(two[same:])


def recorded(path: Path, *shapes: Shape, input_tokens: int | None = None) -> Path:
    rows: list[dict[str, Any]] = [
        {"fastlane_recording": 1, "session": "s", "family": "f", "started_at": "2026-05-01T10:00:00+00:00",
         "block_characters": BLOCK_CHARACTERS}
    ]  # fmt: skip
    rows += [
        {"session": "s", "at": at, "blocks": list(shape.blocks), "sampling": {"max_tokens": 9},
         "input_tokens": input_tokens, "output_tokens": None}
        for at, shape in enumerate(shapes)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@given(
    texts=st.lists(st.text(alphabet="abc", min_size=1, max_size=3_000), min_size=1, max_size=4),
    last=st.text(alphabet="xyz", min_size=1, max_size=3_000),
)
def test_the_replay_shares_what_the_recorded_prompts_shared(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], last: str
) -> None:
    talk = [{"role": "user", "content": text} for text in texts]
    shapes = shape_of(talk, (), SALT), shape_of([*talk, {"role": "user", "content": last}], (), SALT)
    path = recorded(tmp_path_factory.mktemp("replay") / "calls.jsonl", *shapes)

    (one,), (two,) = (each.turns[0].messages for each in read_workload(path).conversations)

    # All that lies in whole blocks of the shorter prompt is the same text in both, at four characters a token.
    shared = BLOCK_CHARACTERS // 4 * (shapes[0].characters // BLOCK_CHARACTERS)
    words = [message["content"].split() for message in (one, two)]
    assert [len(each) for each in words] == [BLOCK_CHARACTERS // 4 * len(shape.blocks) for shape in shapes]
    assert words[0][:shared] == words[1][:shared]
    assert words[0][shared : shared + 3] != words[1][shared : shared + 3]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fastlane_recording": 2}, "line 1: expected a recording of version 1, got 2"),
        ({"block_characters": 100}, "line 1: expected blocks of 512 characters, got 100"),
        ({"started_at": "yesterday"}, 'line 1: expected "started_at"'),
        ({"session": "other"}, 'line 2: expected a call of a "session" whose first line is above'),
    ],
)
def test_what_is_wrong_with_a_recording_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    path = recorded(tmp_path / "calls.jsonl", shape_of([{"role": "user", "content": "Hi"}], (), SALT))
    header, call = path.read_text().splitlines()
    path.write_text(f"{json.dumps(json.loads(header) | change)}\n{call}\n")

    with pytest.raises(ConfigurationError) as raised:
        read_workload(path)

    assert expected in str(raised.value)


def test_a_recorded_call_without_its_messages_is_named(tmp_path: Path) -> None:
    path = recorded(tmp_path / "calls.jsonl", shape_of([{"role": "user", "content": "Hi"}], (), SALT))
    header, _ = path.read_text().splitlines()

    path.write_text(f'{header}\n{{"session": "s", "at": 1}}\n')
    with pytest.raises(ConfigurationError, match=r'line 2: expected a recorded call with "at" and "blocks"'):
        read_workload(path)
    path.write_text(f"{header}\n")
    with pytest.raises(ConfigurationError, match="holds no call"):
        read_workload(path)


def test_a_call_whose_answer_was_not_counted_asks_for_its_limit(tmp_path: Path) -> None:
    path = recorded(tmp_path / "calls.jsonl", shape_of([{"role": "user", "content": "Hi"}], (), SALT))

    workload = read_workload(path)

    assert workload.conversations[0].turns[0].answer_tokens == 9
    assert any("asked for at most 256 tokens" in note for note in workload.notes)
