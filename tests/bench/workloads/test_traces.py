from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.workloads import Turn, Workload, read_workload
from fastlane.bench.workloads._text import shared_prompt

RECORDED = Path(__file__).parents[4] / "shared" / "data"


def written(tmp_path: Path, *lines: str, name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def row(at: float, length: float, hashes: Sequence[int], output: int = 50) -> str:
    return json.dumps({"timestamp": at, "input_length": length, "output_length": output, "hash_ids": list(hashes)})


def turns(workload: Workload) -> list[Turn]:
    return [conversation.turns[0] for conversation in workload.conversations]


def text_of(turn: Turn) -> str:
    (message,) = turn.messages
    return str(message["content"])


def test_a_mooncake_trace_is_read_with_its_lengths_and_arrivals(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, row(500, 700, [0, 1]), row(2_000, 90, [2], output=7)))

    first, second = turns(workload)
    assert (first.arrival_s, second.arrival_s) == (0.0, 1.5)
    assert (first.input_tokens, first.answer_tokens) == (700, 50)
    assert (second.input_tokens, second.answer_tokens) == (90, 7)
    assert len(text_of(first).split()) == 700
    assert workload.shares_prefixes
    assert [conversation.arrival_s for conversation in workload.conversations] == [0.0, 1.5]


@given(
    one=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    other=st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_prompts_share_text_exactly_where_their_hashes_are_equal(one: list[int], other: list[int]) -> None:
    texts = [shared_prompt("trace", at, 512 * len(hashes), hashes, 512) for at, hashes in enumerate((one, other))]
    words = [text.split() for text in texts]
    equal = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    shared = next((at for at, (a, b) in enumerate(zip(*words, strict=False)) if a != b), min(map(len, words)))

    assert [len(each) for each in words] == [512 * len(one), 512 * len(other)]
    # Other blocks have other words, but for one that may be the same by chance.
    assert 512 * equal <= shared < 512 * equal + 3


@given(length=st.integers(1, 2_000), known=st.integers(0, 3))
def test_a_prompt_has_its_length_however_many_of_its_blocks_are_known(length: int, known: int) -> None:
    blocks = list(range(min(known, -(-length // 512))))
    assert len(shared_prompt("trace", 1, length, blocks, 512).split()) == length


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([row(0, 5, [1]), "[1]"], "line 2: Input should be a valid dictionary"),
        ([row(0, 5, [1]), '{"timestamp": 0}'], "line 2: input_length: Field required"),
        ([row(0, 600, [1, 2, 3])], 'line 1: expected at most 2 "hash_ids" for 600 tokens'),
        ([row(0, 5, [1]), row(-1, 5, [1])], "line 2: timestamp: Input should be greater than or equal to 0"),
        ([row(0, 5, [1]), row(0, 5.5, [1])], "line 2: input_length: Input should be a valid integer"),
        (
            ['{"input_length": 5, "output_length": 2, "hash_ids": ["a"], "timestamp": 1}'],
            "hash_ids.0: Input should be",
        ),
        ([row(0, 5, [1]), "{"], "line 2: not valid JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, lines: list[str], expected: str) -> None:
    path = written(tmp_path, *lines)

    with pytest.raises(ConfigurationError) as raised:
        read_workload(path)

    assert expected in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_limit_keeps_the_first_requests(tmp_path: Path) -> None:
    few = read_workload(written(tmp_path, *(row(1_000 * at, 10, [at]) for at in range(100))), limit=3)

    assert [each.arrival_s for each in few.conversations] == [0.0, 1.0, 2.0]
    assert few.conversations[1].name == "request 2"
    assert "the first 3 requests of the file; it has more" in few.notes


def test_requests_without_a_prompt_or_an_answer_are_left_out(tmp_path: Path) -> None:
    workload = read_workload(written(tmp_path, row(0, 5, []), row(1, 0, []), row(2, 5, [], output=0)))

    assert len(workload.conversations) == 1
    assert "left out requests without a prompt or without an answer (2 times)" in workload.notes
    assert not workload.shares_prefixes


def test_settings_that_do_not_go_with_a_file_are_refused(tmp_path: Path) -> None:
    talk = written(tmp_path, '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
                   name="talk")  # fmt: skip
    other = written(tmp_path, "name,age", "Ada,36", name="people.csv")

    for settings, expected in (
        ({"path": talk, "limit": 0}, "1 or more"),
        ({"path": other}, "line 1: not valid JSON"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            read_workload(**settings)


def test_the_projects_own_conversations_may_be_a_list_too(tmp_path: Path) -> None:
    talk = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    path = written(tmp_path, json.dumps([talk, talk]))

    assert [each.name for each in read_workload(path).conversations] == ["item 1", "item 2"]


def test_a_published_trace_is_read_with_its_shared_prefixes() -> None:
    path = RECORDED / "mooncake_conversation_20min.jsonl"
    if not path.is_file():
        pytest.skip("this trace is not part of the project")

    workload = read_workload(path, limit=10)
    texts = [text_of(turn) for turn in turns(workload)[:4]]
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()[:4]]

    for text, recorded in zip(texts, rows, strict=True):
        assert len(text.split()) == recorded["input_length"]
    hashes = [one["hash_ids"] for one in rows[:2]]
    shared = next(at for at, (a, b) in enumerate(zip(*hashes, strict=False)) if a != b)
    assert shared > 0
    assert texts[0].split()[: 512 * shared] == texts[1].split()[: 512 * shared]
    assert texts[0].split()[512 * shared] != texts[1].split()[512 * shared]
