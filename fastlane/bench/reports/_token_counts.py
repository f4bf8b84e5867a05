"""How long a scenario's prompts and answers were: as they were meant, and as the provider counted them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from ..recorded import Sample
from ._blocks import Column, ReportTable, TableCell, TableRow
from ._material import Material
from ._sweep import cells_of
from ._words import NOTHING, counted, figure, label


def token_counts(material: Material, scenario: str) -> ReportTable:
    """Return range, mean and deviation of a scenario's input and output tokens, meant and seen."""
    cells = cells_of(material, scenario)
    refused = material.refused_all(cells)
    names = {cell.name for cell in cells}
    all_samples = [each for each in material.recorded.samples if each.part == "measured" and each.cell in names]
    valid = {cell.name for cell in cells if not material.refused(cell.name)}
    seen = [each for each in all_samples if each.error is None and not material.refused(each.cell, each.arm)]
    meant = {
        "input, as meant": _given(all_samples, lambda sample: sample.meant_input_tokens),
        "output, at least": _given(all_samples, lambda sample: sample.least_output_tokens),
        "output, at most": _given(all_samples, lambda sample: sample.asked_output_tokens),
    }
    counted_by_provider = {
        "input, as seen": _given(seen, lambda sample: sample.input_tokens),
        "output, as seen": _given(seen, lambda sample: sample.output_tokens),
    }
    rows = [_row(name, values) for name, values in meant.items()]
    rows += [
        TableRow(entries=(label(name),), refused=refused) if refused else _row(name, values)
        for name, values in counted_by_provider.items()
    ]
    left_out = len(cells) - len(valid)
    note = f"As seen: of {counted(len(seen), 'request')} that succeeded, by the provider's usage"
    note += f", without {counted(left_out, 'invalid cell')}." if left_out else "."
    return ReportTable(
        title="Test configuration",
        name=f"configuration_{scenario}",
        columns=(
            Column(title="tokens", alignment="left"),
            Column(title="lowest"),
            Column(title="highest"),
            Column(title="mean ± deviation"),
        ),
        rows=tuple(rows),
        notes=() if refused else (note,),
    )


def _row(name: str, values: Sequence[int]) -> TableRow:
    return TableRow(entries=(label(name), _lowest(values), _highest(values), _mean(values)))


def _given(samples: Sequence[Sample], count: Callable[[Sample], int | None]) -> list[int]:
    return [value for sample in samples if (value := count(sample)) is not None]


def _lowest(values: Sequence[int]) -> TableCell:
    return TableCell(text=f"{min(values):,}", value=min(values)) if values else NOTHING


def _highest(values: Sequence[int]) -> TableCell:
    return TableCell(text=f"{max(values):,}", value=max(values)) if values else NOTHING


def _mean(values: Sequence[int]) -> TableCell:
    if not values:
        return NOTHING
    mean = fmean(values)
    spread = f" ± {figure(stdev(values))}" if len(values) > 1 else ""
    return TableCell(text=f"{figure(mean)}{spread}", value=mean)
