"""Whether the measuring processes kept up, and a cell had the load that its name says."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from .._formatting import percent
from ..recorded import ArmInfo, Cell, Sample, Vitals, metric_named
from ..statistics import percentile
from ._check import Answers, Level, RunView, answer, looks_for
from ._requests import produced

CPU_SHARE: Final = 0.7
"""Of a core. A client's delays were seen to grow steeply beyond: at 100 % openai's reports 857 ms for 50."""
LAG_MS: Final = 2.0
EFFECT_SHARE: Final = 0.1
"""A p99 of lags may be 2 ms, or a tenth of the smallest effect that is claimed if that is less."""
FIGURE_SHARE: Final = 0.1
"""A p99 of lags that is a tenth of the time to first token is a part of the figure."""
IDLE_SHARE: Final = 0.35
"""Of a core. A process that used less was late because the machine kept it waiting now and then."""
_TAILS: Final = (
    ", though it used only {} of a core: the machine kept it waiting now and then. Medians hold, percentiles above p75 "
    "do not; leave the machine alone, or take a larger one"
)
_REMEDY: Final = "spread the lanes over more processes (--processes) or ask for less"


def effect_ms(view: RunView, cell: Cell) -> float | None:
    """Return the smallest effect on a time that the cell's findings claim, in milliseconds; None where none does.

    An effect on the gaps between tokens counts as often as the reference's answers have gaps.
    """
    found = view.of_cell(cell)
    gaps = {
        reference.name: {
            "time_per_output_token": [max(1, tokens - 1) for tokens in produced(view, cell, reference)],
            "inter_token_latency": [max(1, len(sample.token_ns) - 1) for sample in view.answered(cell, reference)],
        }
        for reference in view.recorded.header.references
    }
    claimed = []
    for comparison in found.comparisons if found else ():
        if comparison.copy or comparison.typical is None or comparison.verdict.kind not in ("better", "worse"):
            continue
        figures = found.of(comparison.reference, comparison.metric) if found else None
        if figures is None or figures.mean is None or metric_named(comparison.metric).unit != "ms":
            continue
        times = statistics.median(gaps[comparison.reference].get(comparison.metric) or [1])
        claimed.append(abs(comparison.typical.value - 1) * figures.mean * times)
    return min(claimed, default=None)


def lag_limit_ms(view: RunView, cell: Cell) -> float:
    """Return what a p99 of lags may be: 2 ms, or a tenth of the smallest effect that is claimed."""
    effect = effect_ms(view, cell)
    return LAG_MS if effect is None else min(LAG_MS, EFFECT_SHARE * effect)


@looks_for("client saturated: CPU", "process")
def cpu(_view: RunView, _cell: Cell, arm: ArmInfo | None, vitals: Vitals) -> Answers:
    """Look for processes that used most of a core."""
    busy = vitals.cpu_share > CPU_SHARE
    # The coordinator delays no stamp: only an open load's start, which has its own check.
    level: Level = "passed" if not busy else "flagged" if arm is None else "refused"
    why = f", over {percent(CPU_SHARE)}: its times hold its own work; {_REMEDY}" if busy else ""
    said = f"the process of {_name(arm)} used {percent(vitals.cpu_share)} of a core{why}"
    return answer(level, said)


@looks_for("client saturated: lag", "process")
def lag(view: RunView, cell: Cell, arm: ArmInfo | None, vitals: Vitals) -> Answers:
    """Look for processes whose threads or loops woke late."""
    if vitals.loop_lag_p99_ms is None:
        return answer("not checked", f"the lag of {_name(arm)} was not probed")
    limit = lag_limit_ms(view, cell)
    figure = min(filter(None, (view.time_to_first_token_ms(cell, each) for each in view.arms)), default=None)
    level = _late(vitals.loop_lag_p50_ms, vitals.loop_lag_p99_ms, limit, figure)
    # Late now and then, and idle otherwise: pairs and medians bear that, and what is above p75 does not.
    tails = level == "refused" and (vitals.loop_lag_p50_ms or 0.0) <= limit and vitals.cpu_share < IDLE_SHARE
    return answer(
        "flagged" if arm is None and level == "refused" else level,
        f"what came to the process of {_name(arm)} waited {vitals.loop_lag_p50_ms or 0:.2g} ms (p50) and "
        f"{vitals.loop_lag_p99_ms:.3g} ms (p99) for it, where {limit:.2g} ms are allowed"
        + (_TAILS.format(percent(vitals.cpu_share)) if tails else _lateness(level)),
        tails=tails and arm is not None,
    )


def _late(middle_ms: float | None, p99_ms: float, limit_ms: float, figure_ms: float | None) -> Level:
    """Grade lags: late once in a hundred blurs p99, late every other time or by a tenth of the figure moves it."""
    if p99_ms <= limit_ms:
        return "passed"
    if (middle_ms or 0.0) > limit_ms or p99_ms > FIGURE_SHARE * (figure_ms or math.inf):
        return "refused"
    return "flagged"


def _lateness(level: Level) -> str:
    if level == "refused":
        return f": its times hold its own delay; {_REMEDY}"
    return ": medians hold, p99 and smaller effects do not" if level == "flagged" else ""


@looks_for("client saturated: delivery")
def delivery(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for streams whose chunks had arrived and were delivered late, which shared connections hide from a probe."""
    gaps = [sample.delivery_gap_ms for sample in view.answered(cell, arm) if sample.delivery_gap_ms is not None]
    if not gaps:
        return answer("not checked", f"{arm.name}'s client does not say when chunks arrived")
    # A stream's longest gap is about the p99 of its chunks' gaps.
    limit, middle = lag_limit_ms(view, cell), percentile(gaps, 0.5)
    level = _late(None, middle, limit, view.time_to_first_token_ms(cell, arm))
    return answer(
        level,
        f"the longest wait of an arrived chunk in a stream of {arm.name} is {middle:.3g} ms (median), where "
        f"{limit:.2g} ms are allowed{_lateness(level)}",
    )


@looks_for("dispatch delay")
def dispatch(view: RunView, cell: Cell, arm: ArmInfo) -> Answers:
    """Look for an open load whose requests were sent later than its schedule wanted."""
    if cell.load != "open":
        return None
    delays = [each * 1e3 for sample in view.measured(cell, arm) if (each := sample.dispatch_delay_s) is not None]
    if not delays:
        return answer("not checked", f"no schedule of {arm.name} was recorded")
    limit, late = lag_limit_ms(view, cell), percentile(delays, 0.99)
    level = _late(percentile(delays, 0.5), late, limit, view.time_to_first_token_ms(cell, arm))
    return answer(
        level,
        f"{arm.name}'s requests were sent {late:.3g} ms (p99) after their time, where {limit:.2g} ms are allowed; "
        f"figures count from the time that was meant{_lateness(level)}",
    )


def _name(arm: ArmInfo | None) -> str:
    return "the coordinator" if arm is None else arm.name


USERS_TOLERANCE: Final = 0.2
"""Of the requests in flight on average: lanes that start staggered and end one by one leave some of it idle."""
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
