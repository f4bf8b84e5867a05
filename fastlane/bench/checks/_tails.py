"""What is withheld of a cell in which only the tails are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..findings import CellFindings, Figures, Findings, Interval, Quantile
from ._types import Checked

TAIL: Final = 0.75
"""Percentiles above are tails."""


def without_refused_tails(findings: Findings, checked: Checked) -> Findings:
    """Return the findings without the percentiles, and the changes of them, that the checks refuse."""
    cells = tuple(_cell(cell, checked) for cell in findings.cells)
    return findings if cells == findings.cells else replace(findings, cells=cells)


def _cell(found: CellFindings, checked: Checked) -> CellFindings:
    refusals = checked.tail_refusals(found.cell)
    if not refusals:
        return found
    why = refusals[0].check
    return replace(
        found,
        figures=tuple(_figures(each, why) for each in found.figures),
        comparisons=tuple(
            replace(each, quantiles=_medians(each.quantiles), differences=_medians(each.differences))
            for each in found.comparisons
        ),
    )


def _figures(figures: Figures, why: str) -> Figures:
    kept = {share: _withheld(each, why) if share > TAIL else each for share, each in figures.quantiles.items()}
    # A mean, a deviation and a maximum are made by the same few that came late.
    return replace(figures, quantiles=kept, mean=None, deviation=None, maximum=None)


def _withheld(quantile: Quantile, why: str) -> Quantile:
    # One that no n of this run would have bounded is not there for another reason.
    return replace(quantile, value=None, low=None, high=None, withheld=why) if quantile.value is not None else quantile


def _medians(by_share: Mapping[float, Interval]) -> dict[float, Interval]:
    return {share: each for share, each in by_share.items() if share <= TAIL}
