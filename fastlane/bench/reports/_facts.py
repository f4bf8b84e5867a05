"""What was run, where, when and how it ended: what every report says of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ._blocks import Block, Checks, Fact, Heading, Kind, Paragraph, Report, VerdictLine
from ._material import Material
from ._words import counted, figure, listed, lowered

_SAID: Final = frozenset({"name", "provider", "arms", "workload", "workloads", "metrics", "reference"})
"""Settings that the report says in other places."""


def compose(
    material: Material,
    kind: Kind,
    *,
    title: str,
    question: str,
    verdicts: Sequence[VerdictLine],
    blocks: Sequence[Block],
) -> Report:
    """Return a report of one kind with what all kinds have in common: facts, refusals at the top, checks at the end."""
    return Report(
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


def _refusals(material: Material) -> Iterator[VerdictLine]:
    run = material.refused_run()
    if run is not None:
        yield VerdictLine(text=f"{run}. No figure of this run may be used; see Checks.", tone="bad")
        return
    cells: dict[str, list[str]] = {}
    for cell in material.cells:
        refused = material.refused(cell.name)
        if refused is not None:
            cells.setdefault(refused, []).append(cell.name)
    for refused, names in cells.items():
        which = " | ".join(names) if len(names) < len(material.cells) or len(names) == 1 else "every cell"
        yield VerdictLine(text=f"{which}: {refused}; see Checks.", tone="bad")


def _flags(material: Material) -> Iterator[VerdictLine]:
    flagged = list(dict.fromkeys(each.check for each in material.checked.results if each.level == "flagged"))
    if flagged:
        yield VerdictLine(text=f"Flagged: {listed(flagged)}; see Checks.", tone="warning")


def _facts(material: Material) -> Iterator[Fact]:
    recorded, header = material.recorded, material.recorded.header
    yield Fact(label="Provider", text=header.provider)
    yield Fact(label="Model", text=header.model)
    if header.one_way_s:
        yield Fact(label="Emulated wire", text=f"round trip {figure(header.one_way_s * 2e3)} ms")
    yield Fact(label="Workload", text=_workload(header.workload, header.workload_source))
    for note in dict.fromkeys(header.workload_notes):
        yield Fact(label="", text=note)
    for arm in material.arms:
        role = {"reference": " (reference)", "again": " (the reference once more: A/A)"}.get(arm.role, "")
        yield Fact(label=f"Arm {arm.name}", text=f"{arm.description}{role}")
    for key, value in header.settings.items():
        if key not in _SAID and value is not None and value not in ((), [], {}, ""):
            yield Fact(label=_label(key), text=plain_words(value))
    counts = {part: sum(sample.part == part for sample in recorded.samples) for part in ("measured", "warm-up", "cold")}
    yield Fact(
        label="Requests",
        text=f"{counts['measured']:,} measured, {counts['warm-up']:,} to warm up, {counts['cold']:,} cold",
    )
    yield Fact(label="Started", text=header.started_at or "not known")
    yield Fact(label="Took", text=f"{figure(recorded.duration_s)} s")
    yield Fact(label="Ended", text=recorded.ended)
    for key, value in header.machine.items():
        yield Fact(label=_label(key), text=plain_words(value))


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
            f"{lowered(_label(key))} {plain_words(each)}" for key, each in value.items() if each is not None
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
