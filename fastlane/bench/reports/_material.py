"""What a report is made from: a run, what was found in it, what its checks say, and where the time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from .._formatting import listed
from ..checks import Checked, CheckResult, without_refused_tails
from ..findings import ArmComparison, CellFindings, Figures, Findings, Interval
from ..recorded import ArmInfo, Cell, RecordedRun, RequestMetric, Sample, metric_named

if TYPE_CHECKING:
    from ...emulator import RequestLog

TITLES: Final[Mapping[str, str]] = {
    "dispatch": "late dispatch",
    "prepare": "client",
    "retries": "earlier attempts",
    "queue": "queue",
    "dns": "DNS",
    "connect": "TCP connect",
    "proxy": "proxy",
    "tls": "TLS",
    "opening": "client and connection",
    "send": "upload",
    "head": "until the head",
    "server": "provider",
    "back": "way back",
    "wait": "head to first token",
    "decode": "generation",
}
"""The phases of a request in the order in which they pass. A run has those that are known of all its arms."""
_MOST_NAMED: Final = 2
"""Checks that a row without figures names; the section of the checks has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPhases:
    """One arm's phases in one cell: the means in milliseconds of those that happened, by their keys in `TITLES`."""

    arm: str
    n: int
    milliseconds: Mapping[str, float]

    @property
    def total_ms(self) -> float:
        return sum(self.milliseconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSources:
    """What is known of all requests of a run: arms divided in different ways could not be compared."""

    records: bool
    """Every client keeps a record of its calls, with the steps of connecting."""
    log: bool
    """The provider's log has every request, with stamps of the same clock."""


def phases(recorded: RecordedRun) -> Mapping[str, tuple[ArmPhases, ...]]:
    """Return every arm's phases by cell, without the arms of which no request succeeded.

    All arms are divided alike: by the clients' own records if all keep one, by the provider's log if it has every
    request, and otherwise by what every caller sees.
    """
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in recorded.measured():
        if sample.error is None and sample.token_ns:
            found.setdefault((sample.cell, sample.arm), []).append(sample)
    # Of a request that was retried the last entry with a token is the one that answered it.
    log = {entry.tag: entry for entry in recorded.log or () if entry.first_token_ns is not None}
    every = [sample for samples in found.values() for sample in samples]
    sources = PhaseSources(
        records=all(_wire(sample) is not None for sample in every),
        log=recorded.log is not None and all(sample.tag in log for sample in every),
    )
    one_way_ns = round(recorded.header.one_way_s * 1e9)
    result: dict[str, list[ArmPhases]] = {cell.name: [] for cell in recorded.header.cells}
    order = [arm.name for arm in recorded.header.arms]
    for (cell, arm), samples in sorted(found.items(), key=lambda item: order.index(item[0][1])):
        parts = [spent(sample, sources, log.get(sample.tag), one_way_ns) for sample in samples]
        totals = {key: sum(each.get(key, 0) for each in parts) for key in TITLES}
        means = {key: total / len(parts) / 1e6 for key, total in totals.items() if total}
        result[cell].append(ArmPhases(arm=arm, n=len(parts), milliseconds=means))
    return {cell: tuple(arms) for cell, arms in result.items()}


def spent(sample: Sample, sources: PhaseSources, entry: RequestLog | None = None, way_ns: int = 0) -> dict[str, int]:
    """Return the nanoseconds of each phase of a request with output. They add up, whatever the stamps say."""
    first, last = sample.token_ns[0], sample.token_ns[-1]
    found: dict[str, int] = {}
    at = sample.started_ns
    for name, end_ns in (*_ends(sample, sources, entry, way_ns), ("decode", last)):
        if end_ns is not None and (end := min(end_ns, last if name == "decode" else first)) > at:
            found[name] = found.get(name, 0) + end - at
            at = end
    return found


def _ends(
    sample: Sample, sources: PhaseSources, entry: RequestLog | None, way_ns: int
) -> Iterator[tuple[str, int | None]]:
    first, wire = sample.token_ns[0], _wire(sample)
    logged = entry if sources.log else None
    yield "dispatch", sample.issued_ns
    if sources.records and wire is not None:
        yield "prepare", (sample.call or {})["attempts"][0]["wire"]["started_ns"]
        yield "retries", wire["started_ns"]
        for name in ("dns", "connect", "proxy", "tls"):
            started, ended = wire.get(f"{name}_started_ns"), wire.get(f"{name}_ended_ns")
            if started is not None and ended is not None:
                yield "queue", started
                yield name, ended
        yield "queue", wire["send_started_ns"]
    elif logged is not None:
        yield "opening", logged.received_ns - way_ns if wire is None else wire["send_started_ns"]
    if logged is not None:
        yield "send", logged.body_complete_ns or logged.received_ns
        yield "server", logged.first_token_ns
        yield "back", first
    elif sources.records and wire is not None:
        yield "send", wire.get("send_ended_ns")
        yield "server", first
    else:
        yield "head", sample.response_ns
        yield "wait", first


def _wire(sample: Sample) -> Mapping[str, Any] | None:
    """Return the stamps of the attempt that was answered; None for a client that keeps none."""
    attempts = (sample.call or {}).get("attempts") or ()
    answered = [each for each in attempts if not each.get("given_up") and not each.get("error")] or attempts
    wire: Mapping[str, Any] = answered[-1]["wire"] if answered else {}
    return wire if wire.get("send_started_ns") is not None else None


@dataclass(frozen=True, kw_only=True)
class Material:
    """One run with what was found in it and what its checks say."""

    recorded: RecordedRun
    findings: Findings
    checked: Checked

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", without_refused_tails(self.findings, self.checked))

    # What was run

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell that was begun, by workload, then by users or rate."""
        begun = {found.cell for found in self.findings.cells}
        cells = [cell for cell in self.recorded.header.cells if cell.name in begun]
        order = self.scenarios.index
        return tuple(sorted(cells, key=lambda cell: (order(cell.workload), cell.users or 0, cell.rate or 0.0)))

    @property
    def valid_cells(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if not self.refused(cell.name))

    @property
    def several_cells(self) -> bool:
        return len(self.cells) > 1

    @cached_property
    def scenarios(self) -> tuple[str, ...]:
        """The workloads or lengths that the cells differ by, from the shortest input to the longest."""
        names = {cell.name: cell.workload for cell in self.recorded.header.cells}
        inputs: dict[str, list[int]] = {scenario: [] for scenario in names.values()}
        for sample in self.recorded.measured():
            length = sample.meant_input_tokens if sample.meant_input_tokens is not None else sample.input_tokens
            if length is not None and sample.cell in names:
                inputs[names[sample.cell]].append(length)
        return tuple(sorted(inputs, key=lambda name: round(fmean(inputs[name] or [0]))))

    @cached_property
    def arms(self) -> tuple[ArmInfo, ...]:
        """All arms: each reference, then its copy, then the arms that are compared with it."""
        order = {"reference": 0, "again": 1, "arm": 2}
        at = self.references.index
        return tuple(
            sorted(self.recorded.header.arms, key=lambda arm: (at(self.reference_of(arm.name)), order[arm.role]))
        )

    @property
    def own_arms(self) -> tuple[ArmInfo, ...]:
        """The arms without the references' copies, whose figures say nothing that the references' do not."""
        return tuple(arm for arm in self.arms if arm.role != "again")

    @property
    def compared_arms(self) -> tuple[ArmInfo, ...]:
        return tuple(arm for arm in self.own_arms if arm.name not in self.references)

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.recorded.header.references)

    def reference_of(self, arm: str) -> str:
        return self.recorded.header.reference_of(arm).name

    @property
    def metrics(self) -> tuple[RequestMetric, ...]:
        return tuple(metric_named(name) for name in self.recorded.header.metrics)

    @property
    def blocks(self) -> int:
        return len({sample.key for sample in self.recorded.measured()})

    # What it shows: None if it may not be used

    def found(self, cell: str) -> CellFindings:
        return next(each for each in self.findings.cells if each.cell == cell)

    def figures(self, cell: str, arm: str, metric: str) -> Figures | None:
        return None if self.refused(cell, arm) else self.found(cell).of(arm, metric)

    def median(self, cell: str, arm: str, metric: str) -> Interval | None:
        found = self.figures(cell, arm, metric)
        return None if found is None else found.quantiles[0.5].interval

    def comparison(self, cell: str, arm: str, metric: str) -> ArmComparison | None:
        return None if self.refused(cell, arm) else self.found(cell).comparison(arm, metric)

    def sent(self, cell: str, arm: str) -> Sequence[Sample]:
        """Return an arm's samples that count and may be used."""
        return () if self.refused(cell, arm) else self.recorded.measured(cell, arm)

    def phases(self, cell: str) -> tuple[ArmPhases, ...]:
        return self._phases.get(cell, ())

    @cached_property
    def _phases(self) -> Mapping[str, tuple[ArmPhases, ...]]:
        kept = tuple(each for each in self.recorded.samples if not self.refused(each.cell, each.arm))
        return phases(replace(self.recorded, samples=kept))

    # "invalid: why" for what must not be used

    def refused(self, cell: str, arm: str | None = None) -> str | None:
        """Return why the figures of a cell, or of one arm in it, must not be used."""
        return _invalid(self.checked.refusals(cell, arm))

    def refused_attribution(self, cell: str) -> str | None:
        """Return why an attribution, which is made of all arms, must not be used in a cell."""
        return next((why for arm in self.own_arms if (why := self.refused(cell, arm.name))), None)

    def refused_run(self) -> str | None:
        """Return why no figure of the whole run may be used."""
        return _invalid(each for each in self.checked.refusals() if each.cell is None)

    def refused_all(self, cells: Sequence[Cell] | None = None) -> str | None:
        """Return why none of the cells may be used."""
        shown = self.cells if cells is None else cells
        if not all(self.refused(cell.name) for cell in shown):
            return None
        return _invalid(refusal for cell in shown for refusal in self.checked.refusals(cell.name))

    def refusals(self) -> dict[str, str]:
        """Return one sentence of each check that refused: it says the same of several arms, with other figures."""
        found: dict[str, str] = {}
        for each in self.checked.refusals():
            found.setdefault(each.check, each.sentence)
        return found


def _invalid(refusals: Iterator[CheckResult] | Sequence[CheckResult]) -> str | None:
    names = list(dict.fromkeys(each.check for each in refusals))
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    shown = ", ".join(names[:_MOST_NAMED])
    return f"invalid: {listed([shown, *more])}" if names else None
