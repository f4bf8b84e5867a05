from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.workloads import Turn, Workload, read_workload
from fastlane.bench.workloads._lines import objects_of
from fastlane.bench.workloads._trace_rows import shared_prompt

RECORDED = Path(__file__).parents[4] / "shared" / "data"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
LATER_BURSTGPT = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"


def written(tmp_path: Path, *lines: str, name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def row(at: float, length: int, hashes: Sequence[int], output: int = 50) -> str:
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
    texts = [shared_prompt("trace", hashes, 512 * len(hashes), 512, at) for at, hashes in enumerate((one, other))]
    words = [text.split() for text in texts]
    equal = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    shared = next((at for at, (a, b) in enumerate(zip(*words, strict=False)) if a != b), min(map(len, words)))

    assert [len(each) for each in words] == [512 * len(one), 512 * len(other)]
    # Other blocks have other words, but for one that may be the same by chance.
    assert 512 * equal <= shared < 512 * equal + 3


@given(length=st.integers(1, 2_000), known=st.integers(0, 3))
def test_a_prompt_has_its_length_however_many_of_its_blocks_are_known(length: int, known: int) -> None:
    blocks = list(range(min(known, -(-length // 512))))
    assert len(shared_prompt("trace", blocks, length, 512, 1).split()) == length


@pytest.mark.parametrize("header", [BURSTGPT, LATER_BURSTGPT])
def test_a_burstgpt_trace_is_read_without_its_failures(tmp_path: Path, header: str) -> None:
    between = ",s1,1.5" if header == LATER_BURSTGPT else ""
    path = written(
        tmp_path,
        header,
        f"5{between},ChatGPT,472,18,490,Conversation log",
        f"45.5{between},GPT-4,300,0,300,API log",
        f"118{between},GPT-4,417,276,693,API log",
    )

    workload = read_workload(path)

    assert [(each.arrival_s, each.input_tokens, each.answer_tokens) for each in turns(workload)] == [
        (0.0, 472, 18),
        (113.0, 417, 276),
    ]
    assert "left out requests without a prompt or without an answer (1 times)" in workload.notes
    assert not workload.shares_prefixes
    first, second = map(text_of, turns(workload))
    assert first.split()[0] != second.split()[0]


@pytest.mark.parametrize(
    ("times", "after"),
    [
        (("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690"), 4.314579),
        (("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01.509930+00:00"), 1.5),
    ],
)
def test_an_azure_trace_is_read_in_both_of_its_forms(tmp_path: Path, times: tuple[str, str], after: float) -> None:
    path = written(tmp_path, AZURE, f"{times[0]},374,44", f"{times[1]},396,109")

    first, second = turns(read_workload(path))

    assert (first.input_tokens, first.answer_tokens, first.arrival_s) == (374, 44, 0.0)
    assert second.arrival_s == pytest.approx(after, abs=1e-5)


Format = Literal["mooncake", "burstgpt", "azure", "sharegpt"]


@pytest.mark.parametrize(
    ("form", "lines", "expected"),
    [
        ("mooncake", [row(0, 5, [1]), "[1]"], 'line 2: expected an object with "timestamp"'),
        ("mooncake", [row(0, 5, [1]), '{"timestamp": 0}'], 'line 2: expected "input_length" to be a whole number'),
        ("mooncake", [row(0, 600, [1, 2, 3])], 'line 1: expected at most 2 "hash_ids" for 600 tokens'),
        ("mooncake", [row(0, 5, [1]), row(-1, 5, [1])], 'line 2: expected "timestamp" to be milliseconds'),
        ("mooncake", ['{"input_length": 5, "output_length": 2, "hash_ids": ["a"], "timestamp": 1}'], "whole numbers"),
        ("mooncake", [row(0, 5, [1]), "{"], "line 2: not valid JSON"),
        ("burstgpt", [BURSTGPT, "1,GPT-4,x,5,5,API log"], 'line 2: expected "Request tokens" to be a whole number'),
        ("burstgpt", [BURSTGPT, "1,GPT-4,5"], "line 2: expected 6 cells as in the first line, got 3"),
        ("burstgpt", [AZURE], "line 1: expected the columns Timestamp, Request tokens, Response tokens"),
        ("azure", [AZURE, "yesterday,5,5"], 'line 2: expected "TIMESTAMP" to be a date and time'),
        ("azure", [AZURE, "2023-11-16 18:15:46,5.5,5"], "got '5.5'"),
        ("azure", [AZURE], "holds no request"),
        ("sharegpt", ['{"conversations": [{"from": "cat", "value": "Miau"}]}'], "message 1 is from 'cat'"),
        ("sharegpt", ['{"conversations": ["Hi"]}'], "message 1 is a string"),
        ("sharegpt", ['{"text": "Hi"}'], "under \"conversations\", got an object with the keys 'text'"),
        ("sharegpt", ['[{"conversations": []}, {"x": 1}]'], "item 2: expected an object"),
        ("sharegpt", ['[{"conversations": []}, {"x": '], "item 2: not valid JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, form: Format, lines: list[str], expected: str) -> None:
    path = written(tmp_path, *lines)

    with pytest.raises(ConfigurationError) as raised:
        read_workload(path, format=form)

    assert expected in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_window_of_time_and_a_limit_keep_a_part(tmp_path: Path) -> None:
    path = written(tmp_path, *(row(1_000 * at, 10, [at]) for at in range(100)))

    window = read_workload(path, window_s=(10, 20))
    few = read_workload(path, limit=3)

    assert [each.arrival_s for each in window.conversations] == [float(at) for at in range(10)]
    assert window.conversations[0].name == "request 11"
    assert len(few.conversations) == 3
    assert "the first 3 requests of the file; it has more" in few.notes
    with pytest.raises(ConfigurationError, match="holds no request between 200 and 300 s"):
        read_workload(path, window_s=(200, 300))
    with pytest.raises(ConfigurationError, match="0 <= start < end"):
        read_workload(path, window_s=(20, 10))


def test_settings_that_do_not_go_with_a_file_are_refused(tmp_path: Path) -> None:
    trace = written(tmp_path, row(0, 5, [1]))
    talk = written(tmp_path, '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
                   name="talk")  # fmt: skip
    other = written(tmp_path, "name,age", "Ada,36", name="people.csv")

    for settings, expected in (
        ({"path": trace, "tools_path": talk}, "tools go with conversations"),
        ({"path": talk, "window_s": (0, 1)}, "says no times"),
        ({"path": talk, "format": "yaml"}, "unknown format 'yaml': the known ones are auto, conversations"),
        ({"path": talk, "limit": 0}, "1 or more"),
        ({"path": other}, "line 1: no known form begins so"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            read_workload(**settings)


SHARED = [
    {
        "id": "a1",
        "conversations": [
            {"from": "gpt", "value": "I was asked before."},
            {"from": "human", "value": "Hi"},
            {"from": "gpt", "value": "Hello there, what can I do?"},
            {"from": "human", "value": "Nothing"},
            {"from": "gpt", "value": "Fine."},
        ],
    },
    {"id": "a2", "conversations": [{"from": "human", "value": "Anybody?"}]},
    {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "user", "value": "Hi"},
                       {"from": "assistant", "value": "Hi."}]},
]  # fmt: skip


@pytest.mark.parametrize("form", ["list", "indented list", "lines"])
def test_shared_conversations_are_read_as_a_list_or_as_lines(tmp_path: Path, form: str) -> None:
    lines = [json.dumps(each) for each in SHARED]
    path = written(tmp_path, *lines)
    if form != "lines":
        path.write_text(json.dumps(SHARED, indent=2 if form == "indented list" else None))

    workload = read_workload(path)

    first, second = workload.conversations
    assert [message["role"] for message in first.messages] == ["user", "assistant", "user", "assistant"]
    assert len(first.turns) == 2
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant"]
    assert first.name == "a1"
    assert workload.notes == (
        "left out answers that nothing stood before (1 times)",
        "left out conversations without an answer (1 times)",
    )


def test_a_long_list_is_read_no_further_than_it_is_needed(tmp_path: Path) -> None:
    talk = json.dumps({"conversations": [{"from": "human", "value": "Hi " * 400_000}, {"from": "gpt", "value": "x"}]})
    path = tmp_path / "long.json"
    # It ends in the middle: who read it all would find that out.
    path.write_text(f"[{talk}, {talk}, {talk}, {{")

    assert len(read_workload(path, limit=2).conversations) == 2
    with pytest.raises(ConfigurationError, match="item 4: not valid JSON"):
        list(objects_of(path))


def test_the_projects_own_conversations_may_be_a_list_too(tmp_path: Path) -> None:
    talk = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    path = written(tmp_path, json.dumps([talk, talk]))

    assert [each.name for each in read_workload(path).conversations] == ["item 1", "item 2"]


def test_a_published_trace_is_read_with_its_shared_prefixes() -> None:
    path = RECORDED / "mooncake_conversation_20min.jsonl"
    if not path.is_file():
        pytest.skip("this trace is not part of the project")

    workload = read_workload(path, window_s=(0, 60))
    texts = [text_of(turn) for turn in turns(workload)[:4]]
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()[:4]]

    for text, recorded in zip(texts, rows, strict=True):
        assert len(text.split()) == recorded["input_length"]
    hashes = [one["hash_ids"] for one in rows[:2]]
    shared = next(at for at, (a, b) in enumerate(zip(*hashes, strict=False)) if a != b)
    assert shared > 0
    assert texts[0].split()[: 512 * shared] == texts[1].split()[: 512 * shared]
    assert texts[0].split()[512 * shared] != texts[1].split()[512 * shared]
