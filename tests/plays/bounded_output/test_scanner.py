from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.bounded_output.scanner import JsonScanner

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def fed(text: str, random: Random | None = None) -> JsonScanner:
    """Feed a text as a whole, or in pieces of random sizes."""
    scanner = JsonScanner()
    at = 0
    while at < len(text):
        size = len(text) if random is None else random.randint(1, 5)
        scanner.feed(text[at : at + size])
        at += size
    return scanner


@settings(max_examples=300, deadline=None)
@given(
    value=JSON,
    indent=st.sampled_from([None, 0, 2, 4]),
    fence=st.sampled_from(["", "\n ", "```\n", "```json\n"]),
    behind=st.sampled_from(["\n", "\n```", " and prose", "\n{}", " " * 20, "\n```\nprose"]),
    seed=st.integers(0, 2**32),
)
def test_the_end_of_any_value_is_found_in_any_pieces(
    value: Any, indent: int | None, fence: str, behind: str, seed: int
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=bool(seed % 2))

    for scanner in (fed(fence + text + behind), fed(fence + text + behind, Random(seed))):
        assert scanner.value == text
        assert (scanner.start, scanner.end) == (len(fence), len(fence + text))
        assert scanner.text == fence + text + behind


@settings(max_examples=100, deadline=None)
@given(value=JSON.filter(lambda value: isinstance(value, dict | list | str)), seed=st.integers(0, 2**32))
def test_a_value_that_is_cut_off_has_no_end(value: Any, seed: int) -> None:
    text = json.dumps(value)

    assert fed(text[: Random(seed).randrange(len(text))], Random(seed)).reason is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1}', "complete"),
        ('{"a": 1}\n\n', "complete"),
        ('{"a": 1}\n\nHere', "prose"),
        ('{"a": 1}{', "prose"),
        ('{"a": 1}' + "\n" * 9, "whitespace"),
        ('```json\n{"a": 1}\n```', "fence"),
        ("Here is the JSON: {}", "prose"),
        ("`{}`", "prose"),
        (" " * 129, "whitespace"),
        ("```json\n" + " " * 129, "whitespace"),
        ('{"a": ', None),
        ("", None),
        (" ``", None),
    ],
)
def test_why_a_stream_can_be_closed(text: str, reason: str | None) -> None:
    assert fed(text).reason == fed(text, Random(1)).reason == reason


def test_a_run_of_white_space_inside_of_a_value_closes_the_stream() -> None:
    runs, indented, said = JsonScanner(), JsonScanner(), JsonScanner()

    assert [runs.feed(piece) for piece in ('{"a":', " " * 100, " " * 100)] == [None, None, "whitespace"]
    assert [indented.feed(piece) for piece in ("[" * 100, "\n" + " " * 400, "1")] == [None, None, None]
    assert [said.feed(piece) for piece in ('{"a": "', " " * 400, '"', " " * 100, "}")] == [None] * 4 + ["complete"]
