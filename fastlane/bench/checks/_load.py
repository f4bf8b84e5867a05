"""Whether a cell had the load that its name says, and lies in line with its neighbours."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ..recorded import ArmInfo, Cell, Sample, metric_named
from ._check import Answers, RunView, answer, looks_for

USERS_TOLERANCE: Final = 0.2
"""Of the requests in flight on average: lanes that start staggered and end one by one leave some of it idle."""
RATE_TOLERANCE: Final = 0.1
"""Of the rate, beyond what chance does to a Poisson schedule (three standard errors, 3 / sqrt(n))."""
NEIGHBOUR_TOLERANCE: Final = 0.25
"""A cell that lies a quarter above both of its neighbours, or below: in a load report of gpt-4.1-nano one cell of a
sweep in order stood at 1.37 s between 0.50 s and 0.53 s."""
FEWEST_FOR_NEIGHBOURS: Final = 10


@looks_for("achieved concurrency", "cell")
def achieved_users(view: RunView, cell: Cell) -> Answers:
    """Look for a closed load with more or fewer requests in flight than its users."""
    load = view.recorded.header.settings.get("load")
    think_s = float(load.get("think_s") or 0.0) if isinstance(load, Mapping) else 0.0
    samples = [sample for arm in view.arms for sample in view.measured(cell, arm)]
    if cell.load != "closed" or not cell.users or not samples:
        return None
    most, mean, busy = _in_flight(samples, think_s)
    wanted = cell.users * busy
    if most > cell.users:
        said = f"{most} requests were in flight at once, where {cell.users} users have one each; record again"
        return answer("refused", said)
    said = f"{mean:.3g} requests were in flight on average, "
    if mean < (1 - USERS_TOLERANCE) * wanted:
        said += (
            f"where {cell.users} users with their pauses make {wanted:.3g}: let the cell run longer, or see what holds "
            "the lanes up"
        )
        return answer("flagged", said)
    return answer("passed", f"{said}{most} at most")


def _in_flight(samples: Sequence[Sample], think_s: float) -> tuple[int, float, float]:
    """Return the most and the mean of requests in flight, and the share of time in which a user should have one.

    Stamps of different shards are never compared: what each of them had is added up.
    """
    most, mean, busy = 0, 0.0, []
    shards: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        shards[sample.shard].append(sample)
    for own in shards.values():
        events = sorted([(each.issued_ns, 1) for each in own] + [(each.ended_ns, -1) for each in own])
        now = highest = 0
        for _, change in events:
            now += change
            highest = max(highest, now)
        most += highest
        # The middle of the cell: lanes begin staggered, and end when their last block does.
        begun, ended = events[0][0], events[-1][0]
        low, high = begun + (ended - begun) // 10, ended - (ended - begun) // 10
        inside = sum(max(0, min(each.ended_ns, high) - max(each.issued_ns, low)) for each in own)
        mean += inside / max(1, high - low)
        blocks: dict[tuple[int, int], int] = defaultdict(int)
        for each in own:
            blocks[each.lane, each.block] += each.ended_ns - each.issued_ns
        busy += [spent / (spent + think_s * 1e9) for spent in blocks.values() if spent]
    return most, mean, statistics.fmean(busy) if busy else 0.0


@looks_for("achieved rate")
def achieved_rate(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for an open load whose requests were sent less or more often than it says."""
    if cell.load != "open" or not cell.rate:
        return None
    shards: dict[int, list[int]] = defaultdict(list)
    for sample in view.measured(cell, arm):
        shards[sample.shard].append(sample.issued_ns)
    rates = [
        (len(issued) - 1) * 1e9 / (max(issued) - min(issued))
        for issued in shards.values()
        if len(issued) > 1 and max(issued) > min(issued)
    ]
    if not rates:
        return answer("not checked", f"too few requests of {arm.name} for a rate")
    share = sum(rates) / cell.rate
    chance = 3 / math.sqrt(sum(map(len, shards.values())))
    off = abs(share - 1) > RATE_TOLERANCE + chance
    return answer(
        "refused" if off else "passed",
        f"{arm.name} sent {sum(rates):.3g} requests per second of the {cell.rate:.3g} that were asked for"
        + ("; use more processes or a lower rate" if off else ""),
    )


@looks_for("out of line in a sweep")
def in_line(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for cells of a sweep that stand above both of their neighbours, or below."""
    kind = (cell.workload, cell.scenario, cell.load)
    sweep = [each for each in view.recorded.header.cells if (each.workload, each.scenario, each.load) == kind]
    sweep.sort(key=lambda each: each.users or each.rate or 0.0)
    at = sweep.index(cell)
    if not 0 < at < len(sweep) - 1:
        return None
    for what in ("time_to_first_token", "time_per_output_token"):
        metric = metric_named(what)
        series = [
            [each for sample in view.answered(one, arm) if (each := metric.value(sample))]
            for one in sweep[at - 1 : at + 2]
        ]
        if min(map(len, series)) < FEWEST_FOR_NEIGHBOURS:
            continue
        low, middle, high = map(statistics.median, series)
        if middle > max(low, high) * (1 + NEIGHBOUR_TOLERANCE) or middle < min(low, high) / (1 + NEIGHBOUR_TOLERANCE):
            return answer(
                "flagged",
                f"{arm.name}'s {metric.title.lower()} is {middle:,.4g} ms (median) between {low:,.4g} ms at "
                f"{sweep[at - 1].name} and {high:,.4g} ms at {sweep[at + 1].name}, which load does not explain; run "
                "this cell again",
            )
    return answer("passed", "it lies in line with its neighbours")
