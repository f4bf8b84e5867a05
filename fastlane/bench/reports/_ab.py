"""The report that puts arms beside each other: which is faster, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .._formatting import change, counted, listed, lowered, percent, percentile_name
from ..checks import CONNECTIONS
from ..findings import ArmComparison
from ..recorded import ArmInfo, Cell, RequestMetric
from ._ab_details import attribution_blocks, cold_blocks, phases_blocks, work_blocks
from ._blocks import Block, Chart, Column, Heading, Paragraph, ReportTable, RunReport, TableCell, Tone
from ._cells import NOTHING, label, number_entry, ratio_entry
from ._definitions import definitions
from ._facts import checks_section, compose
from ._material import Material
from ._tables import Statistic, arm_table, statistic_cells, statistic_columns, without_empty

_STATISTICS: Final[tuple[Statistic, ...]] = ("n", "failed", "mean", 0.5, 0.9, 0.95, 0.99)
_RATIO_SHARES: Final = (0.5, 0.95)


def ab_report(material: Material) -> RunReport:
    """Return the report of arms beside each other."""
    names = listed([lowered(metric.title) for metric in material.metrics])
    others = listed([arm.name for arm in material.compared_arms], "or") or "a copy of it"
    against = material.references + (", each its counterpart" if material.several_references else "")
    blocks: list[Block] = [
        Heading(text="What changed"),
        Chart(name="forest", title="Change against the reference; in grey, what two equal arms show"),
    ]
    for metric in material.metrics:
        blocks += _metric_blocks(material, metric)
    blocks += [*phases_blocks(material), *attribution_blocks(material), *cold_blocks(material), *work_blocks(material)]
    further = ["change", "verdicts", "could have shown"] if len(material.arms) > 1 else []
    further += ["phases"] if any(material.phases(cell.name) for cell in material.valid_cells) else []
    further += ["cold"] if material.findings.cold else []
    further += ["noise"] if material.recorded.header.copies else []
    further += ["attribution"] if material.findings.attributions else []
    used = [metric.name for metric in material.metrics]
    blocks += [*checks_section(material), Heading(text="Definitions"), definitions(*used, "intervals", *further)]
    return compose(
        material,
        "ab",
        title="A/B",
        question=f"Does {others} change {names} against {against}, and by how much?",
        verdicts=[*_verdicts(material), *_instrument(material), *_reopened(material)],
        blocks=blocks,
    )


def verdict_sentence(who: str, comparison: ArmComparison, metric: RequestMetric, band: float | None) -> str:
    """Return a comparison in words: "encoding: time to first token faster by 31 % [27, 35], 240 pairs"."""
    colon = ":" if comparison.verdict.kind in ("no difference shown", "too few pairs") else ""
    said = f"{who}: {lowered(metric.title)}{colon} {comparison.verdict.sentence}"
    shown = comparison.typical if comparison.verdict.kind in ("better", "worse") else None
    pairs = counted(comparison.pairs, "pair")
    said += f" ({pairs})" if shown is None else f", {pairs}"
    if shown is not None and within(comparison, band):
        said += f"; no more than the instrument's own noise of ±{percent(band or 0.0)}"
    return said


def band_of(material: Material, cell: str, arm: str, metric: str) -> float | None:
    """Return by how much, as a share, the copy of an arm's reference may differ from it; None where not known."""
    again = material.recorded.header.again_of(arm)
    comparison = material.comparison(cell, again.name, metric) if again else None
    if comparison is None or comparison.typical is None:
        return None
    low, high = comparison.typical.low, comparison.typical.high
    return None if low is None or high is None else max(abs(1 - low), abs(high - 1))


def within(comparison: ArmComparison, band: float | None) -> bool:
    """Whether a change is no larger than what the instrument shows between two arms that are the same."""
    return band is not None and comparison.typical is not None and abs(comparison.typical.value - 1) <= band


def tone_of(comparison: ArmComparison, band: float | None = None) -> Tone:
    """Return how a verdict is meant; a difference that the instrument may have made itself is none to be glad of."""
    if comparison.verdict.kind in ("better", "worse") and within(comparison, band):
        return "warning"
    tones: dict[str, Tone] = {"better": "good", "worse": "bad", "not comparable": "warning"}
    return tones.get(comparison.verdict.kind, "plain")


def verdict_word(comparison: ArmComparison, metric: RequestMetric) -> str:
    """Return a verdict in a word or two: "faster", "no difference shown"."""
    return {"better": metric.words[0], "worse": metric.words[1]}.get(comparison.verdict.kind, comparison.verdict.kind)


def _verdicts(material: Material) -> Iterator[Paragraph]:
    for arm in material.compared_arms:
        for metric in material.metrics:
            if material.several_cells:
                yield from _over_cells(material, arm.name, metric)
                continue
            for cell in material.valid_cells:
                comparison = material.comparison(cell.name, arm.name, metric.name)
                if comparison is not None:
                    band = band_of(material, cell.name, arm.name, metric.name)
                    yield Paragraph(
                        text=verdict_sentence(material.who(arm.name), comparison, metric, band),
                        tone=tone_of(comparison, band),
                    )


