from __future__ import annotations

from random import Random

import pytest

from fastlane.plays.bounded_output.scanner import JsonScanner


def fed(text: str, random: Random | None = None) -> JsonScanner:
    """Feed a text as a whole, or in pieces of random sizes."""
    scanner = JsonScanner()
    at = 0
    while at < len(text):
        size = len(text) if random is None else random.randint(1, 5)
        scanner.feed(text[at : at + size])
        at += size
    return scanner


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
