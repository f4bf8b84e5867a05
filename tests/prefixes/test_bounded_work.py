"""How much is done to name a change, which nobody should have to wait for, whatever the text is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies

from fastlane.plays.prompt_cache.prefixes import _alignment, _kinds
from fastlane.plays.prompt_cache.prefixes._kinds import text_change
from fastlane.plays.prompt_cache.prefixes._members import member_change
from fastlane.plays.prompt_cache.prefixes._sketch import sketch, text_sketch
from fastlane.plays.prompt_cache.prefixes._volatile import find

SIZE = 40_000


def times(random: Random) -> str:
    return "\n".join(f"2025-06-{random.randint(10, 28)}T10:{random.randint(10, 59)}:00Z" for _ in range(SIZE // 21))


def numbers(random: Random) -> str:
    return " ".join(str(random.randrange(10 ** random.randint(1, 9))) for _ in range(SIZE // 6))


def one_number(random: Random) -> str:
    return "".join(random.choice("0123456789") for _ in range(SIZE))


def identifiers(random: Random) -> str:
    return " ".join(f"{random.getrandbits(64):016x}" for _ in range(SIZE // 17))


DOCUMENTS = [times, numbers, one_number, identifiers]


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, measure: Callable[..., int]) -> list[int]:
    done: list[int] = []
    function = getattr(module, name)

    def counting(*arguments: Any) -> Any:
        done.append(measure(*arguments))
        return function(*arguments)

    monkeypatch.setattr(module, name, counting)
    return done


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("same", [0, SIZE // 2], ids=["another", "half another"])
def test_another_document_is_looked_at_where_it_begins_to_differ_and_no_further(
    document: Callable[[Random], str], same: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    before = document(random)
    after = before[:same] + document(random)[same:]
    guessed = counted(monkeypatch, _kinds, "tags", lambda data, _: len(data))
    searched = counted(monkeypatch, _kinds, "find", lambda _, start, end: end - start)
    rows = counted(monkeypatch, _alignment, "_find", lambda *_: 1)

    text_change(text_sketch(before), after)

    assert len(guessed) <= 1_500
    assert sum(guessed) <= 1_000_000
    assert sum(searched) <= 3_000
    assert sum(rows) <= 32 * 16


def test_a_document_in_another_order_is_searched_for_so_many_rows_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)
    lines = [f"{random.random()} {random.random()} {random.random()}" for _ in range(SIZE // 60)]
    before = "\n".join(lines)
    random.shuffle(lines)
    rows = counted(monkeypatch, _alignment, "_find", lambda *_: 1)

    text_change(text_sketch(before), "\n".join(lines))

    assert 0 < sum(rows) <= 32 * 16


@pytest.mark.parametrize("step", [1, 3, 20])
def test_a_number_among_many_is_still_found_by_counting(step: int) -> None:
    text = "Call number {} of many. " + numbers(Random(3))

    change = text_change(text_sketch(text.format(4_711)), text.format(4_711 + step))

    assert change.kind == "counter"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_in_the_place_of_a_short_text_is_no_value_and_not_guessed_at(
    document: Callable[[Random], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guessed = counted(monkeypatch, _kinds, "leaf_hash", lambda _: 1)

    change = member_change(
        sketch({"role": "user", "content": "ok"}), {"role": "user", "content": document(Random(4))}, "changed_text"
    )

    assert (change.kind, change.path) == ("changed_text", ".content")
    assert not guessed


@pytest.mark.parametrize(
    "picture", ["data:image/png;base64," + "QUJD" * 1_000, "word " * 250_000], ids=["data", "file"]
)
def test_of_a_picture_or_a_file_it_is_known_that_it_changed_and_no_more(picture: str) -> None:
    part: dict[str, Any] = {"type": "image_url", "image_url": {"url": picture}}
    kept = sketch(part)

    change = member_change(kept, {"type": "image_url", "image_url": {"url": picture + "s"}}, "changed_text")

    assert not [text for _, text in kept.texts if len(text) > 200]
    assert (change.kind, change.path, change.character) == ("changed_text", ".image_url.url", 0)


@given(strategies.text("0123456789:-T #abcdef./ Mayt", max_size=200))
def test_values_that_are_found_are_in_order_and_apart(text: str) -> None:
    found = list(find(text))

    assert all(one.start < one.end for one in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
