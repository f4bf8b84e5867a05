"""What is withheld of arms of which only the tails are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..findings import CellFindings, Figures, Findings, Quantile
from ._types import Checked, CheckResult

TAIL: Final = 0.75
"""Percentiles above are tails."""


def without_refused_tails(findings: Findings, checked: Checked) -> Findings:
    """Return the findings without the percentiles, and the changes of them, that the checks refuse."""
    cells = tuple(_cell(cell, checked) for cell in findings.cells)
    return findings if cells == findings.cells else replace(findings, cells=cells)


def _cell(found: CellFindings, checked: Checked) -> CellFindings:
    return replace(
        found,
        figures=tuple(_figures(each, checked.tail_refusals(found.cell, each.arm)) for each in found.figures),
        comparisons=tuple(
            replace(each, quantiles={share: ratio for share, ratio in each.quantiles.items() if share <= TAIL})
            if checked.tail_refusals(found.cell, each.arm, each.reference)
            else each
            for each in found.comparisons
        ),
    )


def _figures(figures: Figures, refusals: Sequence[CheckResult]) -> Figures:
    if not refusals:
        return figures
    why = refusals[0].check
    kept = {share: _withheld(each, why) if share > TAIL else each for share, each in figures.quantiles.items()}
    # A mean, a deviation and a maximum are made by the same few that came late.
    return replace(figures, quantiles=kept, mean=None, deviation=None, maximum=None)


def _withheld(quantile: Quantile, why: str) -> Quantile:
    # One that no n of this run would have bounded is not there for another reason.
    return replace(quantile, value=None, low=None, high=None, withheld=why) if quantile.value is not None else quantile
