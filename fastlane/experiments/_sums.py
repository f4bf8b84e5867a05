"""What is kept of the calls of an arm: sums by buckets of units, and nothing of a single call.

Calls of one unit are no independent observations: a user with a slow line is slow each time. So the variance of a mean
has to come from units and not from calls (A. Deng, U. Knoblich, J. Lu, "Applying the Delta Method in Metric Analytics:
A Practical Guide with Novel Ideas", KDD 2018). Units are without number, and memory is not: their calls are added up in
256 buckets that a hash assigns them to. Whole units stay together, so that buckets are as independent of each other as
units are, and the spread of the buckets says how sure the mean is, with 255 degrees of freedom at most (A. C. Cameron,
D. L. Miller, "A Practitioner's Guide to Cluster-Robust Inference", Journal of Human Resources 50 (2015), on few
clusters).
"""

from __future__ import annotations

from array import array
from math import isfinite, log
from typing import Self

from ._assignment import BUCKETS
from ._metrics import METRICS

_KINDS = len(METRICS)
# A sketch of 1,024 registers counts distinct units to about 3 %: P. Flajolet, É. Fusy, O. Gandouet, F. Meunier,
# "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA 2007; below 2.5 times as many by
# counting registers that are still 0, as there.
_REGISTERS = 1_024
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)

_MASK = 2


class Sums:
    """The calls of one arm in one stage. They add up: those of several processes are the sum of theirs."""

    __slots__ = ("calls", "counts", "lone", "squares", "units", "values")

    def __init__(self) -> None:
        self.counts = array("d", bytes(8 * _KINDS * BUCKETS))
        """Calls with a value, by metric and bucket."""
        self.values = array("d", bytes(8 * _KINDS * BUCKETS))
        """The sums of their values."""
        self.squares = array("d", bytes(8 * _KINDS))
        """The sums of the values' squares, by metric."""
        self.calls = 0.0
        self.lone = 0.0
        """Of them, calls that were units of their own."""
        self.units = bytearray(_REGISTERS)
        """The sketch of the other units."""

    def add(self, metric: int, bucket: int, value: float, *, count: float = 1.0) -> None:
        """Count one value."""
        at = metric * BUCKETS + bucket
        self.counts[at] += count
        self.values[at] += value
        self.squares[metric] += value * value

    def saw(self, unit_id_hash: str, *, is_lone: bool) -> None:
        """Count one call of a unit."""
        self.calls += 1
        if is_lone:
            self.lone += 1
            return
        bits = int(unit_id_hash, 16)
        # The lowest bits choose the register: the highest are the bucket.
        register, rest = bits % _REGISTERS, bits // _REGISTERS
        zeros = 1
        while zeros < 54 and not rest & 1:
            zeros, rest = zeros + 1, rest >> 1
        self.units[register] = max(self.units[register], zeros)

    def plus(self, other: Sums) -> Self:
        """Add what another process has counted."""
        for own, added in ((self.counts, other.counts), (self.values, other.values), (self.squares, other.squares)):
            for at, value in enumerate(added):
                if value:
                    own[at] += value
        self.calls += other.calls
        self.lone += other.lone
        self.units = bytearray(map(max, self.units, other.units))
        return self

    def copy(self) -> Sums:
        """The same once more."""
        copied = Sums()
        copied.counts, copied.values, copied.squares = self.counts[:], self.values[:], self.squares[:]
        copied.calls, copied.lone, copied.units = self.calls, self.lone, bytearray(self.units)
        return copied

    @property
    def unit_count(self) -> int:
        """Of how many units the calls were, to about 3 %."""
        empty = self.units.count(0)
        if empty == _REGISTERS:
            return round(self.lone)
        estimate = _ALPHA * _REGISTERS**2 / sum(2.0**-register for register in self.units)
        if estimate <= 2.5 * _REGISTERS and empty:
            estimate = _REGISTERS * log(_REGISTERS / empty)
        # Units are estimated and calls are counted: there are no more of those than of these.
        return round(min(estimate + self.lone, max(self.calls, 1.0)))

    def of(self, metric: int) -> tuple[array[float], array[float], float]:
        """Counts and sums of a metric's values by bucket, and the sum of their squares."""
        at = slice(metric * BUCKETS, (metric + 1) * BUCKETS)
        return self.counts[at], self.values[at], self.squares[metric]

    def to_bytes(self) -> bytes:
        """As bytes: which metrics have values, and theirs alone."""
        cells = [slice(metric * BUCKETS, (metric + 1) * BUCKETS) for metric in range(_KINDS)]
        used = [metric for metric in range(_KINDS) if any(self.counts[cells[metric]])]
        numbers = array("d", (self.calls, self.lone)) + self.squares
        for metric in used:
            numbers += self.counts[cells[metric]] + self.values[cells[metric]]
        return sum(1 << metric for metric in used).to_bytes(_MASK, "big") + bytes(self.units) + numbers.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` has written. Raises ValueError for anything else."""
        mask = int.from_bytes(data[:_MASK], "big")
        used = [metric for metric in range(_KINDS) if mask >> metric & 1]
        size = _MASK + _REGISTERS + 8 * (2 + _KINDS + 2 * BUCKETS * len(used))
        if mask >> _KINDS or len(data) != size:
            raise ValueError(f"expected {size} bytes of sums, got {len(data)}")
        sums, numbers = cls(), array("d")
        sums.units = bytearray(data[_MASK : _MASK + _REGISTERS])
        numbers.frombytes(data[_MASK + _REGISTERS :])
        if not all(map(isfinite, numbers)):
            raise ValueError("expected finite sums")
        sums.calls, sums.lone, sums.squares = numbers[0], numbers[1], numbers[2 : 2 + _KINDS]
        at = 2 + _KINDS
        for metric in used:
            cells = slice(metric * BUCKETS, (metric + 1) * BUCKETS)
            sums.counts[cells], sums.values[cells] = (
                numbers[at : at + BUCKETS],
                numbers[at + BUCKETS : at + 2 * BUCKETS],
            )
            at += 2 * BUCKETS
        return sums
