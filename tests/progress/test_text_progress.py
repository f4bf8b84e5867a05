from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.bounded_output.progress._text_progress import TextProgress


def test_a_text_ends_before_a_stop_sequence() -> None:
    progress = TextProgress(stop=("END",))

    assert [progress.feed(piece) for piece in ("a E", "N", "D of", "it")] == [
        None,
        None,
        "stop_sequence",
        "stop_sequence",
    ]
    assert progress.end == 2
    assert progress.text == "a END ofit"
    assert progress.problem is None


def test_the_first_of_several_counts() -> None:
    progress = TextProgress(stop=("\n\n", "b", ""))

    assert progress.feed("ab\n\n") == "stop_sequence"
    assert progress.end == 1


@given(
    text=st.text("abc", max_size=30), stop=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), data=st.data()
)
def test_where_a_text_ends_depends_on_its_pieces_only_in_when_that_is_seen(
    text: str, stop: list[str], data: st.DataObject
) -> None:
    progress = TextProgress(stop=tuple(stop))
    said = None
    fed = 0
    while fed < len(text) and said is None:
        size = data.draw(st.integers(1, 4))
        said = progress.feed(text[fed : fed + size])
        fed += size

    found = [at for sequence in stop if (at := text[:fed].find(sequence)) >= 0]
    assert progress.end == min(found, default=None)
    assert (said == "stop_sequence") == bool(found)


def test_a_text_ends_behind_what_the_caller_was_shown_and_took() -> None:
    shown: list[str] = []

    def enough(text: str) -> bool:
        shown.append(text)
        return text.count(".") >= 2

    progress = TextProgress(stop=(), stop_when=enough)

    assert [progress.feed(piece) for piece in ("One.", " Two. T", "hree.")] == [None, "stop_when", "stop_when"]
    assert progress.end == 11
    assert shown == ["One.", "One. Two. T"]


def test_a_stop_sequence_comes_before_the_callers_own_word() -> None:
    progress = TextProgress(stop=("b",), stop_when=lambda text: True)

    assert progress.feed("ab") == "stop_sequence"
    assert progress.end == 1


def test_what_the_caller_raises_is_the_callers() -> None:
    def broken(text: str) -> bool:
        raise ZeroDivisionError

    progress = TextProgress(stop=(), stop_when=broken)

    with pytest.raises(ZeroDivisionError):
        progress.feed("a")
    assert progress.text == "a"


def test_nothing_fed_is_no_text() -> None:
    assert TextProgress(stop=("a",)).text == ""
