"""Where an arm's time went: the phases of its requests, as means that add up to the mean of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..recorded import RecordedRun, Sample

if TYPE_CHECKING:
    from ...emulator import RequestLog

TITLES: Final[Mapping[str, str]] = {
    "dispatch": "late dispatch",
    "prepare": "client",
    "retries": "earlier attempts",
    "queue": "queue",
    "dns": "DNS",
    "connect": "TCP connect",
    "tls": "TLS",
    "opening": "client and connection",
    "send": "upload",
    "head": "until the head",
    "server": "provider",
    "back": "way back",
    "wait": "head to first token",
    "unsplit": "until the first token",
    "decode": "generation",
}
"""The parts of a request's time in the order in which they pass. A run has those that all its arms can be told by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPhases:
    """One arm's phases in one cell, in the order in which they happen."""

    arm: str
    n: int
    milliseconds: Mapping[str, float]
    """The means of the phases that happened, by their keys in `TITLES`."""

    @property
    def total_ms(self) -> float:
        """The mean API end-to-end of the same requests."""
        return sum(self.milliseconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSources:
    """What all requests of a run can be told by: arms divided in different ways could not be put side by side."""

    records: bool
    """Every client keeps a record of its calls, so that connecting can be taken apart."""
    log: bool
    """The provider's log has every request, with stamps of the same clock."""
    heads: bool
    """Of every request it is known when the answer's head came."""


def phases(recorded: RecordedRun) -> Mapping[str, tuple[ArmPhases, ...]]:
    """Return every arm's phases by cell, without the arms of which no request succeeded.

    All arms of a run are divided into the same phases: by the clients' own records where all keep one, by the
    provider's log where it has every request, and otherwise by what every caller sees.
    """
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in recorded.samples:
        if sample.part == "measured" and sample.error is None and sample.token_ns:
            found.setdefault((sample.cell, sample.arm), []).append(sample)
    log = _answers(recorded.log or ())
    every = [sample for samples in found.values() for sample in samples]
    telling = PhaseSources(
        records=all(_wire(sample) is not None for sample in every),
        log=recorded.log is not None and all(sample.tag in log for sample in every),
        heads=all(sample.response_ns is not None for sample in every),
    )
    way_ns = round(recorded.header.one_way_s * 1e9)
    return {
        cell.name: tuple(
            _means(arm.name, [spent(sample, telling, log.get(sample.tag), way_ns) for sample in samples])
            for arm in recorded.header.arms
            if (samples := found.get((cell.name, arm.name)))
        )
        for cell in recorded.header.cells
    }


def spent(sample: Sample, telling: PhaseSources, entry: RequestLog | None = None, way_ns: int = 0) -> dict[str, int]:
    """Return the nanoseconds of each phase of a request that gave output, from its start to its last output."""
    first = sample.token_ns[0]
    walk = _Walk(sample.started_ns, first)
    walk.to("dispatch", sample.issued_ns)
    wire = _wire(sample)
    logged = entry if telling.log else None
    if telling.records and wire is not None:
        _opening(walk, sample, wire)
    elif logged is not None:
        walk.to("opening", logged.received_ns - way_ns if wire is None else wire["send_started_ns"])
    if logged is not None:
        walk.to("send", logged.body_complete_ns or logged.received_ns)
        walk.to("server", logged.first_token_ns)
        walk.to("back", first)
    elif telling.records and wire is not None:
        walk.to("send", wire.get("send_ended_ns"))
        walk.to("server", first)
    elif telling.heads:
        walk.to("head", sample.response_ns)
        walk.to("wait", first)
    else:
        walk.to("unsplit", first)
    walk.limit = sample.token_ns[-1]
    walk.to("decode", walk.limit)
    return walk.spent


def _opening(walk: _Walk, sample: Sample, wire: Mapping[str, Any]) -> None:
    attempts: Sequence[Mapping[str, Any]] = (sample.call or {})["attempts"]
    walk.to("prepare", attempts[0]["wire"]["started_ns"])
    walk.to("retries", wire["started_ns"])
    for name in ("dns", "connect", "tls"):
        started, ended = wire.get(f"{name}_started_ns"), wire.get(f"{name}_ended_ns")
        if started is not None and ended is not None:
            walk.to("queue", started)
            walk.to(name, ended)
    walk.to("queue", wire["send_started_ns"])


def _means(arm: str, found: Sequence[Mapping[str, int]]) -> ArmPhases:
    totals = {key: sum(each.get(key, 0) for each in found) for key in TITLES}
    return ArmPhases(
        arm=arm, n=len(found), milliseconds={key: total / len(found) / 1e6 for key, total in totals.items() if total}
    )


def _answers(log: Sequence[RequestLog]) -> Mapping[str, RequestLog]:
    # A request that was tried again has several entries: the last one with a token is the answer.
    return {entry.tag: entry for entry in log if entry.tag is not None and entry.first_token_ns is not None}


def _wire(sample: Sample) -> Mapping[str, Any] | None:
    """Return the stamps of the attempt that gave the answer."""
    attempts = (sample.call or {}).get("attempts") or ()
    if not attempts:
        return None
    answered = [each for each in attempts if not each.get("given_up") and not each.get("error")] or attempts
    wire: Mapping[str, Any] = answered[-1]["wire"]
    return wire if wire.get("send_started_ns") is not None else None


class _Walk:
    """Goes through a request's moments in order, and never back: every nanosecond belongs to one phase."""

    def __init__(self, start_ns: int, limit_ns: int) -> None:
        self._at = start_ns
        self.limit = limit_ns
        self.spent: dict[str, int] = {}

    def to(self, name: str, end_ns: int | None) -> None:
        """Count what passed until `end_ns`, and no longer than until the limit, for this phase."""
        if end_ns is not None and (end := min(end_ns, self.limit)) > self._at:
            self.spent[name] = self.spent.get(name, 0) + end - self._at
            self._at = end
