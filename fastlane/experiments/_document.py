"""What all processes of an experiment share: how it is defined, which arms have ended, and the sums of its calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from ._assignment import Allocation, Interval
from ._metrics import METRICS
from ._sums import Sums
from ._verdicts import Comparison

_VERSION = 1
# Whose batches are remembered, so that none is counted twice: those that wrote last.
_MOST_WRITERS = 512
# After so many calls, limits are set beyond which a value counts as the limit: a mean of values without an end is known
# at no time. Four deviations leave nearly all as it is.
_CALLS_BEFORE_LIMITS, _DEVIATIONS = 100, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedArm:
    """That an arm gets no calls any more, and why."""

    experiment: str
    arm: str
    reason: str
    """In words, without anything of any call."""
    by: str
    """"fuse", "application", or the guard's metric."""
    wall_ns: int
    stage: int
    units: int
    calls: int
    """Of the arm, in that stage."""
    comparisons: tuple[Comparison, ...] = ()
    """What was known by then."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return {**data, "comparisons": [one.to_dict() for one in self.comparisons]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EndedArm:
        """What `to_dict` has made."""
        comparisons = tuple(Comparison.from_dict(one) for one in data["comparisons"])
        return cls(**{name: data[name] for name in cls.__slots__ if name != "comparisons"}, comparisons=comparisons)


@dataclass(slots=True, kw_only=True)
class Document:
    """The shared state, in the hands of one process at a time."""

    definition: Mapping[str, Any]
    """What must be the same in every process: see `_definition`."""
    shares: dict[str, float]
    past: list[dict[str, float]] = field(default_factory=list)
    """Shares of earlier stages, which processes may still be configured with."""
    intervals: tuple[Interval, ...] = ()
    stage: int = 1
    since_wall_ns: int = 0
    """When the stage began."""
    ended: dict[str, EndedArm] = field(default_factory=dict)
    limits: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Of metrics, beyond which a value counts as the limit."""
    writers: dict[str, int] = field(default_factory=dict)
    """The last batch of each process."""
    sums: dict[str, Sums] = field(default_factory=dict)
    """By arm, of this stage."""

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return str(self.definition["arms"][0][0])

    @property
    def allocation(self) -> Allocation:
        """Which units go to which arm."""
        return Allocation(self.reference, self.intervals)

    def sums_of(self, arm: str) -> Sums:
        """Those of an arm."""
        return self.sums.setdefault(arm, Sums())

    def next_stage(self, wall_ns: int) -> None:
        """Count anew: calls from before a change of the shares, and those after it, are not of the same time."""
        self.stage += 1
        self.since_wall_ns = wall_ns
        self.sums = {}
        self.limits = {}

    def ramp(self, shares: Mapping[str, float], wall_ns: int) -> None:
        """Change the shares."""
        self.past.append(self.shares)
        self.shares = dict(shares)
        self.intervals = self.allocation.ramped(shares).intervals
        self.next_stage(wall_ns)

    def count(self, writer: str, batch: int, stage: int, sums: Mapping[str, Sums]) -> None:
        """Add a batch of a process, unless it is there already or of another stage."""
        if self.writers.get(writer, 0) >= batch:
            return
        self.writers.pop(writer, None)
        self.writers[writer] = batch
        while len(self.writers) > _MOST_WRITERS:
            del self.writers[next(iter(self.writers))]
        if stage != self.stage:
            return
        for arm, added in sums.items():
            if arm not in self.ended:
                self.sums_of(arm).plus(added)
        self._set_limits()

    def _set_limits(self) -> None:
        for number, metric in enumerate(METRICS):
            if metric.scale == "share" or number in self.limits:
                continue
            calls = total = squares = 0.0
            for sums in self.sums.values():
                counts, values, square = sums.of(number)
                calls, total, squares = calls + sum(counts), total + sum(values), squares + square
            if calls >= _CALLS_BEFORE_LIMITS:
                mean = total / calls
                reach = _DEVIATIONS * sqrt(max(0.0, squares / calls - mean * mean))
                self.limits[number] = (mean - reach, mean + reach)

    def copy(self) -> Document:
        """One that may be changed."""
        copied = replace(self, shares=dict(self.shares), past=list(self.past), ended=dict(self.ended))
        copied.limits, copied.writers = dict(self.limits), dict(self.writers)
        copied.sums = {arm: sums.copy() for arm, sums in self.sums.items()}
        return copied

    def to_bytes(self) -> bytes:
        """As it is kept."""
        sums = {arm: self.sums[arm].to_bytes() for arm in sorted(self.sums)}
        header = json.dumps(
            {
                "version": _VERSION,
                "byteorder": sys.byteorder,
                "definition": self.definition,
                "shares": self.shares,
                "past": self.past,
                "intervals": self.intervals,
                "stage": self.stage,
                "since_wall_ns": self.since_wall_ns,
                "ended": {arm: one.to_dict() for arm, one in self.ended.items()},
                "limits": [[number, *ends] for number, ends in self.limits.items()],
                "writers": self.writers,
                "sums": [[arm, len(data)] for arm, data in sums.items()],
                "metrics": len(METRICS),
            }
        ).encode()
        return b"".join((len(header).to_bytes(4, "big"), header, *sums.values()))

    @classmethod
    def from_bytes(cls, written: bytes) -> Document:
        """What `to_bytes` has written. Raises ValueError for what cannot be read, whatever is wrong with it."""
        try:
            return cls._from_bytes(written)
        except ValueError:
            raise
        except Exception as error:  # whoever wrote it
            raise ValueError(f"expected the state of an experiment ({type(error).__name__})") from error

    @classmethod
    def _from_bytes(cls, written: bytes) -> Document:
        size = int.from_bytes(written[:4], "big")
        header = json.loads(written[4 : 4 + size])
        if header["version"] != _VERSION or header["byteorder"] != sys.byteorder or header["metrics"] != len(METRICS):
            raise ValueError("expected the state of an experiment of this version of fastlane")
        sums, at = {}, 4 + size
        for arm, length in header["sums"]:
            sums[arm] = Sums.from_bytes(written[at : at + length])
            at += length
        return cls(
            definition=header["definition"],
            shares=header["shares"],
            past=header["past"],
            intervals=tuple((low, high, arm) for low, high, arm in header["intervals"]),
            stage=header["stage"],
            since_wall_ns=header["since_wall_ns"],
            ended={arm: EndedArm.from_dict(one) for arm, one in header["ended"].items()},
            limits={number: (low, high) for number, low, high in header["limits"]},
            writers=header["writers"],
            sums=sums,
        )
