"""How much is done to name a change, which nobody should have to wait for, whatever the text is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fastlane.prefixes import _alignment, _kinds
from fastlane.prefixes._kinds import text_change
from fastlane.prefixes._sketch import text_sketch

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
