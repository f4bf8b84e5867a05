"""Whether the measuring processes kept up: where they did not, their figures are their own and not the provider's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ..recorded import ArmInfo, Cell, metric_named
from ._sight import Check, Sight, percent, quantile, result
from ._tokens import produced
from ._types import CheckResult, Level

CPU_SHARE: Final = 0.7
"""Of a core. A client's delays were seen to grow steeply beyond: at 100 % openai's reports 857 ms for 50."""
LAG_MS: Final = 2.0
EFFECT_SHARE: Final = 0.1
"""A p99 of lags may be 2 ms, or a tenth of the smallest effect that is claimed if that is less."""
FIGURE_SHARE: Final = 0.1
"""A p99 of lags that is a tenth of the time to first token is no blemish of the figure but a part of it."""
IDLE_SHARE: Final = 0.35
"""Of a core. A process that used less was not late by its own work: the machine did not let it run, now and then."""
CAPACITY_SHARE: Final = 0.5
"""Of what the client took in its calibration: chunks that come one by one cost about twice what they cost in bulk."""
QUEUE_SHARE: Final = 0.1
"""Of the time in which a process wanted a core, how long it had to wait for one."""
COLLECTION_SHARE: Final = 0.05

CPU: Final = "client saturated: CPU"
LAG: Final = "client saturated: lag"
GAP: Final = "client saturated: delivery"
CAPACITY: Final = "client saturated: capacity"
DISPATCH: Final = "dispatch delay"
QUEUE: Final = "run-queue delay"
COLLECTOR: Final = "garbage collector"

_TAILS: Final = (
    ", though it used only {} of a core: the machine kept it waiting now and then. Medians hold, percentiles above p75 "
    "do not; leave the machine alone, or take a larger one"
)
_REMEDY: Final = "spread the lanes over more processes (--processes) or ask for less"


def effect_ms(sight: Sight, cell: Cell) -> float | None:
    """Return the smallest effect on a time that the cell's findings claim, in milliseconds; None where none does.

    A lag moves a stamp. A time per token lies between two stamps that are a whole answer apart, so that a change of it
    counts as often as the reference's answers have gaps.
    """
    found = sight.of_cell(cell)
    gaps = {
        reference.name: {
            "time_per_output_token": [max(1, tokens - 1) for tokens in produced(sight, cell, reference)],
            "inter_token_latency": [max(1, len(sample.token_ns) - 1) for sample in sight.answered(cell, reference)],
        }
        for reference in sight.recorded.header.references
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


def lag_limit_ms(sight: Sight, cell: Cell) -> float:
    """Return what a p99 of lags may be: 2 ms, or a tenth of the smallest effect that is claimed."""
    effect = effect_ms(sight, cell)
    return LAG_MS if effect is None else min(LAG_MS, EFFECT_SHARE * effect)


def cpu(sight: Sight) -> Iterator[CheckResult]:
    """Look for processes that used most of a core."""
    for cell, arm in _processes(sight):
        for vitals in sight.vitals(cell, arm):
            busy = vitals.cpu_share > CPU_SHARE
            # The one that hands out requests delays no stamp: only an open load's start, which has its own check.
            level: Level = "passed" if not busy else "flagged" if arm is None else "refused"
            yield result(
                CPU,
                level,
                f"the process of {_name(arm)} used {percent(vitals.cpu_share)} of a core"
                + (f", over {percent(CPU_SHARE)}: its times hold its own work; {_REMEDY}" if busy else ""),
                cell=cell,
                arm=arm,
                cpu_share=vitals.cpu_share,
                shard=vitals.shard,
            )


def lag(sight: Sight) -> Iterator[CheckResult]:
    """Look for processes whose threads or loops woke late."""
    for cell, arm in _processes(sight):
        limit = lag_limit_ms(sight, cell)
        figure = min(filter(None, (sight.time_to_first_token_ms(cell, each) for each in sight.arms)), default=None)
        for vitals in sight.vitals(cell, arm):
            if vitals.loop_lag_p99_ms is None:
                yield result(LAG, "not checked", f"the lag of {_name(arm)} was not probed", cell=cell, arm=arm)
                continue
            level = _late(vitals.loop_lag_p50_ms, vitals.loop_lag_p99_ms, limit, figure)
            # Late now and then, and idle otherwise: pairs and medians bear that, and what is above p75 does not.
            tails = level == "refused" and (vitals.loop_lag_p50_ms or 0.0) <= limit and vitals.cpu_share < IDLE_SHARE
            found = result(
                LAG,
                "flagged" if arm is None and level == "refused" else level,
                f"what came to the process of {_name(arm)} waited {vitals.loop_lag_p50_ms or 0:.2g} ms (p50) and "
                f"{vitals.loop_lag_p99_ms:.3g} ms (p99) for it, where {limit:.2g} ms are allowed"
                + (_TAILS.format(percent(vitals.cpu_share)) if tails else _lateness(level)),
                cell=cell,
                arm=arm,
                p50_ms=vitals.loop_lag_p50_ms,
                p99_ms=vitals.loop_lag_p99_ms,
                limit_ms=limit,
                cpu_share=vitals.cpu_share,
            )
            yield replace(found, tails=tails and arm is not None)


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


def delivery(sight: Sight) -> Iterator[CheckResult]:
    """Look for streams whose chunks had arrived and were delivered late, which shared connections hide from a probe."""
    for cell in sight.recorded.header.cells:
        limit = lag_limit_ms(sight, cell)
        for arm in sight.arms:
            gaps = [
                sample.delivery_gap_ms for sample in sight.answered(cell, arm) if sample.delivery_gap_ms is not None
            ]
            if not gaps:
                yield result(
                    GAP, "not checked", f"{arm.name}'s client does not say when chunks arrived", cell=cell, arm=arm
                )
                continue
            # A stream's longest gap is about the p99 of its chunks' gaps.
            middle = quantile(gaps, 0.5)
            level = _late(None, middle, limit, sight.time_to_first_token_ms(cell, arm))
            yield result(
                GAP,
                level,
                f"the longest wait of an arrived chunk in a stream of {arm.name} is {middle:.3g} ms (median), where "
                f"{limit:.2g} ms are allowed" + _lateness(level),
                cell=cell,
                arm=arm,
                longest_gap_p50_ms=middle,
                longest_gap_p99_ms=quantile(gaps, 0.99),
                limit_ms=limit,
            )


def capacity(sight: Sight) -> Iterator[CheckResult]:
    """Look for clients that got more chunks per second than half of what they were seen to take."""
    for cell in sight.recorded.header.cells:
        for arm in sight.arms:
            for vitals in sight.vitals(cell, arm):
                if not vitals.capacity_chunks_per_s:
                    yield result(CAPACITY, "not checked", f"{arm.name} was not calibrated", cell=cell, arm=arm)
                    continue
                share = vitals.peak_chunks_per_s / vitals.capacity_chunks_per_s
                above = share > CAPACITY_SHARE
                yield result(
                    CAPACITY,
                    "refused" if above else "passed",
                    f"{arm.name} got {vitals.peak_chunks_per_s:,.0f} chunks in its busiest second, {percent(share)} of "
                    f"the {vitals.capacity_chunks_per_s:,.0f} that its client took in calibration"
                    + (f", over {percent(CAPACITY_SHARE)}: {_REMEDY}" if above else ""),
                    cell=cell,
                    arm=arm,
                    share=share,
                    shard=vitals.shard,
                )


def dispatch(sight: Sight) -> Iterator[CheckResult]:
    """Look for an open load whose requests were sent later than its schedule wanted."""
    for cell in sight.recorded.header.cells:
        if cell.load != "open":
            continue
        limit = lag_limit_ms(sight, cell)
        for arm in sight.arms:
            delays = [
                each * 1e3 for sample in sight.measured(cell, arm) if (each := sample.dispatch_delay_s) is not None
            ]
            if not delays:
                yield result(DISPATCH, "not checked", f"no schedule of {arm.name} was recorded", cell=cell, arm=arm)
                continue
            late = quantile(delays, 0.99)
            level = _late(quantile(delays, 0.5), late, limit, sight.time_to_first_token_ms(cell, arm))
            yield result(
                DISPATCH,
                level,
                f"{arm.name}'s requests were sent {late:.3g} ms (p99) after their time, where {limit:.2g} ms are "
                "allowed; figures count from the time that was meant" + _lateness(level),
                cell=cell,
                arm=arm,
                p99_ms=late,
                limit_ms=limit,
            )


def run_queue(sight: Sight) -> Iterator[CheckResult]:
    """Look for processes that waited for a core which something else had."""
    for cell, arm in _processes(sight):
        for vitals in sight.vitals(cell, arm):
            waited = vitals.run_queue_delay_s
            if waited is None:
                yield result(QUEUE, "not checked", "the system does not say who waits for a core", cell=cell, arm=arm)
                continue
            wanted = vitals.cpu_s + waited
            share = waited / wanted if wanted else 0.0
            busy = share > QUEUE_SHARE
            yield result(
                QUEUE,
                "flagged" if busy else "passed",
                f"the process of {_name(arm)} waited for a core in {percent(share)} of the time in which it wanted one"
                + (_sharing(sight) if busy else ""),
                cell=cell,
                arm=arm,
                share=share,
                run_queue_delay_s=waited,
            )


def _sharing(sight: Sight) -> str:
    """Return who shares the cores: the bench's own processes first of all."""
    header = sight.recorded.header
    shards = header.settings.get("processes", 1)
    own = (len(header.arms) + 1) * shards + (shards > 1) + header.embedded
    cores = header.machine.get("cores")
    where = f"{cores} cores" if cores else "the cores"
    return (
        f": the bench itself is {own} processes, which share {where} with each other and with whatever else runs; use "
        "fewer arms or more cores, and leave the machine alone"
    )


