"""Whether a cell had the load that its name says, enough requests, and its place among its neighbours."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ..recorded import Cell, Sample, metric_named
from ._sight import Check, Sight, result
from ._types import CheckResult

USERS_TOLERANCE: Final = 0.2
"""Of the requests in flight on average: lanes that start staggered and end one by one leave some of it idle."""
RATE_TOLERANCE: Final = 0.1
"""Of the rate, beyond what chance does to a Poisson schedule (three standard errors, 3 / sqrt(n))."""
NEIGHBOUR_TOLERANCE: Final = 0.25
"""A cell that lies a quarter above both of its neighbours, or below, is a moment in time and no load: in a load report
of gpt-4.1-nano one cell of a sweep in order stood at 1.37 s between 0.50 s and 0.53 s."""
FEWEST_FOR_NEIGHBOURS: Final = 10
WANTED_N: Final = {0.95: 72, 0.99: 368}
"""From which n on there is a 95 % interval for a quantile by order statistics: all n values lie below the quantile with
the chance share ** n, which is no more than 2.5 % from there."""

USERS: Final = "achieved concurrency"
RATE: Final = "achieved rate"
NEIGHBOURS: Final = "out of line in a sweep"
SIZE: Final = "enough requests"


def achieved_users(sight: Sight) -> Iterator[CheckResult]:
    """Look for a closed load with more or fewer requests in flight than its users."""
    load = sight.recorded.header.settings.get("load")
    think_s = float(load.get("think_s") or 0.0) if isinstance(load, Mapping) else 0.0
    for cell in sight.recorded.header.cells:
        samples = [sample for arm in sight.arms for sample in sight.measured(cell, arm)]
        if cell.load != "closed" or not cell.users or not samples:
            continue
        most, mean, busy = _in_flight(samples, think_s)
        wanted = cell.users * busy
        if most > cell.users:
            yield result(
                USERS,
                "refused",
                f"{most} requests were in flight at once, where {cell.users} users have one each: the load is not the "
                "one that the cell is named for; record again",
                cell=cell,
                most=most,
                mean=mean,
                wanted_mean=wanted,
            )
        elif mean < (1 - USERS_TOLERANCE) * wanted:
            yield result(
                USERS,
                "flagged",
                f"{mean:.3g} requests were in flight on average, where {cell.users} users with their pauses make "
                f"{wanted:.3g}: let the cell run longer, or see what holds the lanes up",
                cell=cell,
                most=most,
                mean=mean,
                wanted_mean=wanted,
            )
        else:
            yield result(
                USERS,
                "passed",
                f"{mean:.3g} requests were in flight on average, {most} at most",
                cell=cell,
                most=most,
                mean=mean,
                wanted_mean=wanted,
            )


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


def achieved_rate(sight: Sight) -> Iterator[CheckResult]:
    """Look for an open load whose requests were sent less or more often than it says."""
    for cell in sight.recorded.header.cells:
        if cell.load != "open" or not cell.rate:
            continue
        for arm in sight.arms:
            shards: dict[int, list[int]] = defaultdict(list)
            for sample in sight.measured(cell, arm):
                shards[sample.shard].append(sample.issued_ns)
            rates = [
                (len(issued) - 1) * 1e9 / (max(issued) - min(issued))
                for issued in shards.values()
                if len(issued) > 1 and max(issued) > min(issued)
            ]
            if not rates:
                yield result(RATE, "not checked", f"too few requests of {arm.name} for a rate", cell=cell, arm=arm)
                continue
            n = sum(map(len, shards.values()))
            share = sum(rates) / cell.rate
            off = abs(share - 1) > RATE_TOLERANCE + (3 / math.sqrt(n) if cell.arrivals != "constant" else 0.0)
            yield result(
                RATE,
                "refused" if off else "passed",
                f"{arm.name} sent {sum(rates):.3g} requests per second of the {cell.rate:.3g} that were asked for"
                + (
                    ": the load is not the one that the cell is named for; use more processes or a lower rate"
                    if off
                    else ""
                ),
                cell=cell,
                arm=arm,
                share=share,
            )


def in_line(sight: Sight) -> Iterator[CheckResult]:
    """Look for cells of a sweep that stand above both of their neighbours, or below."""
    sweeps: dict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in sight.recorded.header.cells:
        sweeps[cell.workload, cell.scenario, cell.load, cell.arrivals].append(cell)
    for sweep in sweeps.values():
        ordered = sorted(sweep, key=lambda cell: cell.users or cell.rate or 0.0)
        for before, cell, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
            for arm in sight.arms:
                for what in ("time_to_first_token", "time_per_output_token"):
                    metric = metric_named(what)
                    series = [
                        [each for sample in sight.answered(one, arm) if (each := metric.value(sample))]
                        for one in (before, cell, after)
                    ]
                    if min(map(len, series)) < FEWEST_FOR_NEIGHBOURS:
                        continue
                    low, middle, high = map(statistics.median, series)
                    above = middle > max(low, high) * (1 + NEIGHBOUR_TOLERANCE)
                    below = middle < min(low, high) / (1 + NEIGHBOUR_TOLERANCE)
                    if above or below:
                        yield result(
                            NEIGHBOURS,
                            "flagged",
                            f"{arm.name}'s {metric.title.lower()} is {middle:,.4g} ms (median) between {low:,.4g} ms "
                            f"at {before.name} and {high:,.4g} ms at {after.name}: load does not do that, a moment "
                            "in time does; run this cell again",
                            cell=cell,
                            arm=arm,
                            metric=what,
                            median_ms=middle,
                        )
                        break
                else:
                    yield result(NEIGHBOURS, "passed", "it lies in line with its neighbours", cell=cell, arm=arm)


def enough(sight: Sight) -> Iterator[CheckResult]:
    """Look for cells with too few requests for the percentiles that readers look for."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            n = len(sight.measured(cell, arm))
            missing = [f"p{share * 100:g} wants {wanted}" for share, wanted in WANTED_N.items() if n < wanted]
            yield result(
                SIZE,
                "flagged" if n < WANTED_N[0.95] else "passed",
                f"{arm.name} has {n} requests"
                + (f": {', '.join(missing)}, and is not given without; run longer for it" if missing else ""),
                cell=cell,
                arm=arm,
                n=n,
            )


CHECKS: Final = (
    Check(name=USERS, line="Requests in flight against the users of a closed load.", look=achieved_users),
    Check(name=RATE, line="Requests per second against the rate of an open load.", look=achieved_rate),
    Check(name=NEIGHBOURS, line="A cell far from both of its neighbours in a sweep.", look=in_line),
    Check(name=SIZE, line="Enough requests for p95 and p99.", look=enough),
)
