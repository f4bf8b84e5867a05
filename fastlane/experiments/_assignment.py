"""Draw an arm for a unit: the same one in every process, and still the same when shares are ramped up."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

BUCKETS = 256
"""Into which the units of an arm are put together, for their variance: see `_sums`."""

_POINTS = float(2**53)
_random = Random()


class Drawn(NamedTuple):
    """What the hash of a unit's id says."""

    point: float
    """In [0, 1): uniform over units, and the same everywhere."""
    unit_id_hash: str


def key_of(name: str, salt: str | None) -> bytes:
    """The key of an experiment's hashes: other experiments draw other units, and nobody links units across them."""
    return hashlib.blake2b(f"{salt or ''}\0{name}".encode("utf-8", "surrogatepass"), digest_size=32).digest()


def draw(key: bytes, unit_id: str) -> Drawn:
    """Hash the id of a unit."""
    # Keyed BLAKE2b (RFC 7693) is a pseudo-random function: without the key, nothing is learned from the hash.
    digest = hashlib.blake2b(unit_id.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()
    return Drawn((int.from_bytes(digest[:8], "big") >> 11) / _POINTS, digest[8:].hex())


def draw_anew() -> Drawn:
    """For a call that is a unit of its own."""
    return Drawn(_random.random(), f"{_random.getrandbits(64):016x}")


def bucket_of(unit_id_hash: str) -> int:
    """Where the calls of a unit are counted: independent of the point that its arm was drawn by."""
    return int(unit_id_hash[:2], 16)


Interval = tuple[float, float, str]
"""Where one begins, where it ends (itself no more in it), and whose the units in between are."""


class Allocation:
    """Which points belong to which arm; what no arm has belongs to the reference."""

    __slots__ = ("_arms", "_starts", "intervals", "reference")

    def __init__(self, reference: str, intervals: Sequence[Interval]) -> None:
        self.reference = reference
        self.intervals = tuple(sorted(intervals))
        starts, arms = [0.0], [reference]
        for low, high, arm in self.intervals:
            if low > starts[-1]:
                starts.append(low)
                arms.append(arm)
            else:
                arms[-1] = arm
            starts.append(high)
            arms.append(reference)
        self._starts, self._arms = starts, arms

    def arm_at(self, point: float) -> str:
        """The arm of a unit."""
        return self._arms[bisect_right(self._starts, point) - 1]

    def share_of(self, arm: str) -> float:
        """Of all units, 0 to 1."""
        return sum(high - low for low, high, owner in self.intervals if owner == arm)

    def ramped(self, shares: Mapping[str, float]) -> Allocation:
        """With other shares: an arm keeps all of its units where it grows, and gets new ones from the reference alone.

        Where it shrinks, those that came last leave it for the reference.
        """
        kept = list(self.intervals)
        for arm in dict.fromkeys([*shares, *(owner for _, _, owner in kept)]):
            left = max(0.0, shares.get(arm, 0.0))
            own = []
            for low, high, owner in kept:
                if owner == arm:
                    length = min(high - low, left)
                    left -= length
                    if length > 0:
                        own.append((low, low + length if length < high - low else high, arm))
            kept = [one for one in kept if one[2] != arm] + own
        for arm, share in shares.items():
            missing = share - sum(high - low for low, high, owner in kept if owner == arm)
            # Rounding is no ramp.
            while missing > 1e-12:
                low, high = _first_gap(kept)
                if high <= low:
                    break
                # To the end, where the rest of it would be nothing but rounding.
                end = low + missing if missing < high - low - 1e-9 else high
                kept.append((low, end, arm))
                missing -= end - low
        return Allocation(self.reference, _joined(kept))


def _first_gap(intervals: Sequence[Interval]) -> tuple[float, float]:
    """What is the reference's, from its lowest point on."""
    at = 0.0
    for low, high, _ in sorted(intervals):
        if low > at:
            return at, low
        at = high
    return at, 1.0


def _joined(intervals: Sequence[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for low, high, arm in sorted(intervals):
        if joined and joined[-1][1] == low and joined[-1][2] == arm:
            joined[-1] = (joined[-1][0], high, arm)
        else:
            joined.append((low, high, arm))
    return joined


def new_after_fork() -> None:
    """A child process that drew as its parent does would put its calls into the same buckets."""
    _random.seed()


class View(NamedTuple):
    """What a call has to know to be assigned."""

    allocation: Allocation
    stage: int
    ended: frozenset[str]
