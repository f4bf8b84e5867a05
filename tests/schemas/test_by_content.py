"""What is remembered of schemas by their content."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastlane.schemas.by_content import ByContent


def test_equal_content_is_worked_out_once() -> None:
    made: list[Any] = []
    kept: ByContent[int] = ByContent()

    def make(schema: Any) -> int:
        made.append(schema)
        return len(made)

    assert [kept.of({"enum": ["a"]}, None, make) for _ in range(3)] == [1, 1, 1]
    assert kept.of({"enum": ["a"]}, "beside", make) == 2
    assert kept.of({"enum": ["b"]}, None, make) == 3
    assert kept.of({"enum": ["b" * 10_000]}, None, make) == 4
    assert kept.of({"enum": ["b" * 10_000]}, None, make) == 4


def test_what_is_changed_afterwards_does_not_change_what_is_remembered() -> None:
    kept: ByContent[Any] = ByContent()
    schema = {"enum": ["a"]}

    found = kept.of(schema, None, lambda copy: copy)
    schema["enum"].append("b")

    assert found == {"enum": ["a"]}
    assert kept.of({"enum": ["a"]}, None, lambda copy: copy) == {"enum": ["a"]}


def test_a_tuple_is_the_list_that_it_is_on_the_wire() -> None:
    kept: ByContent[Any] = ByContent()

    assert kept.of({"enum": ("a",)}, None, lambda copy: copy) == {"enum": ["a"]}


def test_what_cannot_be_written_is_made_of_the_schema_itself_each_time() -> None:
    kept: ByContent[Any] = ByContent()
    for odd in ({1: "a"}, {"maximum": 10**30}):
        assert kept.of(odd, None, lambda schema: schema) is odd
    assert kept.of({}, ["no key"], lambda schema: "made") == "made"  # type: ignore[arg-type]


def test_only_the_last_schemas_are_kept() -> None:
    made: list[Any] = []
    kept: ByContent[None] = ByContent()
    for number in range(300):
        kept.of({"maximum": number}, None, made.append)
    made.clear()

    kept.of({"maximum": 299}, None, made.append)
    kept.of({"maximum": 0}, None, made.append)

    assert made == [{"maximum": 0}]


def test_threads_that_share_it_are_each_given_what_is_theirs() -> None:
    kept: ByContent[int] = ByContent()

    def ask(number: int) -> bool:
        number %= 300
        return kept.of({"maximum": number}, None, lambda schema: int(schema["maximum"])) == number

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(3_000)))
