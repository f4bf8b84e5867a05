from __future__ import annotations

import json
import re
import warnings

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.schemas.numbers import as_written, longest_number
from fastlane.schemas.patterns import longest_match

# Characters of JSON where nothing but ASCII is written out: one, two for an escape, six, and twelve for a pair.
WIDE = 12


def longest(pattern: str, most: int | None = None) -> int | None:
    matched = longest_match(pattern)
    return None if matched is None else matched.within(most)


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        ("^$", 2),
        (r"^\Z", 0),
        (r"\Aabc\Z", 3),
        (r"^abc\z", 3),
        ("^abc$", 5),
        (r"^[a-z]{2,4}\Z", 4),
        (r"^[a-z]{3}\Z", 3),
        (r"^a?b{0,5}\Z", 6),
        (r"^a??b{0,5}+\Z", 6),
        (r"^(yes|no)\Z", 3),
        (r"^(?:yes|no){2}\Z", 6),
        (r"^yes\Z|^no\Z", 3),
        (r"(^a|^b)(c\Z|dd\Z)", 3),
        (r"^(?P<x>ab)(?P=x)\Z", 4),
        (r"^(?<x>ab)\k<x>\Z", 4),
        (r"^(a|bc)\1\Z", 4),
        (r"^(?>ab)\Z", 2),
        (r"^(?=.{1,2}\Z)(?!b)[a-c]{3}\Z", 3),
        (r"^(?<=a)(?<!b)c\Z", 1),
        (r"^a\b\B\Z", 1),
        (r"^.\Z", WIDE),
        (r"^[^a]\Z", WIDE),
        (r"^\d\Z", WIDE),
        (r"^[\w]\Z", WIDE),
        (r"^\s\Z", 6),
        (r"^\p{L}\Z", WIDE),
        (r"^[\p{L}]\Z", WIDE),
        (r"^é\Z", 6),
        (r"^\u00e9\Z", 6),
        (r"^\u{1F600}\Z", WIDE),
        (r"^\U0001F600\Z", WIDE),
        (r"^\x41\Z", 1),
        (r"^\x7f\Z", 1),
        (r"^\x00\Z", 6),
        (r"^\cJ\Z", 2),
        (r"^\0\Z", 6),
        (r"^\v\a\Z", 12),
        (r"^\n\"\\\Z", 6),
        (r"^[\b]\Z", 2),
        (r"^[ -~]\Z", 2),
        (r"^[ -!#-Z^-~]\Z", 1),
        (r"^[a-é]\Z", 6),
        (r"^[-a]\Z", 1),
        (r"^[a-]\Z", 1),
        (r"^[\]]\Z", 1),
        (r"^\.\/\-\Z", 3),
        (r"^a{b}\Z", 4),
        (r"^a{\Z", 2),
        (r"^a{0}\Z", 0),
        (r"^a{2,1}\Z", 1),
        (r"^((((a{9}){9}){9}){9}){9}\Z", 9**5),
        ("^" + "(" * 3_000 + "a" + ")" * 3_000 + r"\Z", 1),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_pattern_with_both_ends_bounds_a_text(pattern: str, characters: int) -> None:
    assert longest(pattern) == characters


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "^a", "a$", "^a|b$", "^a$|b", "(^a$)?", "(^a)*b$", "^a(b$)?", "^a(?=b$)", "(?=^)a$", "^(a+)+$", "^a*$",
        "^(a|aa)+$", "^a{3,}$", "^a{9999999999}$", "^(((((((((a{9}){99}){99}){99}){99}){99}){99}){99}){99}){99}$",
        # What is none, or is none in every language, or has more than one meaning.
        "(", ")", "^a)$", "^(a$", "^[a$", "^[]$", "^[^]a]$", "^[b-a]$", "^[a-\\d]$", "^[[:alpha:]]$", "^[a&&b]$",
        "^[a--b]$", "^a**$", "^*$", "*a$", "^[a-[]$", "^(?P=x$",
        "^a{2}{3}$", "^a{,3}$", "^\\$\\", "^a\\", "^\\q$", "^\\N{DIGIT ZERO}$", "^\\p$",
        "^\\1$", "^(a\\1)$", "^(a)\\123$", "^\\012$", "^\\u12$", "^(?i)a$", "^(?i:a)$", "(?m)^a$", "^(?(1)a|b)$",
        "^(?P=x)$", "^\\k<x>$", "^(?#x)a$", "^(?P<x>a)(?P<x>b)$", "^(?P<1>a)$", "(" * 20_000,
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_anything_else_does_not(pattern: str) -> None:
    assert longest(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "most", "characters"),
    [
        (r"^[a-z]*\Z", 5, 5),
        ("^[a-z]*$", 5, 6),
        ("^[a-z]*$", 0, 0),
        (r'^["a]*\Z', 5, 10),
        (r"^\d*\Z", 5, 60),
        (r"^[a-z]{3}\Z", 5, 3),
        (r"^[a-z]{9}\Z", 5, 5),
        ("^a+[é]?$", 3, 18),
    ],
)
def test_a_limit_beside_a_pattern_counts_its_widest_characters(pattern: str, most: int, characters: int) -> None:
    assert longest(pattern, most) == characters


