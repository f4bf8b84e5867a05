from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.workloads import read_workload
from fastlane.bench.workloads._sources import shared_prompt


def written(tmp_path: Path, *lines: str, name: str = "talks") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


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
