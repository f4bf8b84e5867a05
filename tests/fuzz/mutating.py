"""Inputs made of others by chance: what is there where no coverage-guided fuzzer can be had, and in the tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
