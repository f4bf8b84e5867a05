from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes._lines import (
    Attributes,
    Line,
    Lines,
    Uses,
    attributes_of,
    chained,
    lies_elsewhere,
)
from fastlane.plays.prompt_cache.prefixes._outline import Outline

HERE = Attributes("https://api.example.com:443", "/chat/completions", "large", ())


def row(*digests: int, leading: int = 1) -> Outline:
    return Outline((("messages", len(digests)),), digests, (100,) * len(digests), leading)


def line(*digests: int, seed: int = 1, used_ns: int = 0) -> Line:
    return Line(HERE, seed, row(*digests), chained(seed, digests), "family", used_ns)


def lines_of(
    *all_lines: Line, most_lines: int = 10, most_segments: int = 1_000, most_characters: int = 1_000_000
) -> Lines:
    lines = Lines(most_lines=most_lines, most_segments=most_segments, most_characters=most_characters)
    for one in all_lines:
        lines.add(one, {})
    return lines


@given(st.lists(st.integers(-3, 3), max_size=8), st.lists(st.integers(-3, 3), max_size=8), st.integers(0, 8))
def test_a_chain_stands_for_the_whole_beginning(first: list[int], second: list[int], known: int) -> None:
    # Python's hashes of -1 and -2 are the same, and digests are hashes themselves.
    one, other = (tuple(number for number in each if number != -1) for each in (first, second))
    chain, others = chained(7, one), chained(7, other)

    for count in range(min(len(one), len(other))):
        assert (chain[count] == others[count]) == (one[: count + 1] == other[: count + 1])
    assert chained(7, one, chain[:known]) == chain
    assert not set(chain) & set(chained(8, one))


def test_a_line_is_found_by_what_continues_it() -> None:
    one, other = line(1, 2, 3), line(1, 5, 6)
    lines = lines_of(one, other)

    assert lines.continued(1, (1, 2, 3, 4, 9)) is one
    assert lines.continued(1, (1, 5, 6)) is other
    assert lines.continued(1, (1, 2, 9)) is None
    assert lines.continued(2, (1, 2, 3, 4)) is None


def test_a_prompt_that_says_more_of_another_line_does_not_just_continue_one() -> None:
    short, long = line(9, 2), line(1, 2, 3, 4, 5)
    lines = lines_of(short, long)

    prompt = (9, 2, 3, 4, 5, 6)

    assert lines.continued(1, prompt) is None
    assert lines.longest(chained(1, prompt)) is short
    shared = lines.sharing(row(*prompt))
    assert shared[long] > shared[short]


def test_a_line_that_goes_on_is_found_by_its_new_end() -> None:
    one = line(1, 2)
    lines = lines_of(one)

    lines.extend(one, row(1, 2, 3, 4), chained(1, (1, 2, 3, 4)), {})

    assert len(lines) == 1
    assert lines.continued(1, (1, 2, 3, 4, 5)) is one
    assert lines.ending(chained(1, (1, 2))[-1]) is None
    assert lines.ending(chained(1, (1, 2, 3, 4))[-1]) is one


def test_the_lines_not_used_for_longest_are_forgotten_first() -> None:
    first, second, third = line(1, 2), line(1, 3), line(1, 4)
    lines = lines_of(first, second, most_lines=2)

    lines.touch(first)
    lines.add(third, {})

    assert lines.continued(1, (1, 3, 5)) is None
    assert lines.continued(1, (1, 2, 5)) is first
    assert not lines.knows(3)
    assert lines.knows(1)


def test_lines_are_bounded_in_segments_but_the_latest_one_stays() -> None:
    lines = lines_of(line(1, 2, 3), line(4, 5, 6), line(7, 8, 9), most_segments=6)
    assert len(lines) == 2

    huge = line(*range(10, 30))
    lines.add(huge, {})

    assert lines.continued(1, tuple(range(10, 31))) is huge
    assert not lines.knows(7)


def test_lines_are_bounded_in_text_too_and_what_they_share_counts_once() -> None:
    lines = lines_of(line(1, 2), line(1, 3), line(1, 4), most_characters=400)
    assert len(lines) == 3

    lines.add(line(1, 5), {})
    assert len(lines) == 3
    assert not lines.knows(2)

    lines.clear()
    for digest in range(10, 13):
        lines.add(line(1, digest), {})
    assert len(lines) == 3


@given(st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=6), max_size=30))
def test_what_is_kept_of_a_segment_lives_as_long_as_a_line_that_has_it(rows: list[list[int]]) -> None:
    lines = lines_of(most_lines=4)
    held: list[tuple[int, ...]] = []
    for digests in rows:
        new = line(*digests)
        if lines.ending(new.chain[-1]) is not None:
            continue
        lines.add(new, dict.fromkeys(digests, b"text"))
        held = [*held, tuple(digests)][-4:]

    for one in range(2, 10):
        assert lines.knows(one) == any(one in digests for digests in held)
        assert (lines.text(one) is not None) == lines.knows(one)


def test_uses_are_bounded_and_those_in_use_are_kept() -> None:
    uses = Uses(most=10)
    for number in range(100):
        uses.use((1, 2, 1_000 + number), now_ns=number)

    assert len(uses) <= 20
    assert uses.get(1) == 99
    assert uses.get(1_099) == 99
    assert uses.get(1_000) is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"prompt_cache_key": "a"}, "prompt_cache_key"),
        ({"cache_salt": "a"}, "cache_salt"),
        ({"cache_salt": {"odd": ["a"]}}, "cache_salt"),
    ],
)
def test_what_keeps_caches_apart_is_named_by_its_path(body: dict[str, Any], path: str) -> None:
    without = attributes_of("o", "/responses", "m", {"temperature": 1}, None)
    having = attributes_of("o", "/responses", "m", body, None)

    assert having != without
    assert having.changed(without) == path
    assert without.changed(having) == path
    assert having.changed(having) is None


def test_a_key_that_is_sent_beside_the_body_keeps_apart_too() -> None:
    one, other = (attributes_of("o", "/responses", "m", {}, key) for key in ("a", "b"))

    assert one.changed(other) == "prompt_cache_key"
    assert one.but_for_the_key() == other.but_for_the_key()


@pytest.mark.parametrize("body", [{"reasoning": "odd"}, {"text": ["odd"]}, {"reasoning": {}}, {"text": {"effort": 1}}])
def test_parameters_of_another_shape_keep_nothing_apart(body: dict[str, Any]) -> None:
    assert attributes_of("o", "/responses", "m", body, None) == attributes_of("o", "/responses", "m", {}, None)


def test_parameters_of_odd_values_keep_apart_by_their_content() -> None:
    efforts: list[Any] = [["a"], ["a"], {"b": []}]
    one, same, other = (
        attributes_of("o", "/responses", "m", {"reasoning": {"effort": effort}}, None) for effort in efforts
    )

    assert one == same
    assert len({one, same, other}) == 2
    assert one.changed(other) == "reasoning.effort"


def test_a_prompt_that_the_provider_keeps_is_told_from_one_that_is_sent() -> None:
    assert lies_elsewhere({"previous_response_id": "resp_1", "input": "more"})
    assert lies_elsewhere({"conversation": {"id": "conv_1"}})
    assert lies_elsewhere({"prompt": {"id": "pmpt_1"}})
    assert not lies_elsewhere({"prompt": "Once upon a time", "previous_response_id": None})
