"""Random choices that are read out of a fuzzer's bytes, so that a change of a byte is a change of a choice."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any


class Drawn(random.Random):
    """A source of random choices: the bytes one after the other, and behind their end what follows from all of them.

    Whatever the standard library draws, it draws through `getrandbits` and `random`.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._at = 0
        self._behind: random.Random | None = None

    @property
    def spent(self) -> bool:
        """Whether all bytes were read."""
        return self._at >= len(self._data)

    def getrandbits(self, count: int, /) -> int:
        size = (count + 7) // 8
        if self._at >= len(self._data):
            self._behind = self._behind or random.Random(self._data)
            return self._behind.getrandbits(count)
        taken = self._data[self._at : self._at + size].ljust(size, b"\0")
        self._at += size
        # The lowest bits: where a choice is among few, a small change of the byte makes the neighbouring choice.
        return int.from_bytes(taken) & ((1 << count) - 1)

    def random(self) -> float:
        return self.getrandbits(16) / 65_536

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """As of any source; the standard library's waits for another number where the bytes say the same for long."""
        left = list(population)
        return [left.pop(self.randrange(len(left))) for _ in range(k)]

    def bytes_of(self, most: int) -> bytes:
        """Some of the next bytes, as they are."""
        size = min(self.randrange(most + 1), max(0, len(self._data) - self._at))
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def rest(self) -> bytes:
        """All bytes that are left, as they are."""
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken

    def cut(self, data: bytes) -> list[bytes]:
        """The bytes in pieces, as a network brings them: whole, in steps, or with any other cuts."""
        step = self.choice((0, 0, 1, 2, 7, 64, len(data) or 1))
        if step:
            return [data[at : at + step] for at in range(0, len(data), step)]
        edges = sorted({0, len(data), *(self.randrange(len(data) + 1) for _ in range(self.randrange(6)))})
        return [data[at:end] for at, end in itertools.pairwise(edges)]


_TEXTS = (
    "",
    "a",
    "x-1",
    "é",
    "\u2028",
    "\ud800",
    "1",
    "1.5",
    "true",
    "null",
    "\0",
    "a" * 70,
    "/",
    "https://a.test",
    "*",
)
_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 60, 2**31, 2**53, 2**63, -(2**63), 10**20, 10**400, 0.5, -0.0, 1e-9, 1e300,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def json_value(draw: Drawn, names: tuple[str, ...] = (), depth: int = 0) -> Any:
    """Any value that JSON, as Python reads it, has; objects mostly have `names` in them."""
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return draw.choice((None, True, False))
    if kind <= 2:
        return draw.choice(_NUMBERS)
    if kind <= 4:
        return draw.choice((*_TEXTS, *names))
    if kind == 5:
        return draw.bytes_of(12).decode("utf-8", "replace")
    if kind == 6:
        return [json_value(draw, names, depth + 1) for _ in range(draw.randrange(5))]
    among = (*names, *names, *_TEXTS[:4]) or _TEXTS
    return {draw.choice(among): json_value(draw, names, depth + 1) for _ in range(draw.randrange(6))}


def json_text(draw: Drawn, value: Any) -> str:
    """JSON of it, in one of the ways in which it is written; with half characters and NaN where it has any."""
    style: Any = draw.choice(({}, {"separators": (",", ":")}, {"indent": 1}))
    return json.dumps(value, ensure_ascii=draw.randrange(2) == 0, **style)


def chance(count: int, size: int) -> list[bytes]:
    """Bytes that draw anything: always the same ones, some of them as long as `size`, none shorter than half of it."""
    return [random.Random(number).randbytes(size - number * size // (2 * count)) for number in range(count)]


_ODD = (0, 1, 2, 9, 10, 13, 32, 34, 58, 91, 92, 93, 123, 125, 127, 128, 255)


def mutate(known: Sequence[bytes], draw: random.Random, most: int = 4096) -> bytes:
    """One of the known inputs with a few changes: bytes changed, left out, put in, repeated, or taken from another."""
    data = bytearray(draw.choice(known))
    for _ in range(draw.choice((1, 1, 2, 3, 5, 9))):
        at = draw.randrange(len(data) + 1)
        size = min(draw.choice((1, 1, 2, 4, 9, 30)), len(data) - at)
        kind = draw.randrange(7)
        if kind == 0:
            data[at : at + size] = draw.randbytes(size)
        elif kind == 1:
            data[at : at + size] = bytes(draw.choice(_ODD) for _ in range(size))
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = draw.randbytes(draw.choice((1, 2, 4, 16)))
        elif kind == 4:
            data[at:at] = data[at : at + size] * draw.choice((1, 2, 5))
        elif kind == 5:
            other = draw.choice(known)
            start = draw.randrange(len(other) + 1)
            data[at : at + size] = other[start : start + draw.choice((1, 4, 20, 100))]
        elif at < len(data):
            data[at] ^= 1 << draw.randrange(8)
    return bytes(data[:most])
