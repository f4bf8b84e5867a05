"""The covering part of the fault matrix: every fault, and of each family every pair of dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.covering import covering, family, pairs
from tests.faults.judging import Verdict
from tests.faults.running import run, units
from tests.faults.table import FAULTS, Cell, all_cells, applicable, why_not

LARGE_BYTES = 4_000_000
"""In place of a hundred megabytes, which CI has no time for."""


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> dict[Cell, Verdict]:
    """Of the cells whose tests are run, all beside one another."""
    asked: list[Any] = [getattr(item, "callspec", None) for item in request.session.items]
    cells = {each.params.get("cell") for each in asked if each is not None}
    return run({cell for cell in cells if isinstance(cell, Cell)}, large_bytes=LARGE_BYTES, quick=True, processes=8)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cell", covering(), ids=str)
def test_a_fault_ends_as_the_table_says(cell: Cell, verdicts: dict[Cell, Verdict]) -> None:
    assert verdicts[cell].problems == []
    assert verdicts[cell].verdict in ("same", "better")


def test_the_covering_part_has_every_pair_that_any_cell_has() -> None:
    def of(cells: list[Cell]) -> set[tuple[str, object]]:
        return {(family(cell), pair) for cell in cells for pair in pairs(cell)}

    assert of(covering()) == of(applicable())
    assert len(covering()) < len(applicable()) / 5


def test_every_cell_is_run_or_has_a_reason() -> None:
    cells = all_cells()

    assert len(cells) == len(set(cells)) == len(FAULTS) * 24
    assert {cell for cell in cells if why_not(FAULTS[cell.fault], cell) is None} == set(applicable())
    assert {cell for unit in units(applicable()) for cell in unit} == set(applicable())
