"""What was run, where, when and how it ended: what every report says of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._formatting import counted, figure, listed, lowered
from ..recorded import ArmInfo
from ._blocks import Block, Checks, Heading, Kind, Paragraph, RunFact, RunReport
from ._material import Material


def compose(
    material: Material,
    kind: Kind,
    *,
    title: str,
    question: str,
    verdicts: Sequence[Paragraph],
    blocks: Sequence[Block],
) -> RunReport:
    """Return a report of one kind with what all kinds have in common: facts, refusals at the top, checks at the end.

    A report of which no figure may be used says why, and has its checks and definitions alone.
    """
    if material.refused_all() is not None:
        verdicts, blocks = (), blocks[blocks.index(Heading(text="Checks")) :]
    return RunReport(
        kind=kind,
        title=f"{title}: {material.recorded.header.name}",
        question=question,
        verdicts=(*_refusals(material), *verdicts, *_flags(material)),
        facts=tuple(_facts(material)),
        blocks=tuple(blocks),
    )


def checks_section(material: Material) -> tuple[Block, ...]:
    """Return the section of the checks."""
    results = material.checked.results
    counts = {level: sum(each.level == level for each in results) for level in ("refused", "flagged", "passed")}
    if not results:
        return (Heading(text="Checks"), Paragraph(text="No check was made of this run.", tone="warning"))
    said = f"{counts['passed']} passed, {counts['flagged']} flagged, {counts['refused']} refused."
    unchecked = len(results) - sum(counts.values())
    if unchecked:
        said += f" {counted(unchecked, 'check')} had nothing to go by."
    return (Heading(text="Checks"), Paragraph(text=said), Checks(results=results))


def _refusals(material: Material) -> Iterator[Paragraph]:
    if material.refused_all() is not None:
        # The same check says the same of several arms and cells, with other figures.
        why = {each.check: each.sentence.removesuffix(".") for each in reversed(material.checked.refusals())}
        said = "; ".join(f"{check}: {sentence}" for check, sentence in reversed(why.items()))
        yield Paragraph(text=f"Refused: no figure of this run may be used. {said}. See Checks.", tone="bad")
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
        whole = {cell.name for cell in material.cells} <= set(names) and len(names) > 1
        which = "every cell" if whole else " | ".join(names)
        yield Paragraph(text=f"{which}: {refused}; see Checks.", tone="bad")


def _flags(material: Material) -> Iterator[Paragraph]:
    if material.recorded.ended == "interrupted":
        yield Paragraph(text="Interrupted: the figures are of what was finished until then.", tone="warning")
    flagged = list(dict.fromkeys(each.check for each in material.checked.results if each.level == "flagged"))
    if flagged:
        yield Paragraph(text=f"Flagged: {listed(flagged)}; see Checks.", tone="warning")


def _facts(material: Material) -> Iterator[RunFact]:
    recorded, header = material.recorded, material.recorded.header
    yield RunFact(label="Provider", text=header.provider)
    if not header.embedded:
        yield RunFact(label="Model", text=header.model)
    yield RunFact(
        label="Workload", text=_workload("; ".join(material.scenarios) or header.workload, header.workload_source)
    )
    for note in dict.fromkeys(header.workload_notes):
        yield RunFact(label="", text=note)
    for number, arm in enumerate(material.arms):
        yield RunFact(label="" if number else "Arms", text=f"{arm.name}: {_client(material, arm)}")
    counts = {part: sum(sample.part == part for sample in recorded.samples) for part in ("measured", "warm-up", "cold")}
    blocks = len({(each.cell, each.shard, each.lane, each.block) for each in recorded.measured()})
    yield RunFact(
        label="Load", text=f"{_load(material)}; {counted(blocks, 'block')}, each with one request of every arm"
    )
    ended, seed = f"{figure(recorded.duration_s)} s, ended: {recorded.ended}", header.settings.get("seed")
    yield RunFact(label="Run", text=f"{ended}; seed {seed}" if seed is not None else ended)
    machine = {key: value for key, value in header.machine.items() if key != "packages"}
    yield RunFact(label="Machine", text=plain_words(machine))
    yield RunFact(
        label="Requests",
        text=f"{counts['measured']:,} measured, {counts['warm-up']:,} to warm up, {counts['cold']:,} cold",
    )
    yield RunFact(label="Started", text=header.started_at or "not known")


def _client(material: Material, arm: ArmInfo) -> str:
    reference = material.recorded.header.reference_of(arm.name).name
    if arm.role == "again":
        return f"{reference} once more (A/A), what the bench itself sways by"
    if arm.role == "reference":
        return f"{arm.description}, {'a' if material.several_references else 'the'} reference"
    return arm.description + (f", against {reference}" if material.several_references else "")


def _load(material: Material) -> str:
    """Return the load in words: "closed, 1, 4 and 8 users in turn, 0.1 s between blocks"."""
    cells = material.recorded.header.cells
    load = material.recorded.header.settings.get("load")
    load = load if isinstance(load, Mapping) else {}
    if any(cell.load == "open" for cell in cells):
        rates = listed(dict.fromkeys(f"{cell.rate:g}" for cell in cells if cell.rate is not None))
        arrivals = load.get("arrivals")
        return f"open, {rates} blocks a second" + (f", {arrivals} arrivals" if arrivals else "")
    users = sorted({cell.users for cell in cells if cell.users is not None})
    said = f"closed, {listed(map(str, users))} {'user' if users == [1] else 'users'}"
    said += " in turn" if len(users) > 1 else ""
    arms = len(material.arms)
    if arms > 1 and users:
        each = listed(f"{count / arms:.2g}" for count in users)
        said += f" shared by {arms} arms: an arm has {each} requests in flight in the mean"
    return said + (f", {load['think_s']:g} s between blocks" if load.get("think_s") else "")


def _workload(name: str, source: str) -> str:
    return f"{name} ({source})" if source else name


def _label(key: object) -> str:
    name = str(key)
    words = name.removesuffix("_s").replace("_", " ")
    return f"{words[:1].upper()}{words[1:]}{' (s)' if name.endswith('_s') else ''}"


def plain_words(value: Any) -> str:
    """Return plain data as words: "python 3.11.7, cores 2"."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{lowered(_label(key))} {plain_words(each)}"
            for key, each in value.items()
            if each is not None and each != ""
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_words, value))
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
