"""Everything that can go wrong with each kind of call, compared with the stock client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from typing import Any

import pytest

from tests.faults.running import IN_FULL, QUICK, prepare, run
from tests.faults.table import FAULTS, Cell, applicable, covering

PROCESSES = 6
"""Most cells wait: for pauses between attempts, for timeouts."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every cell with --every-fault, else those that stand for all."""
    if "cell" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--every-fault")
        metafunc.parametrize("cell", applicable() if whole else covering(), ids=str)


def shared(cell: Cell) -> tuple[Any, ...]:
    """Return what cells have in common that share the stock client's call; those that wait come first."""
    return not FAULTS[cell.fault].waits, cell.fault, cell.form, cell.stream, cell.protocol


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[dict[Cell, tuple[Future[Any], int]]]:
    """Run the cells whose tests are selected beside one another."""
    asked: list[Any] = [getattr(item, "callspec", None) for item in request.session.items]
    cells = [each.params["cell"] for each in asked if each is not None and isinstance(each.params.get("cell"), Cell)]
    size = IN_FULL if request.config.getoption("--every-fault") else QUICK
    spawn = get_context("spawn")
    with (
        ProcessPoolExecutor(PROCESSES, spawn, prepare, size) as pool,
        ProcessPoolExecutor(1, spawn, prepare, size) as pool_of_large_ones,
    ):
        found = {}
        for _, group in groupby(sorted(cells, key=shared), shared):
            members = list(group)
            is_large = FAULTS[members[0].fault].is_large
            future = (pool_of_large_ones if is_large else pool).submit(run, members)
            found.update({cell: (future, at) for at, cell in enumerate(members)})
        yield found
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(1_800)
def test_fault_has_the_result_of_the_table(cell: Cell, running: dict[Cell, tuple[Future[Any], int]]) -> None:
    future, at = running[cell]

    assert future.result()[at] == []
