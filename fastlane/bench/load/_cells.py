"""The cells of a run: every scenario under every load, in an order drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ..recorded import Cell
from ..workloads import Workload
from ._types import Load, Open


def cells_of(workloads: Sequence[Workload], load: Load, *, seed: int) -> tuple[Cell, ...]:
    """Return the cells in the order in which they are run.

    The order is random, because a provider that becomes slower from minute to minute would otherwise make the later
    loads look like the worse ones.
    """
    found = [cell for workload in workloads for cell in _of_one(workload, load, several=len(workloads) > 1)]
    order = Random(f"{seed}/cells").sample(range(len(found)), len(found))
    return tuple(replace(found[at], order=position) for position, at in enumerate(order))


def _of_one(workload: Workload, load: Load, *, several: bool) -> list[Cell]:
    cell = Cell(
        name=workload.name,
        workload=workload.name,
        scenario=workload.name if several else None,
        caching_forbidden=workload.caching_forbidden,
    )
    if not isinstance(load, Open):
        return [
            replace(cell, name=f"{workload.name}, {users} {'user' if users == 1 else 'users'}", users=users)
            for users in load.users
        ]
    return [replace(cell, name=f"{workload.name}, {rate:g}/s", load="open", rate=rate) for rate in load.rates]
