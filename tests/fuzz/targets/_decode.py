"""Answers and events: typed objects straight from bytes, against the stock client's, field by field."""

from __future__ import annotations

from functools import cache

from tests.fuzz import mutation
from tests.fuzz.differential import STRANGERS, TYPES, Differential
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._target import holds


@cache
def _differential(name: str) -> Differential:
    return Differential(name, seed=0)


def check(data: bytes) -> None:
    """The first byte says of which type; then a document as it is, or one drawn by the bytes."""
    draw = Drawn(data[1:])
    name = list(TYPES)[(data[0] if data else 0) % len(TYPES)]
    differential = _differential(name)
    if data[:1] and data[0] >= 128:
        document = data[1:]
    else:
        made = draw.random() < 0.35
        drawn = mutation.sample(differential.cast_to, draw) if made else draw.choice(differential.documents)
        document = mutation.mutated(drawn, draw, STRANGERS)
    found = differential.check(document)
    holds(found is None, found or "", document)


def seeds() -> list[bytes]:
    """Documents of each type as they are written, and bytes that draw changes of them."""
    drawn = chance(10, 120)
    found = []
    for number, (_, documents, _) in enumerate(TYPES.values()):
        # Above 128 with the same remainder.
        whole = 130 + number
        found += [bytes([whole]) + mutation.written(one, Drawn(b"")) for one in documents[:6]]
        found += [bytes([number]) + one for one in drawn]
    return found
