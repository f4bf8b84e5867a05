"""What was run, where, when and how it ended: what every report says of its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from .._formatting import counted, figure, listed
from ..recorded import ArmInfo, Header, RequestMetric
from ._data import Entry, Kind, Line, RunReport, Section, Table
from ._material import Material


def compose(
    material: Material,
    kind: Kind,
    *,
    title: str,
    question: str,
    verdicts: Sequence[Line],
    sections: Sequence[Section],
    metrics: Sequence[RequestMetric],
) -> RunReport:
    """Return a report of one kind with what all kinds have in common: facts, refusals at the top, checks at the end.

    A report of which no figure may be used says why, and has its checks and definitions alone.
    """
    if material.refused_all() is not None:
        verdicts, sections = (), ()
    return RunReport(
        kind=kind,
        title=f"{title}: {material.recorded.header.name}",
        question=question,
        verdicts=(*_refusals(material), *verdicts, *_flags(material)),
        facts=tuple(_facts(material)),
        sections=(*sections, checks_section(material), definitions(metrics)),
    )


def checks_section(material: Material, title: str = "Checks") -> Section:
    """Return the section of the checks."""
    results = material.checked.results
    levels = [f"{count} {level}" for level, count in Counter(each.level for each in results).items()]
    return Section(title=title, parts=(Line(f"{listed(levels) or 'No check was made of this run'}."),), checks=results)


def definitions(metrics: Sequence[RequestMetric]) -> Section:
    """Return what the metrics of a report mean, and its brackets."""
    rows = [(metric.title, metric.meaning) for metric in metrics]
    rows.append(("Brackets", "95 % confidence intervals. Failed requests count as slower than all others."))
    table = Table(
        title="Metrics", columns=("metric", "meaning"), rows=tuple(tuple(map(Entry, row)) for row in rows), names=2
    )
    return Section(title="Definitions", parts=(table,))


def _refusals(material: Material) -> Iterator[Line]:
    if material.refused_all() is not None:
        # The same check says the same of several arms and cells, with other figures.
        why = {each.check: each.sentence.removesuffix(".") for each in reversed(material.checked.refusals())}
        said = "; ".join(f"{check}: {sentence}" for check, sentence in reversed(why.items()))
        yield Line(f"Refused: no figure of this run may be used. {said}. See Checks.", "bad")
        return
    cells: dict[str, list[str]] = {}
    for cell in material.cells:
        refused = material.refused(cell.name)
        if refused is not None:
            cells.setdefault(refused, []).append(cell.name)
            continue
        for arm in material.arms:
            alone = material.refused(cell.name, arm.name)
            if alone is not None:
                cells.setdefault(alone, []).append(f"{cell.name}, {arm.name}")
    for refused, names in cells.items():
        whole = len(names) > 1 and names == [cell.name for cell in material.cells]
        yield Line(f"{'every cell' if whole else ' | '.join(names)}: {refused}; see Checks.", "bad")


def _flags(material: Material) -> Iterator[Line]:
    if material.recorded.ended == "interrupted":
        yield Line("Interrupted: the figures are of what was finished until then.", "warning")
    flagged = list(dict.fromkeys(each.check for each in material.checked.results if each.level == "flagged"))
    if flagged:
        yield Line(f"Flagged: {listed(flagged)}; see Checks.", "warning")


def _facts(material: Material) -> Iterator[tuple[str, str]]:
    recorded, header = material.recorded, material.recorded.header
    workload = "; ".join(material.scenarios) or header.workload
    yield "Provider", header.provider if header.embedded else f"{header.provider}, model {header.model}"
    yield "Workload", f"{workload} ({header.workload_source})" if header.workload_source else workload
    yield from (("", note) for note in dict.fromkeys(header.workload_notes))
    for at, arm in enumerate(material.arms):
        yield "" if at else "Arms", f"{arm.name}: {arm.description}{_role(material, arm)}"
    blocks = len({each.key for each in recorded.measured()})
    yield "Load", f"{_load(material)}; {counted(blocks, 'block')}, each with one request of every arm"
    counts = Counter(sample.part for sample in recorded.samples)
    yield (
        "Requests",
        f"{counts['measured']:,} measured, {counts['warm-up']:,} to warm up, {counts['cold']:,} cold",
    )
    seed = header.settings.get("seed")
    ended = f"{figure(recorded.duration_s)} s, ended: {recorded.ended}"
    yield "Run", ended if seed is None else f"{ended}; seed {seed}"
    yield "Machine", machine_words(header)
    yield "Started", header.started_at or "not known"


def machine_words(header: Header) -> str:
    """Return what a run ran on: "python 3.11.7, cores 2"."""
    return ", ".join(f"{key} {value}" for key, value in header.machine.items() if key != "packages")


def _role(material: Material, arm: ArmInfo) -> str:
    if arm.role == "reference":
        return f", {'a' if material.several_references else 'the'} reference"
    reference = material.recorded.header.reference_of(arm.name).name
    return f", against {reference}" if material.several_references and arm.role == "arm" else ""


def _load(material: Material) -> str:
    """Return the load in words: "closed, 1, 4 and 8 users in turn, 0.1 s between blocks"."""
    cells = material.recorded.header.cells
    load = material.recorded.header.settings.get("load") or {}
    if any(cell.load == "open" for cell in cells):
        rates = listed(dict.fromkeys(f"{cell.rate:g}" for cell in cells if cell.rate is not None))
        return f"open, {rates} blocks a second"
    users = sorted({cell.users for cell in cells if cell.users is not None})
    said = f"closed, {listed(map(str, users))} {'user' if users == [1] else 'users'}"
    said += " in turn" if len(users) > 1 else ""
    arms = len(material.arms)
    if arms > 1 and users:
        each = listed(f"{count / arms:.2g}" for count in users)
        said += f" shared by {arms} arms: an arm has {each} requests in flight in the mean"
    return said + (f", {load['think_s']:g} s between blocks" if load.get("think_s") else "")
