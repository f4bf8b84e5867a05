"""Whether the measuring processes kept up: where they did not, the figures hold their own delay."""

from __future__ import annotations

import math
import statistics
from typing import Final

from .._formatting import percent
from ..recorded import ArmInfo, Cell, Vitals, metric_named
from ..statistics import percentile
from ._answers import produced
from ._check import Answers, RunView, answer, looks_for
from ._types import Level

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
