from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.bench.workloads import read_workload


def written(tmp_path: Path, *lines: str, name: str = "talks") -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_unusable_workload_file_or_limit_is_refused(tmp_path: Path) -> None:
    talk = written(tmp_path, '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}',
                   name="talk")  # fmt: skip
    other = written(tmp_path, "name,age", "Ada,36", name="people.csv")

    for settings, expected in (
        ({"path": talk, "limit": 0}, "1 or more"),
        ({"path": other}, "line 1: not valid JSON"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            read_workload(**settings)


def test_project_conversations_may_be_a_list(tmp_path: Path) -> None:
    talk = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    path = written(tmp_path, json.dumps([talk, talk]))

    assert [each.name for each in read_workload(path).conversations] == ["item 1", "item 2"]
