"""Where an arm's time went: the phases of its requests, as means that add up to the mean of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ..recorded import Recorded, Sample

if TYPE_CHECKING:
    from ...emulator import RequestLog

_BY_LOG: Final = (
    ("connect and dispatch", "from the start until the provider has the request's head"),
    ("upload", "until the provider has the whole body"),
    ("provider", "until the provider sends the first token"),
    ("way back", "until the caller has the first token"),
    ("generation", "until the caller has the last one"),
)
_BY_CALLER: Final = (
    ("until the head", "from the start until the caller has the head of the answer"),
    ("head to first token", "until the caller has the first token"),
    ("generation", "until the caller has the last one"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a request's time."""

    name: str
    meaning: str
    milliseconds: float
    """Mean over the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPhases:
    """One arm's phases in one cell, in the order in which they happen."""

    arm: str
    n: int
    phases: tuple[Phase, ...]

    @property
    def total_ms(self) -> float:
        """The mean API end-to-end of the same requests."""
        return sum(phase.milliseconds for phase in self.phases)


def phases(recorded: Recorded, cell: str) -> tuple[ArmPhases, ...]:
    """Return every arm's phases in a cell, without the arms of which no request succeeded.

    With the provider's own log the wait is divided into the ways and the provider's part, for all arms or for none.
    """
    samples = {
        arm.name: [each for each in recorded.measured(cell, arm.name) if each.error is None and each.token_ns]
        for arm in recorded.header.arms
    }
    log = _answers(recorded.log or ())
    stamps = {
        arm: {sample.tag: found for sample in sent if (found := _by_log(sample, log.get(sample.tag))) is not None}
        for arm, sent in samples.items()
    }
    logged = recorded.log is not None and all(len(stamps[arm]) == len(sent) for arm, sent in samples.items())
    names = _BY_LOG if logged else _BY_CALLER
    result = []
    for arm, sent in samples.items():
        rows = list(stamps[arm].values()) if logged else [_by_caller(sample) for sample in sent]
        known = [row for row in rows if row is not None]
        if known:
            means = [sum(row[at] for row in known) / len(known) for at in range(len(names))]
            each = tuple(
                Phase(name=name, meaning=meaning, milliseconds=mean)
                for (name, meaning), mean in zip(names, means, strict=True)
            )
            result.append(ArmPhases(arm=arm, n=len(known), phases=each))
    return tuple(result)


def _answers(log: Sequence[RequestLog]) -> Mapping[str, RequestLog]:
    # A request that was tried again has several entries: the last one with a token is the answer.
    return {entry.tag: entry for entry in log if entry.tag is not None and entry.first_token_ns is not None}


def _by_log(sample: Sample, entry: RequestLog | None) -> tuple[float, ...] | None:
    if entry is None or entry.first_token_ns is None:
        return None
    body = entry.body_complete_ns or entry.received_ns
    moments = (
        sample.started_ns,
        entry.received_ns,
        body,
        max(body, entry.first_token_ns),
        sample.token_ns[0],
        sample.token_ns[-1],
    )
    return _lengths(moments)


def _by_caller(sample: Sample) -> tuple[float, ...] | None:
    if sample.response_ns is None:
        return None
    return _lengths((sample.started_ns, sample.response_ns, sample.token_ns[0], sample.token_ns[-1]))


def _lengths(moments: Sequence[int]) -> tuple[float, ...]:
    return tuple((after - before) / 1e6 for before, after in pairwise(moments))