def _over_cells(material: Material, arm: str, metric: RequestMetric) -> Iterator[Paragraph]:
    found = [
        comparison
        for cell in material.valid_cells
        if (comparison := material.comparison(cell.name, arm, metric.name)) is not None
    ]
    said = []
    for word in dict.fromkeys(verdict_word(each, metric) for each in found):
        alike = [each for each in found if verdict_word(each, metric) == word]
        changes = [each.typical.value for each in alike if each.typical is not None]
        how_much = ""
        if alike[0].verdict.kind in ("better", "worse") and changes:
            low, high = change(min(changes)), change(max(changes))
            how_much = f" ({low})" if low == high else f" ({low} to {high})"
        said.append(f"{word} in {len(alike)} of {counted(len(found), 'cell')}{how_much}")
    if said:
        tones = {tone_of(each, band_of(material, each.cell, arm, metric.name)) for each in found}
        yield Paragraph(
            text=f"{material.who(arm)}: {lowered(metric.title)} {listed(said)}",
            tone=tones.pop() if len(tones) == 1 else "plain",
        )


def _instrument(material: Material) -> Iterator[Paragraph]:
    if not material.recorded.header.copies:
        yield Paragraph(text="Instrument noise: not known, for the run had no second copy of the reference (A/A).")
        return
    for reference in material.recorded.header.references:
        bands = {}
        for metric in material.metrics:
            found = [band_of(material, cell.name, reference.name, metric.name) for cell in material.valid_cells]
            known = [band for band in found if band is not None]
            if known:
                bands[lowered(metric.title)] = max(known)
        if bands:
            which = f", {reference.name}" if material.several_references else ""
            where = ", the widest of its cells" if material.several_cells else ""
            said = ", ".join(f"{title} ±{percent(band)}" for title, band in bands.items())
            yield Paragraph(text=f"Instrument noise (A/A{which}){where}: {said}", tone="muted")


def _reopened(material: Material) -> Iterator[Paragraph]:
    """Return how often each reference opened a connection, and why, where the checks flag one of them."""
    references = {arm.name for arm in material.recorded.header.references}
    for cell in material.valid_cells:
        found = [
            each
            for each in material.checked.results
            if (each.check, each.cell) == (CONNECTIONS, cell.name) and each.arm in references
        ]
        if any(each.level == "flagged" for each in found):
            where = f" in {cell.name}" if material.several_cells else ""
            said = ". ".join(each.sentence for each in found)
            yield Paragraph(text=f"Connections{where}: {said}.", tone="warning")


def _metric_blocks(material: Material, metric: RequestMetric) -> Iterator[Block]:
    yield Heading(text=metric.title, level=3)
    yield _values(material, metric)
    if len(material.arms) > 1:
        yield _comparisons(material, metric)
    most = "that took at most this long" if metric.unit == "ms" else "with at most this"
    yield Chart(
        name=f"{metric.name}_distribution",
        title=f"{metric.title}: the share of requests {most}",
    )


def _values(material: Material, metric: RequestMetric) -> ReportTable:
    return arm_table(
        material,
        f"{metric.title} of each arm",
        metric.name,
        material.naming,
        statistic_columns(_STATISTICS, metric.unit),
        lambda cell, arm: material.names(cell, arm.name),
        lambda cell, arm: statistic_cells(material.figures(cell.name, arm.name, metric.name), _STATISTICS, metric.unit),
        arms=material.arms,
    )


def _comparisons(material: Material, metric: RequestMetric) -> ReportTable:
    header, several = material.recorded.header, material.several_references

    def names(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        against = (label(header.reference_of(arm.name).name),) if several else ()
        return (*material.names(cell, arm.name), *against)

    def figures(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        comparison = material.comparison(cell.name, arm.name, metric.name)
        if comparison is None:
            return (NOTHING,) * (len(_RATIO_SHARES) + 5)
        return _comparison_entries(comparison, metric, band_of(material, cell.name, arm.name, metric.name))

    table = arm_table(
        material,
        f"{metric.title} against {material.references}",
        f"{metric.name}_change",
        (*material.naming, *((Column(title="against", alignment="left"),) if several else ())),
        (
            Column(title="pairs"),
            Column(title="typical change"),
            *(Column(title=f"change of {percentile_name(share)}") for share in _RATIO_SHARES),
            Column(title="verdict", alignment="left"),
            Column(title="could have shown"),
            Column(title="more pairs"),
        ),
        names,
        figures,
        arms=[arm for arm in material.arms if arm not in header.references],
    )
    return without_empty(table)


def _comparison_entries(comparison: ArmComparison, metric: RequestMetric, band: float | None) -> tuple[TableCell, ...]:
    verdict = comparison.verdict
    word = verdict_word(comparison, metric)
    smallest = NOTHING
    if verdict.smallest_effect is not None:
        smallest = TableCell(text=f"±{percent(verdict.smallest_effect)}", value=verdict.smallest_effect)
    return (
        number_entry(comparison.pairs),
        ratio_entry(comparison.typical),
        *(ratio_entry(comparison.quantiles.get(share)) for share in _RATIO_SHARES),
        TableCell(text=f"{word} (A/A)" if comparison.copy else word, value=word, tone=tone_of(comparison, band)),
        smallest,
        number_entry(verdict.more_pairs),
    )