def collector(sight: Sight) -> Iterator[CheckResult]:
    """Look for pauses of the garbage collector."""
    for cell in sight.recorded.header.cells:
        limit = lag_limit_ms(sight, cell)
        for arm in sight.arms:
            for vitals in sight.vitals(cell, arm):
                if vitals.longest_collection_ms is None or not vitals.duration_s:
                    yield result(
                        COLLECTOR, "not checked", f"{arm.name}'s collector was not watched", cell=cell, arm=arm
                    )
                    continue
                share = (vitals.collections_s or 0.0) / vitals.duration_s
                long = share > COLLECTION_SHARE or vitals.longest_collection_ms > limit
                yield result(
                    COLLECTOR,
                    "flagged" if long else "passed",
                    f"the garbage collector of {arm.name} took {percent(share)} of the time, "
                    f"{vitals.longest_collection_ms:.3g} ms at the longest"
                    + (": what came meanwhile was stamped late" if long else ""),
                    cell=cell,
                    arm=arm,
                    share=share,
                    longest_ms=vitals.longest_collection_ms,
                )


def _processes(sight: Sight) -> Iterator[tuple[Cell, ArmInfo | None]]:
    for cell in sight.recorded.header.cells:
        yield cell, None
        yield from ((cell, arm) for arm in sight.arms)


def _name(arm: ArmInfo | None) -> str:
    return "the coordinator" if arm is None else arm.name


CHECKS: Final = (
    Check(name=CPU, line="A measuring process that used over 70 % of a core.", look=cpu),
    Check(name=LAG, line="Threads or loops that woke late: p99 against 2 ms and the effect claimed.", look=lag),
    Check(name=GAP, line="Chunks that had arrived and were delivered late, stream by stream.", look=delivery),
    Check(name=CAPACITY, line="Chunks per second above half of the client's calibrated capacity.", look=capacity),
    Check(name=DISPATCH, line="Requests of an open load that were sent after their time.", look=dispatch),
    Check(name=QUEUE, line="Time in which a measuring process waited for a core.", look=run_queue),
    Check(name=COLLECTOR, line="Pauses of the garbage collector.", look=collector),
)
