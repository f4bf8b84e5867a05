"""The report of what users get as more of them send at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..recorded import metric_named
from . import _definitions as terms
from ._blocks import Block, Chart, Column, Heading, Paragraph, ReportTable, RunReport, TableCell, VerdictLine
from ._facts import checks_section, compose
from ._material import Material
from ._sweep import (
    arm_column,
    cells_of,
    ends,
    load_column,
    percentiles_by_load,
    place,
    points,
    sweep_row,
)
from ._token_counts import token_counts
from ._words import NOTHING, change, figure, lowered, number_entry, with_unit

_METRICS: Final = ("api_end_to_end", "inter_token_latency", "time_to_first_token", "output_throughput")
_SHARES: Final = (0.25, 0.5, 0.75, 0.95, 0.99)


def load_report(material: Material) -> RunReport:
    """Return the report by number of users, or by rate under an open load."""
    blocks: list[Block] = []
    for scenario in dict.fromkeys(name for name in material.scenarios if cells_of(material, name)):
        blocks += _scenario(material, scenario)
    blocks += [Heading(text="By users"), *_charts(material), *checks_section(material)]
    blocks += [Heading(text="Definitions"), terms.definitions(_METRICS, (terms.INTERVAL, terms.USERS))]
    opened = any(cell.load == "open" for cell in material.cells)
    return compose(
        material,
        "load",
        title="Load",
        question=(
            "What does a request get as more of them come in per second?"
            if opened
            else "What does each user get as more of them send at the same time?"
        ),
        verdicts=list(_verdicts(material)),
        blocks=blocks,
    )


def _scenario(material: Material, scenario: str) -> Iterator[Block]:
    yield Heading(text=scenario)
    yield token_counts(material, scenario)
    if any(cell.caching_forbidden for cell in cells_of(material, scenario)):
        yield Paragraph(
            text="Cache prevention: every prompt is unique from its first line on, so that no provider can read it "
            "from a cache. Whether it did so all the same is among the checks."
        )
    for name in _METRICS:
        yield percentiles_by_load(material, metric_named(name), scenario, _SHARES, f"{name}_{scenario}")
    yield _together(material, scenario)


def _together(material: Material, scenario: str) -> ReportTable:
    rows = []
    for cell in cells_of(material, scenario):
        for arm in material.own_arms:
            found = material.found(cell.name)
            failed = sum(found.errors.get(arm.name, {}).values())
            requests = found.requests.get(arm.name, 0)
            alone = material.figures(cell.name, arm.name, "output_throughput")
            median = alone.quantiles.get(0.5) if alone else None
            entries = (
                number_entry(requests),
                TableCell(text=f"{failed:,}", value=failed, tone="bad" if failed else "plain"),
                NOTHING if median is None else number_entry(median.value, "tokens/s"),
                number_entry(found.throughput.get(arm.name), "tokens/s"),
            )
            rows.append(sweep_row(material, cell, arm.name, entries))
    return ReportTable(
        title="Requests together",
        name=f"together_{scenario}",
        columns=(
            load_column(material),
            *arm_column(material),
            Column(title="requests"),
            Column(title="failed"),
            Column(title="output throughput of a request, p50", unit="tokens/s"),
            Column(title="of the arm", unit="tokens/s"),
        ),
        rows=tuple(rows),
        notes=(
            "Of the arm: output tokens over the seconds in which it had requests in flight.",
            "Arms share the users: with all of them to itself an arm would give more.",
        ),
    )


def _charts(material: Material) -> Iterator[Chart]:
    for name in _METRICS:
        metric = metric_named(name)
        yield Chart(
            name=f"{name}_by_users",
            title=f"{metric.title} ({metric.unit})",
            caption=_caption(material, name),
            refused=material.refused_all(),
        )


def _caption(material: Material, name: str) -> str:
    metric = metric_named(name)
    found = points(material, name)
    if not found:
        return "No cell has enough requests for a p50."
    lowest, highest = min(found, key=lambda each: each.value), max(found, key=lambda each: each.value)
    return (
        f"p50 from {with_unit(lowest.value, metric.unit)} ({place(material, lowest)}) "
        f"to {with_unit(highest.value, metric.unit)} ({place(material, highest)})."
    )


def _verdicts(material: Material) -> Iterator[VerdictLine]:
    for scenario in dict.fromkeys(material.scenarios):
        for arm in material.own_arms:
            said = []
            for name in ("time_to_first_token", "output_throughput"):
                metric = metric_named(name)
                found = points(material, name, scenario, arm.name)
                if found:
                    how_much = f" ({_moved(found[0].value, found[-1].value)})" if len(found) > 1 else ""
                    said.append(f"{lowered(metric.title)} p50 {ends(found, metric.unit)}{how_much}")
            if said:
                name = f"{scenario}, {arm.name}" if len(material.own_arms) > 1 else scenario
                yield VerdictLine(text=f"{name}: {'; '.join(said)}.")


def _moved(first: float, last: float) -> str:
    return change(last / first) if first else figure(last - first)