CHARACTERS = st.sampled_from([*"abé😀 \t-", r"\n", r"\"", r"\\", r"\d", r"\w", r"\s", ".", r"\x00", r"\u2028"])
CLASSES = st.sampled_from(["[a-z]", "[^a]", r"[\d_]", "[a-é]", r"[\x00-\x1f]", '["]'])
ENDS = st.sampled_from(["^", "$", r"\Z", r"\A", r"\b", ""])
QUANTIFIERS = st.sampled_from(["", "", "?", "*", "+", "{2}", "{0,3}", "{1,}", "+?"])


def extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantified = st.tuples(inner, QUANTIFIERS).map(lambda parts: f"(?:{parts[0]}){parts[1]}")
    grouped = inner.map(lambda part: f"({part})")
    either = st.lists(inner, min_size=1, max_size=3).map("|".join)
    joined = st.lists(inner, min_size=1, max_size=3).map("".join)
    looking = inner.map(lambda part: f"(?={part})")
    return st.one_of(quantified, grouped, either, joined, looking)


PATTERNS = st.recursive(st.one_of(CHARACTERS, CLASSES, ENDS), extended, max_leaves=8)


@settings(max_examples=150)
@given(
    inner=PATTERNS, ends=st.tuples(st.sampled_from(["^", "^", ""]), st.sampled_from(["$", r"\Z", ""])), data=st.data()
)
def test_no_text_that_a_pattern_is_found_in_is_longer(inner: str, ends: tuple[str, str], data: st.DataObject) -> None:
    pattern = f"{ends[0]}(?:{inner}){ends[1]}" if data.draw(st.booleans()) else f"{ends[0]}{inner}{ends[1]}"
    matched = longest_match(pattern)
    if matched is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Texts that are near to what it matches, as it may match none; the last ones only to show that it is so.
        text = data.draw(st.one_of(st.from_regex(f"(?:{inner})\n?\\Z"), st.text("ab1é😀\n", max_size=4)))
    if re.search(pattern, text):
        assert len(json.dumps(text)) - 2 <= (matched.within(None) or float("inf"))
        assert len(json.dumps(text)) - 2 <= (matched.within(len(text)) or 0)


@pytest.mark.parametrize(
    ("value", "characters"),
    [
        (0, 4), (0.0, 4), (1, 3), (1.0, 3), (-1, 4), (1.5, 3), (-2.5, 4), (10**16, 17), (1e16, 17), (1e22, 23),
        (1e23, 23),
        (123456789012345678, 22), (10**400, 401), (-(10**400), 402), (5e-324, 6), (float("nan"), 4),
        (float("inf"), 8), (float("-inf"), 9),
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_a_number_is_as_long_as_its_longest_form(value: float, characters: int) -> None:
    assert as_written(value) == characters


NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30))


@given(first=NUMBERS, second=NUMBERS, third=NUMBERS)
def test_no_number_within_a_range_is_longer(first: float, second: float, third: float) -> None:
    low, value, high = sorted((first, second, third))
    forms = [value, *([int(value), float(value)] if value == int(value) else [])]
    written = max(len(json.dumps(form)) for form in forms if form == value)

    assert written <= (longest_number(low, high, integer=False) or 0)
    if value == int(value):
        assert written <= (longest_number(low, high, integer=True) or 0)
    assert written <= as_written(value)


def test_a_range_that_is_open_bounds_nothing() -> None:
    assert longest_number(None, 5, integer=True) is None
    assert longest_number(5, None, integer=True) is None
