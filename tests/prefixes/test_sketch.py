from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.prompt_cache.prefixes import _sketch
from fastlane.plays.prompt_cache.prefixes._alignment import align
from fastlane.plays.prompt_cache.prefixes._sketch import paths, sketch, stride, tags, text_sketch, walk

TEXT = " ".join(f"Rule {number}: passengers of class {number % 7} may take {number * 3} bags." for number in range(400))
WORDS = st.text(st.sampled_from("ab 0é\n"), max_size=30)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same keys in every run: one change in 65,536 has the same 16 bits, and would fail a test once in a while."""
    drawn = random.Random(11)
    for name in ("_KEY_LOW", "_KEY_HIGH", "_KEY_FIRST", "_KEY_SECOND"):
        monkeypatch.setattr(_sketch, name, drawn.getrandbits(29) | 1 << 29 | 1)


def common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("block", [8, 16])
def test_every_changed_byte_changes_the_hash_of_its_block_and_of_no_other(block: int) -> None:
    data = TEXT[:256].encode()
    known = tags(data, block)
    for at in range(len(data)):
        changed = tags(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], block)
        apart = {index // 2 for index in range(len(known)) if known[index] != changed[index]}
        assert apart == {at // block}


def test_blocks_have_the_same_hash_wherever_they_stand_and_however_long_the_text_is() -> None:
    data = TEXT.encode() * 4
    whole = tags(data, 16)
    assert whole[-200:] == tags(data[-(-len(data) // 16 - 100) * 16 :], 16)[-200:] or len(data) % 16
    assert tags(data[40_000:40_160], 16) == whole[2 * 2_500 : 2 * 2_510]


@settings(derandomize=True)
@given(
    size=st.sampled_from([10, 100, 1_000, 9_000, 20_000]), at=st.integers(0, 20_000), gone=st.integers(0, 40), new=WORDS
)
def test_a_change_is_found_within_a_block_and_never_behind_where_it_is(size: int, at: int, gone: int, new: str) -> None:
    old = TEXT[:size]
    at = min(at, size)
    text = old[:at] + new + old[at + gone :]

    found = align(text_sketch(old), text)

    true = common(old, text)
    said = found.character(found.start)
    if text != old:
        assert said <= true < said + 2 * stride(len(old.encode()))
    from_the_end = common(old[::-1], text[::-1])
    assert len(text) - found.character(found.new_end) <= from_the_end


def test_most_of_a_text_is_the_same_where_two_places_of_it_have_changed() -> None:
    old = TEXT[:6_000]
    text = old[:100] + "XYZ" + old[120:3_000] + "one more sentence" + old[3_000:]
    assert align(text_sketch(old), text).share > 0.95


def test_other_texts_have_next_to_nothing_in_common() -> None:
    assert align(text_sketch(TEXT[:6_000]), TEXT[:6_000].translate({97 + at: 122 - at for at in range(26)})).share < 0.3


def test_a_sketch_takes_a_fraction_of_its_text_and_holds_none_of_it() -> None:
    long = TEXT * 8
    for text, share in ((TEXT[:6_000], 0.27), (TEXT, 0.14), (long, 0.02)):
        kept = sketch({"role": "user", "content": text})
        assert sum(len(each) for _, each in kept.texts) <= share * len(text)
        assert not any(text[at : at + 8].encode() in each for _, each in kept.texts for at in range(0, 800, 8))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_every_value_has_a_path_that_leads_to_it(value: Any) -> None:
    for (_, _, member), way in zip(walk(value), paths(value), strict=True):
        inner = value
        for step in way:
            inner = inner[step]
        assert inner is member


def test_the_same_segment_has_the_same_sketch_whoever_made_it() -> None:
    value = {"role": "user", "content": [{"type": "text", "text": TEXT[:500]}], "n": [1, True, None, 0.5]}
    one, other = sketch(value), sketch(json.loads(json.dumps(value)))
    assert (one.leaves, one.texts, one.size) == (other.leaves, other.texts, other.size)


def test_what_contains_itself_is_sketched_and_comes_to_an_end() -> None:
    value: dict[str, Any] = {"role": "user"}
    value["self"] = value
    assert len(sketch(value).leaves) < 200
