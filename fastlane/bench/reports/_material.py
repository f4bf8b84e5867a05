"""What a report is made from: a run, what was found in it, what its checks say, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from .._formatting import listed
from ..checks import Checked, CheckResult, without_refused_tails
from ..findings import ArmComparison, CellFindings, Figures, Findings
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


_MOST_NAMED: Final = 2
"""Checks that the place of a figure names; the section of the checks has all of them."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """One run with what was found in it and what its checks say."""

    recorded: RecordedRun
    findings: Findings
    checked: Checked

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", without_refused_tails(self.findings, self.checked))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell that was begun, by scenario, then by users or rate."""
        begun = {found.cell for found in self.findings.cells}
        scenarios = self.scenarios
        return tuple(
            sorted(
                (cell for cell in self.recorded.header.cells if cell.name in begun),
                key=lambda cell: (scenarios.index(scenario_of(cell)), cell.users or 0, cell.rate or 0.0),
            )
        )

    @cached_property
    def scenarios(self) -> tuple[str, ...]:
        """The workloads or lengths that the cells differ by, from the shortest input to the longest.

        The header has them in the order in which they were run, which was drawn at random.
        """
        inputs: dict[str, list[int]] = {scenario_of(cell): [] for cell in self.recorded.header.cells}
        names = {cell.name: scenario_of(cell) for cell in self.recorded.header.cells}
        for sample in self.recorded.samples:
            length = sample.meant_input_tokens if sample.meant_input_tokens is not None else sample.input_tokens
            if sample.part == "measured" and length is not None and sample.cell in names:
                inputs[names[sample.cell]].append(length)
        means = {name: round(fmean(lengths)) if lengths else 0 for name, lengths in inputs.items()}
        return tuple(sorted(means, key=lambda name: means[name]))

    @property
    def arms(self) -> tuple[ArmInfo, ...]:
        """All arms: each reference, then its copy, then the arms that are compared with it."""
        header = self.recorded.header
        order = {"reference": 0, "again": 1, "arm": 2}
        names = [arm.name for arm in header.references]
        return tuple(
            sorted(header.arms, key=lambda arm: (names.index(header.reference_of(arm.name).name), order[arm.role]))
        )

    @property
    def own_arms(self) -> tuple[ArmInfo, ...]:
        """The arms without the references' copies, whose figures say nothing that the references' do not."""
        return tuple(arm for arm in self.arms if arm.role != "again")

    @property
    def compared_arms(self) -> tuple[ArmInfo, ...]:
        """The arms that are compared with a reference, without the copies."""
        return tuple(arm for arm in self.own_arms if arm not in self.recorded.header.references)

    @property
    def references(self) -> str:
        """The names of the references, as words."""
        return listed([arm.name for arm in self.recorded.header.references])

    @property
    def several_references(self) -> bool:
        """Whether a comparison has to say with which reference it is."""
        return len(self.recorded.header.references) > 1

    def who(self, arm: str) -> str:
        """Return an arm's name, with its reference's where the run has several."""
        return f"{arm} against {self.recorded.header.reference_of(arm).name}" if self.several_references else arm

    @property
    def metrics(self) -> tuple[RequestMetric, ...]:
        """The metrics that the run compares its arms by."""
        return tuple(metric_named(name) for name in self.recorded.header.metrics)

    def found(self, cell: str) -> CellFindings:
        """Return what a cell shows."""
        return next(each for each in self.findings.cells if each.cell == cell)

    def figures(self, cell: str, arm: str, metric: str) -> Figures | None:
        """Return one arm's figures of one metric in one cell; None where they may not be used."""
        return None if self.refused(cell, arm) else self.found(cell).of(arm, metric)

    def comparison(self, cell: str, arm: str, metric: str) -> ArmComparison | None:
        """Return one arm's comparison; None where it may not be used."""
        return None if self.refused(cell, arm) else self.found(cell).comparison(arm, metric)

    def refused(self, cell: str, arm: str | None = None) -> str | None:
        """Return "invalid: why" for a cell, or one arm in it, whose figures must not be used."""
        return _invalid(self.checked.refusals(cell, arm))

    def refused_attribution(self, cell: str) -> str | None:
        """Return "invalid: why" for a cell in which an arm that an attribution is made of must not be used."""
        return next((why for arm in self.own_arms if (why := self.refused(cell, arm.name))), None)

    def refused_run(self) -> str | None:
        """Return "invalid: why" where no figure of the whole run may be used."""
        return _invalid(tuple(each for each in self.checked.refusals() if each.cell is None))

    def refused_all(self, cells: Sequence[Cell] | None = None) -> str | None:
        """Return "invalid: why" where none of the cells may be used: there is nothing to draw or to say of them."""
        shown = self.cells if cells is None else cells
        if not shown or not all(self.refused(cell.name) for cell in shown):
            return None
        return _invalid(tuple(refusal for cell in shown for refusal in self.checked.refusals(cell.name)))

    @property
    def valid_cells(self) -> tuple[Cell, ...]:
        """The cells whose figures may be used."""
        return tuple(cell for cell in self.cells if not self.refused(cell.name))

    @property
    def several_cells(self) -> bool:
        """Whether a row has to say of which cell it is."""
        return len(self.cells) > 1

    @property
    def naming(self) -> tuple[str, ...]:
        """The columns that say of which cell and arm a row is."""
        return ("cell", "arm") if self.several_cells else ("arm",)

    def names(self, cell: Cell, arm: ArmInfo) -> tuple[str, ...]:
        """What stands in these columns."""
        return (cell.name, arm.name) if self.several_cells else (arm.name,)

    def phases(self, cell: str) -> tuple[ArmPhases, ...]:
        """Return where the time of each arm's requests went in a cell."""
        return self._phases.get(cell, ())

    @cached_property
    def _phases(self) -> Mapping[str, tuple[ArmPhases, ...]]:
        kept = tuple(each for each in self.recorded.samples if not self.refused(each.cell, each.arm))
        return phases(replace(self.recorded, samples=kept))

    def sent(self, cell: str, arm: str) -> Sequence[Sample]:
        """Return an arm's samples that count and may be used."""
        return () if self.refused(cell, arm) else self.recorded.measured(cell, arm)


def scenario_of(cell: Cell) -> str:
    """Return what a cell's load was made of: its scenario, or else its workload."""
    return cell.scenario or cell.workload


def _invalid(refusals: tuple[CheckResult, ...]) -> str | None:
    names = list(dict.fromkeys(each.check for each in refusals))
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"invalid: {', '.join(names[:_MOST_NAMED])}{more}"
