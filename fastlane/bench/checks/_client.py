"""Whether the measuring processes kept up."""

from __future__ import annotations

import math
import statistics
from typing import Final

from .._formatting import percent
from ..recorded import Vitals, metric_named
from ..statistics import percentile
from ._check import ArmView, CellView, Level, Outcome, looks_for

CPU_SHARE: Final = 0.7
"""Of a core. A client's delays were seen to grow steeply beyond: at 100 % openai's reports 857 ms for 50."""
FIGURE_SHARE: Final = 0.1
"""A p99 of lags that is a tenth of the time to first token is a part of the figure."""
IDLE_SHARE: Final = 0.35
_TAILS: Final = (
    ", though it used only {} of a core: the machine kept it waiting now and then. Medians hold, percentiles above p75 "
    "do not; leave the machine alone, or take a larger one"
)
_REMEDY: Final = "spread the lanes over more processes (--processes) or ask for less"
_LATENESS: Final = {
    "refused": f": its times hold its own delay; {_REMEDY}",
    "flagged": ": medians hold, p99 and smaller effects do not",
}


@looks_for("client saturated: CPU", "process")
def cpu(_view: CellView, arm: str | None, vitals: Vitals) -> Outcome:
    said = f"the process of {arm or 'the coordinator'} used {percent(vitals.cpu_share)} of a core"
    if vitals.cpu_share <= CPU_SHARE:
        return Outcome("passed", said)
    # The coordinator delays no stamp: only an open load's start, which has its own check.
    level: Level = "flagged" if arm is None else "refused"
    return Outcome(level, f"{said}, over {percent(CPU_SHARE)}: its times hold its own work; {_REMEDY}")


@looks_for("client saturated: lag", "process")
def lag(view: CellView, arm: str | None, vitals: Vitals) -> Outcome:
    whose, middle, p99 = arm or "the coordinator", vitals.loop_lag_p50_ms or 0.0, vitals.loop_lag_p99_ms
    if p99 is None:
        return Outcome("not checked", f"the lag of {whose} was not probed")
    limit = view.lag_limit_ms
    figure = min(filter(None, (each.time_to_first_token_ms for each in view.arms)), default=None)
    level = _late(middle, p99, limit, figure)
    # Late now and then, and idle otherwise: pairs and medians bear that, and what is above p75 does not.
    tails = level == "refused" and middle <= limit and vitals.cpu_share < IDLE_SHARE
    why = _TAILS.format(percent(vitals.cpu_share)) if tails else _LATENESS.get(level, "")
    return Outcome(
        "flagged" if arm is None and level == "refused" else level,
        f"what came to the process of {whose} waited {middle:.2g} ms (p50) and {p99:.3g} ms (p99) for it, where "
        f"{limit:.2g} ms are allowed{why}",
        tails=tails and arm is not None,
    )


def _late(middle_ms: float, p99_ms: float, limit_ms: float, figure_ms: float | None) -> Level:
    """Grade lags: late once in a hundred blurs p99, late every other time or by a tenth of the figure moves it."""
    if p99_ms <= limit_ms:
        return "passed"
    return "refused" if middle_ms > limit_ms or p99_ms > FIGURE_SHARE * (figure_ms or math.inf) else "flagged"


@looks_for("client saturated: delivery")
def delivery(arm: ArmView) -> Outcome:
    gaps = [sample.delivery_gap_ms for sample in arm.answered if sample.delivery_gap_ms is not None]
    if not gaps:
        return Outcome("not checked", f"{arm.name}'s client does not say when chunks arrived")
    # A stream's longest gap is about the p99 of its chunks' gaps.
    limit, middle = arm.of.lag_limit_ms, percentile(gaps, 0.5)
    level = _late(0.0, middle, limit, arm.time_to_first_token_ms)
    return Outcome(
        level,
        f"the longest wait of an arrived chunk in a stream of {arm.name} is {middle:.3g} ms (median), where "
        f"{limit:.2g} ms are allowed{_LATENESS.get(level, '')}",
    )


@looks_for("dispatch delay")
def dispatch(arm: ArmView) -> Outcome | None:
    if arm.cell.load != "open":
        return None
    delays = [each * 1e3 for sample in arm.samples if (each := sample.dispatch_delay_s) is not None]
    if not delays:
        return Outcome("not checked", f"no schedule of {arm.name} was recorded")
    limit, p99 = arm.of.lag_limit_ms, percentile(delays, 0.99)
    level = _late(percentile(delays, 0.5), p99, limit, arm.time_to_first_token_ms)
    return Outcome(
        level,
        f"{arm.name}'s requests were sent {p99:.3g} ms (p99) after their time, where {limit:.2g} ms are allowed; "
        f"figures count from the time that was meant{_LATENESS.get(level, '')}",
    )


NEIGHBOUR_TOLERANCE: Final = 1.25
"""A cell that lies a quarter above both of its neighbours, or below: in a load report of gpt-4.1-nano one cell of a
sweep in order stood at 1.37 s between 0.50 s and 0.53 s."""
FEWEST_FOR_NEIGHBOURS: Final = 10


@looks_for("out of line in a sweep")
def in_line(arm: ArmView) -> Outcome | None:
    recorded, cell = arm.of.recorded, arm.cell
    kind = (cell.workload, cell.scenario, cell.load)
    sweep = [each for each in recorded.header.cells if (each.workload, each.scenario, each.load) == kind]
    sweep.sort(key=lambda each: each.users or each.rate or 0.0)
    at = sweep.index(cell)
    if not 0 < at < len(sweep) - 1:
        return None
    views = [ArmView(CellView(recorded, each), arm.arm) for each in sweep[at - 1 : at + 2]]
    for metric in map(metric_named, ("time_to_first_token", "time_per_output_token")):
        series = [[each for sample in view.answered if (each := metric.value(sample))] for view in views]
        if min(map(len, series)) < FEWEST_FOR_NEIGHBOURS:
            continue
        low, middle, high = map(statistics.median, series)
        if not min(low, high) / NEIGHBOUR_TOLERANCE <= middle <= max(low, high) * NEIGHBOUR_TOLERANCE:
            return Outcome(
                "flagged",
                f"{arm.name}'s {metric.title.lower()} is {middle:,.4g} ms (median) between {low:,.4g} ms at "
                f"{sweep[at - 1].name} and {high:,.4g} ms at {sweep[at + 1].name}, which load does not explain; run "
                "this cell again",
            )
    return Outcome("passed", "it lies in line with its neighbours")
