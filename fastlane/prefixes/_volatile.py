"""Values in a text that are likely to differ from call to call: times, identifiers, counters, random tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

VolatileKind = Literal["timestamp", "uuid", "counter", "random"]


class Volatile(NamedTuple):
    """One value, by its place in the text."""

    kind: VolatileKind
    start: int
    end: int


def find(text: str, start: int = 0, end: int | None = None) -> Iterator[Volatile]:
    """All such values between two characters of a text, in order, none overlapping another."""
    raise NotImplementedError
