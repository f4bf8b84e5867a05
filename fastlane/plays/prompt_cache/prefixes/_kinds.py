"""What sort of change a text has undergone: by what stands there now, and by guesses that the old hashes prove."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from fastlane.records.prompt import DriftKind

from ._alignment import Alignment, align
from ._sketch import facts, leaf_hash, tags, unpack, whole_hash
from ._volatile import SEPARATORS, Volatile, VolatileKind, calendar_words, find, find_glued, looks_random, words

# So many steps up and down are tried to find the number that a counter had before.
_STEPS = 300
# A number that is no small step away from the old one and has so many digits was drawn, not counted.
_DRAWN_DIGITS = 6
# How many numbers that one may have been are tried where several may have changed, for each and for all together.
_LEAST_GUESSES, _MOST_GUESSES = 24, 1_200
# No number, and nothing that took the place of a short text, is longer and still a value.
_LONGEST_NUMBER, _LONGEST_SHORT = 32, 64
# What is looked at around a change, in characters: the longest way to write a time is shorter.
_AROUND = 80
# And how far from its beginning on: no value is longer, and what is may be a document.
_MOST_CHANGED = 2_048
# A new random value may begin or end like the old one, for so many characters.
_ALIKE = 3
_LEAST_LOOSE = 6
# Where several sorts can be read into one place, the first that can.
_VALUES: tuple[VolatileKind, ...] = ("uuid", "timestamp", "random")
_NUMBER = re.compile(r"\d(?:[\d,]*\d)?")
_UNICODE_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]")
_YEAR_BEFORE = re.compile(r"\byear\b\W*(?:is\s+)?$", re.IGNORECASE)
_NAMES = tuple(
    tuple(names.split())
    for names in (
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday", "Mon Tue Wed Thu Fri Sat Sun",
        "January February March April May June July August September October November December",
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", "AM PM", "a.m. p.m.",
        "UTC GMT CET CEST EST EDT CST CDT MST MDT PST PDT BST IST JST WET WEST EET EEST AEST AEDT NZST NZDT",
        "today yesterday tomorrow tonight", "morning afternoon evening night noon midnight",
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "Q1 Q2 Q3 Q4",
    )
)  # fmt: skip


class Change(NamedTuple):
    """The first change of one value."""

    kind: DriftKind
    character: int | None
    """Characters before it, rounded down; None for what is no text."""
    share: float
    """How much of the value is the same: 0 to 1."""
    sizes: tuple[int, int] = (0, 0)
    """Bytes of the text before and after, where both are known."""


def text_change(sketched: bytes, text: str) -> Change:
    """What changed in a text of which a sketch is known, and where first."""
    alignment = align(sketched, text)
    case = _Case(sketched, text, alignment)
    kind, at = case.judge()
    return Change(kind, at, alignment.share, (alignment.old.size, alignment.new.size))


def short_change(old: int, value: Any) -> Change:
    """What changed in a short text or another value, of which no more than `leaf_hash` is known."""
    if not isinstance(value, str):
        return Change(_number_change(old, value), None, 0.0)
    if len(value) > _LONGEST_SHORT:
        return Change("changed_text", 0, 0.0)
    for match in _NUMBER.finditer(value):
        for guess in _numbers(match.group()):
            if leaf_hash(value[: match.start()] + guess + value[match.end() :]) == old:
                at = match.start() + _common(guess, match.group())
                timed = any(one.kind == "timestamp" and one.start <= at < one.end for one in find(value))
                return Change("timestamp" if timed else "counter", at, 0.5)
    for start, end in calendar_words(value, 0, len(value)):
        for name in _others(value[start:end]):
            if leaf_hash(value[:start] + name + value[end:]) == old:
                return Change("timestamp", start + _common(name, value[start:end]), 0.5)
    found = list(find(value))
    if found and sum(one.end - one.start for one in found) * 2 >= len(value):
        return Change(found[0].kind, 0, 0.0)
    if value.isdigit():
        return Change("random" if len(value) >= _DRAWN_DIGITS else "counter", 0, 0.0)
    if leaf_hash(" ".join(value.split())) == old or leaf_hash("".join(value.split())) == old:
        return Change("whitespace", 0, 0.5)
    return Change("random" if looks_random(value, _LEAST_LOOSE) else "changed_text", 0, 0.0)


def _number_change(old: int, value: Any) -> DriftKind:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "changed_text"
    # An epoch in seconds, milli-, micro- or nanoseconds.
    if any(one.kind == "timestamp" for one in find(str(value))):
        return "timestamp"
    if isinstance(value, int) and any(leaf_hash(value + step) == old for step in _steps()):
        return "counter"
    return "random" if len(str(value).replace(".", "")) >= _DRAWN_DIGITS else "counter"


class _Case:
    """One text beside the sketch of its old self."""

    def __init__(self, sketched: bytes, text: str, alignment: Alignment) -> None:
        self.known = unpack(sketched)[1]
        self.text = text
        self.alignment = alignment
        self.first = alignment.character(alignment.start)
        """The first character that may have changed."""
        self.last = max(self.first, alignment.character(alignment.new_end))
        """The one behind the last."""
        self.looked = min(self.last, self.first + _MOST_CHANGED)
        """The one up to which values are looked for."""
        self.grown = alignment.new.size - alignment.old.size
        """Bytes."""
        self.ascii = text.isascii()

    def judge(self) -> tuple[DriftKind, int]:
        """The kind, and the first character that changed, rounded down."""
        old, new = self.alignment.old, self.alignment.new
        if old.bare == new.bare:
            return self._digits() if self._digits_changed() else ("whitespace", self.first)
        if old.letters == new.letters and old.letters and not self.grown:
            return "reordered_keys", self.first
        if not self.ascii and old.bare == self._without_unicode_spaces():
            return "whitespace", self.first
        return self._letters()

    def _without_unicode_spaces(self) -> int:
        text = _UNICODE_SPACES.sub("", self.text)
        return facts(text, text.encode("utf-8", "surrogatepass")).bare

    def _digits_changed(self) -> bool:
        """Whether digits changed and not white space, where nothing else did."""
        spaces = self.alignment.new.spaces - self.alignment.old.spaces
        if spaces == 0:
            return self.grown != 0 or any(one.isdigit() for one in self.text[self.first : self.last])
        # "Mar  9" has become "Mar 10": a digit took the place of a space, and nothing was moved.
        return self.grown != spaces and abs(spaces) <= 2 and self.grown == 0

    def _digits(self) -> tuple[DriftKind, int]:
        first = self.first
        found = self._found()
        numbers = self._numbers()
        counted = self._counted(numbers, found)
        if counted:
            return counted
        if not numbers:
            # A number was taken away.
            return "changed_text", first
        touched = [one for one in found if one.start <= first + self._slack and one.end > first]
        for kind in _VALUES:
            if any(one.kind == kind and one.end > first for one in touched):
                return kind, first
        digits = sum(one.isdigit() for start, end in numbers[:2] for one in self.text[start:end])
        return ("random" if digits >= _DRAWN_DIGITS else "counter"), first

    def _numbers(self) -> list[tuple[int, int]]:
        """Numbers that the change may touch."""
        # The first change lies in the first block that differs.
        last = min(self.last, self.first + self._slack)
        found = (match.span() for match in _NUMBER.finditer(self.text, max(0, self.first - 32), last + 32))
        return [(start, end) for start, end in found if end >= self.first and start <= last]

    def _counted(self, numbers: Sequence[tuple[int, int]], found: Iterable[Volatile]) -> tuple[DriftKind, int] | None:
        """The number that stood there before, where it is found by counting."""
        grown = self.alignment.new_end - self.alignment.old_end
        most = max(_LEAST_GUESSES, _MOST_GUESSES // max(1, len(numbers)))
        for start, end in numbers:
            if end - start > _LONGEST_NUMBER or any(
                one.start <= start and end <= one.end and one.kind in _VALUES for one in found
            ):
                # Part of a time or an identifier, which it is whether it can be counted or not.
                continue
            for guess in islice(_numbers(self.text[start:end]), most):
                if len(guess) == end - start - grown and self._was(start, end, guess):
                    return self._year(start, end) or "counter", start + _common(guess, self.text[start:end])
        return None

    def _year(self, start: int, end: int) -> DriftKind | None:
        is_year = end - start == 4 and _YEAR_BEFORE.search(self.text[max(0, start - 16) : start])
        return "timestamp" if is_year else None

    @property
    def _slack(self) -> int:
        return self.alignment.block

    def _found(self) -> list[Volatile]:
        """Volatile values that the change may touch."""
        start = max(0, self.first - _AROUND)
        while 0 < start < self.first and not self.text[start - 1].isspace():
            start += 1
        stop = self.looked + _AROUND
        found = [*find(self.text, start, stop), *find_glued(self.text, start, stop)]
        return [one for one in found if one.start < max(self.last, self.first + 1) and one.end > self.first]

    def _letters(self) -> tuple[DriftKind, int]:
        for start, end in self._calendar():
            for name in _others(self.text[start:end]):
                if self._was(start, end, name):
                    return "timestamp", start + _common(name, self.text[start:end])
        found = self._found()
        # From 999 to 1,000, or back.
        thousands = [one for one in self._numbers() if "," in self.text[slice(*one)] or one[1] - one[0] == 3]
        counted = self._counted(thousands, found)
        if counted:
            return counted
        for kind in _VALUES:
            for one in found:
                if one.kind == kind and self._explains(one):
                    return kind, self.first
        if not self.grown and any(self._is_loose(start, end) for start, end in self._words()):
            return "random", self.first
        # A value that was added with some words around it, or took the place of another sort.
        core = range(self.first + self._slack, self.last - self._slack)
        inside = {at for one in found if one.kind != "counter" for at in range(one.start, one.end) if at in core}
        if len(core) >= self._slack and len(inside) * 2 >= len(core):
            return found[0].kind, self.first
        return "changed_text", self.first

    def _calendar(self) -> Iterable[tuple[int, int]]:
        start = max(0, self.first - 12)
        return calendar_words(self.text, start, min(len(self.text), self.first + _AROUND))

    def _words(self) -> Iterator[tuple[int, int]]:
        start = self.first
        while start and not self.text[start - 1].isspace() and self.first - start < _AROUND:
            start -= 1
        for one in words(self.text, start, self.looked + _AROUND):
            if one[0] < self.last and one[1] > self.first:
                yield one

    def _explains(self, one: Volatile) -> bool:
        """Whether this value and nothing else can be what changed."""
        slack = self._slack
        # What certainly changed has to lie inside.
        if one.start >= self.first + slack or one.end <= self.last - slack:
            return False
        inside = self.text[max(one.start, self.first) : min(one.end, self.last)]
        if one.kind == "timestamp":
            # Letters changed, and not alone: those of a calendar have been tried one by one.
            return any(each.isalpha() for each in inside) and any(each.isdigit() for each in inside)
        if one.kind == "uuid" and not self.grown and 2 * len(inside) >= self.last - self.first:
            # Those of version 1 or 7 that follow each other differ in a few digits.
            return True
        # A random value changes as a whole, save for what it may have by chance, or a name that it begins with.
        if self.last < one.end - _ALIKE or (one.kind == "uuid" and self.first > one.start + _ALIKE):
            return False
        return self.grown == 0 or len(inside) >= 2 * _LEAST_LOOSE

    def _is_loose(self, start: int, end: int) -> bool:
        """Whether a word of both letters and digits took the place of one of the same length."""
        slack = self._slack
        if start >= self.first + slack or end <= self.last - slack:
            return False
        inside = self.text[max(start, self.first) : min(end, self.last)]
        if len(inside) < _LEAST_LOOSE:
            return False
        # "martin_4574" is a name and a number: it takes one part that has both.
        mixed = any(
            len(part) >= 4 and not part.isalpha() and not part.isdigit() for part in SEPARATORS.split(inside.strip("="))
        )
        if self.last < end - _ALIKE:
            # It goes on behind the change, and so what changed has to read like it by itself.
            return mixed and sum(each.isdigit() for each in inside) >= 2
        return mixed or looks_random(self.text[start:end], _LEAST_LOOSE)

    def _was(self, start: int, end: int, guess: str) -> bool:
        """Whether the old text had `guess` where the new one has the characters from `start` to `end`."""
        data, block, alignment = self.alignment.data, self._slack, self.alignment
        first_character, last_character = start, end
        if not self.ascii:
            start = len(self.text[:start].encode("utf-8", "surrogatepass"))
            end = len(self.text[:end].encode("utf-8", "surrogatepass"))
        encoded = guess.encode()
        grown = end - start - len(encoded)
        if grown != alignment.new_end - alignment.old_end:
            return False
        begin = min(alignment.start, start) // block * block
        stop = max(alignment.new_end, end)
        stop = min(stop + -(stop - grown) % block, len(data))
        guessed = b"".join((data[begin:start], encoded, data[end:stop]))
        blocks = -(-len(guessed) // block)
        first = begin // block
        if not blocks or tags(guessed, block) != self.known[2 * first : 2 * (first + blocks)]:
            return False
        # A block is 16 bits, and hundreds of guesses are tried: the whole text has to be met, unless it changed
        # elsewhere as well.
        if alignment.is_single or alignment.old_end - alignment.start <= block:
            return whole_hash(self.text[:first_character] + guess + self.text[last_character:]) == alignment.old.whole
        return True


def _numbers(written: str) -> Iterator[str]:
    """What a number may have been before it was counted up or down to this one."""
    plain = written.replace(",", "")
    number = int(plain[-18:])
    head, width = plain[:-18], len(plain)
    for step in _steps():
        guess = number + step
        if guess < 0:
            continue
        if head:
            yield head + str(guess).zfill(18)
            continue
        text = f"{guess:,}" if "," in written else str(guess)
        yield text
        if guess >= 1_000 > number:
            yield f"{guess:,}"
        if len(text) < width:
            yield text.zfill(width)


def _steps() -> Iterator[int]:
    for step in range(1, _STEPS + 1):
        yield -step
        yield step


def _others(word: str) -> Iterator[str]:
    """The other names in the row of calendar words that a word stands in, written like it."""
    for names in _NAMES:
        if word.lower() in (name.lower() for name in names):
            for name in names:
                if name.lower() != word.lower():
                    yield name.lower() if word.islower() else name.upper() if word.isupper() else name


def _common(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
