"""The first screen of a run: what was compared, what changed and where, how far to trust it, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.text import Text

from .._formatting import (
    change_with_interval,
    counted,
    figure,
    interval,
    listed,
    lowered,
    percent,
    percentile_name,
    signed_figure,
    with_unit,
)
from ..checks import Checked
from ..findings import Findings
from ..recorded import FAILED_ALIKE, ArmInfo, Cell, RecordedRun, RequestMetric
from ..statistics import wanted
from ._ab import band_of, connections, play_name, tone_of, verdict_word
from ._material import TITLES, ArmPhases, Material
from ._tables import Tone

STYLES: Final = {"plain": "", "good": "green", "bad": "bold red", "warning": "yellow", "muted": "dim"}
_WIDTH: Final = 100
_NAME: Final = 25
"""Characters for the name of a row."""
_BAR: Final = 20
_MOST_ROWS: Final = 12
_MOST_PHASES: Final = 3
_MOST_ERRORS: Final = 3
_MOST_FLAGS: Final = 2
_LEAST_MS: Final = 1.0
"""Changes of a phase below this, and below 2 % of the whole request, are put together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmGroup:
    """A reference with the arms that are compared with it."""

    reference: ArmInfo
    arms: tuple[ArmInfo, ...]

    @property
    def kind(self) -> str:
        """Whether the clients are "sync" or "async"."""
        return "async" if "Async" in (self.reference.client or self.reference.description) else "sync"

    @property
    def names(self) -> tuple[str, str]:
        """What the reference and the first arm are called: their clients, or else the arms' names."""
        clients = self.reference.client, self.arms[0].client
        return clients if all(clients) and clients[0] != clients[1] else (self.reference.name, self.arms[0].name)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """One metric of a reference and of an arm, as it is read."""

    title: str
    before: str
    """The reference's p50 with its unit, "-" where there is none."""
    after: str
    change: str = ""
    """With its interval."""
    word: str = ""
    """Such as "faster"."""
    tone: Tone = "plain"


def groups_of(material: Material) -> list[ArmGroup] | None:
    """Return each reference with its one arm; None where the run has several cells, or several arms to a reference."""
    found = [
        ArmGroup(
            reference=reference,
            arms=tuple(
                arm for arm in material.compared_arms if material.recorded.header.reference_of(arm.name) is reference
            ),
        )
        for reference in material.recorded.header.references
    ]
    return found if len(material.cells) == 1 and all(len(group.arms) == 1 for group in found) else None


def changes_of(material: Material, group: ArmGroup) -> list[MetricChange]:
    """Return the metrics of a reference and its one arm."""
    cell, arm = material.cells[0], group.arms[0]
    found = []
    for metric in material.metrics:
        before, after = (_median(material, cell, name, metric) for name in (group.reference.name, arm.name))
        comparison = material.comparison(cell.name, arm.name, metric.name)
        if comparison is None:
            found.append(MetricChange(title=lowered(metric.title), before=before, after=after))
            continue
        word = verdict_word(comparison, metric)
        found.append(
            MetricChange(
                title=lowered(metric.title),
                before=before,
                after=after,
                change="" if comparison.typical is None else change_with_interval(comparison.typical),
                word=f"same (±{percent(material.findings.margin)})" if word == "equivalent" else word,
                tone=tone_of(comparison, band_of(material, cell.name, arm.name, metric.name)),
            )
        )
    return found


def screen(
    recorded: RecordedRun, findings: Findings, checked: Checked, *, folder: Path | None = None, page: bool = False
) -> list[Text]:
    """Return the lines of the first screen. `folder` holds the run's files, and with `page` its report.html."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    groups = groups_of(material)
    lines = [_title(material), Text()]
    refused = material.refused_all()
    if refused is not None:
        lines += _refusal(material)
    elif groups is not None:
        for group in groups:
            lines += _group_lines(material, material.cells[0], group)
            lines.append(Text())
        if all(sample.error is None for sample in recorded.measured()):
            lines += _phase_lines(material, material.cells[0], groups)
    else:
        lines += _grid(material)
    lines += _attribution_lines(material)
    lines += _error_lines(material)
    lines.append(Text())
    if refused is None:
        lines += _trust_lines(material)
    lines += _next_lines(material, folder, page=page)
    return lines


def _title(material: Material) -> Text:
    recorded, header = material.recorded, material.recorded.header
    blocks = len({sample.key for sample in recorded.measured()})
    facts = [
        header.provider,
        "; ".join(material.scenarios) or header.workload,
        counted(blocks, "pair"),
        f"{figure(recorded.duration_s)} s",
    ]
    title = Text.assemble(("fastlane bench", "bold"), "   ", " \N{MIDDLE DOT} ".join(facts))
    if recorded.ended in ("interrupted", FAILED_ALIKE):
        title.append(f" \N{MIDDLE DOT} {recorded.ended}", style=STYLES["bad"])
    return title


def _refusal(material: Material) -> Iterator[Text]:
    why = {each.check: each.sentence for each in reversed(material.checked.refusals())}
    yield Text("No figure of this run may be used:", style=STYLES["bad"])
    for check, sentence in list(reversed(why.items()))[:_MOST_ERRORS]:
        yield Text(f"  {check}: {sentence}", style=STYLES["bad"])


def _group_lines(material: Material, cell: Cell, group: ArmGroup) -> Iterator[Text]:
    """Return the metrics of a reference and the one arm that is compared with it."""
    (arm,) = group.arms
    yield _line(f"{group.kind}, p50", *group.names, "change", style="bold")
    refused = material.refused(cell.name, group.reference.name) or material.refused(cell.name, arm.name)
    if refused is not None:
        yield Text(f"  {refused}", style=STYLES["bad"])
    else:
        for each in changes_of(material, group):
            line = _line(f"  {each.title}", each.before, each.after)
            if each.word:
                line.append(f"  {each.change:<20} ")
                line.append(each.word, style=STYLES[each.tone])
            yield line


def _median(material: Material, cell: Cell, arm: str, metric: RequestMetric) -> str:
    found = material.figures(cell.name, arm, metric.name)
    value = None if found is None else found.quantiles[0.5].value
    return "-" if value is None else with_unit(value, metric.unit)


def _line(name: str, *values: str, style: str = "") -> Text:
    """Return a row: its name, two values to the right, and what follows."""
    columns = "".join(f"{value:>21}" for value in values[:2])
    return Text(f"{name:<{_NAME}}{columns}{''.join('  ' + value for value in values[2:])}", style=style)


def _phase_lines(material: Material, cell: Cell, groups: Sequence[ArmGroup]) -> Iterator[Text]:
    """Return by how much each part of a request became shorter or longer, in the mean."""
    found = {each.arm: each for each in material.phases(cell.name)}
    pairs = [(found[group.reference.name], found[group.arms[0].name], group) for group in groups if _both(found, group)]
    if not pairs:
        return
    changes = [
        {key: ours.milliseconds.get(key, 0.0) - theirs.milliseconds.get(key, 0.0) for key in TITLES}
        for theirs, ours, _ in pairs
    ]
    least = max(_LEAST_MS, 0.02 * max(theirs.total_ms for theirs, _, _ in pairs))
    size = {key: max(abs(change[key]) for change in changes) for key in TITLES}
    largest = sorted((key for key in TITLES if size[key] >= least), key=lambda key: -size[key])[:_MOST_PHASES]
    shown = [key for key in TITLES if key in largest]
    widest = max(size.values()) or 1.0
    kinds = [group.kind for _, _, group in pairs] if len(pairs) > 1 else [""]
    heading = f"{'Where from (mean)':<{_NAME}}" + "".join(f"{kind:>14}" for kind in kinds)
    yield Text(heading, style="bold")
    opened = {key: _opened(material, cell, pairs) for key in shown if key in ("opening", "connect", "tls")}
    for key in shown:
        line = Text(f"{'  ' + TITLES[key]:<{_NAME}}")
        line.append("".join(f"{signed_figure(change[key], 'ms') + ' ms':>14}" for change in changes))
        first = changes[0][key]
        line.append(
            f"   {'#' * round(_BAR * abs(first) / widest):<{_BAR}}", style=STYLES["good" if first < 0 else "bad"]
        )
        line.append(f" {opened.pop(key)}" if key in opened else "", style=STYLES["muted"])
        line.rstrip()
        yield line
    rest = [sum(change[key] for key in TITLES if key not in shown) for change in changes]
    yield Text(f"{'  other parts':<{_NAME}}" + "".join(f"{signed_figure(each, 'ms') + ' ms':>14}" for each in rest))


def _both(found: dict[str, ArmPhases], group: ArmGroup) -> bool:
    return group.reference.name in found and group.arms[0].name in found


def _opened(material: Material, cell: Cell, pairs: Sequence[tuple[ArmPhases, ArmPhases, ArmGroup]]) -> str:
    """Return how many connections the arms opened: "170 -> 0 connections opened"."""
    said = []
    for theirs, ours, _ in pairs:
        counts = [connections(material, material.recorded.measured(cell.name, arm.arm)) for arm in (theirs, ours)]
        if None in counts:
            return ""
        said.append(f"{counts[0]} -> {counts[1]}")
    return f"connections opened {', '.join(said)}"


def _grid(material: Material) -> Iterator[Text]:
    """Return a row for each cell and arm, with each metric's median and change."""
    rows = [(" | ".join(material.names(cell, arm)), cell, arm) for cell in material.cells for arm in material.own_arms]
    name = min(_NAME + 12, max(len(title) for title, _, _ in rows) + 2)
    yield Text(f"{'p50, change':<{name}}" + "".join(f"{metric.title:>28}" for metric in material.metrics), style="bold")
    for title, cell, arm in rows[:_MOST_ROWS]:
        line = Text(f"{title:<{name}}")
        refused = material.refused(cell.name, arm.name)
        if refused is not None:
            line.append(refused, style=STYLES["bad"])
        for metric in material.metrics if refused is None else ():
            comparison = material.comparison(cell.name, arm.name, metric.name)
            size = "" if comparison is None or comparison.typical is None else change_with_interval(comparison.typical)
            tone = "plain" if comparison is None else tone_of(comparison)
            line.append(f"{_median(material, cell, arm.name, metric):>10}")
            line.append(f" {size:>17}", style=STYLES[tone])
        yield line
    if len(rows) > _MOST_ROWS:
        yield Text(f"and {counted(len(rows) - _MOST_ROWS, 'row')} more", style=STYLES["muted"])


def _attribution_lines(material: Material) -> Iterator[Text]:
    for found in material.findings.attributions[:1]:
        if material.refused_attribution(found.cell) is None:
            unit = next(metric.unit for metric in material.metrics if metric.name == found.metric)
            parts = [
                f"{play_name(each.play, found)} {interval(each.share, unit, signed=True)}" for each in found.shares
            ]
            yield Text(f"Part of each play ({unit}): {', '.join(parts)}")


def _error_lines(material: Material) -> Iterator[Text]:
    """Return the provider's own error messages with their counts."""
    measured = material.recorded.measured()
    errors = Counter((each.error, each.error_message or "") for each in measured if each.error is not None)
    if not errors:
        return
    arms = Counter(each.arm for each in measured if each.error is not None)
    whose = ", ".join(f"{arm} {count:,}" for arm, count in arms.most_common(_MOST_ERRORS))
    yield Text(f"Failed: {errors.total():,} of {counted(len(measured), 'request')} ({whose})", style=STYLES["bad"])
    for (error, message), count in errors.most_common(_MOST_ERRORS):
        said = f"  {count:,} x {error}" + (f": {' '.join(message.split())}" if message else "")
        yield Text(said if len(said) <= _WIDTH else f"{said[: _WIDTH - 1]}\N{HORIZONTAL ELLIPSIS}")


def _trust_lines(material: Material) -> Iterator[Text]:
    results = material.checked.results
    counts = {level: sum(each.level == level for each in results) for level in ("passed", "flagged", "refused")}
    said = [f"checks: {', '.join(f'{count} {level}' for level, count in counts.items() if count) or 'none'}"]
    if all(sample.error is None for sample in material.recorded.measured()):
        said.insert(0, "no request failed")
    metric = material.metrics[0]
    bands = [
        band
        for reference in material.recorded.header.references
        for cell in material.valid_cells
        if (band := band_of(material, cell.name, reference.name, metric.name)) is not None
    ]
    if bands:
        said.append(f"equal arms differed by up to {percent(max(bands))}")
    yield Text(f"Trust    {'; '.join(said)}")
    least = min(
        len(material.recorded.measured(cell.name, arm.name)) for cell in material.cells for arm in material.arms
    )
    flagged = list(dict.fromkeys(each.check for each in results if each.level in ("flagged", "refused")))
    if flagged:
        more = [f"{len(flagged) - _MOST_FLAGS} more"] if len(flagged) > _MOST_FLAGS else []
        yield Text(f"         look at: {listed([*flagged[:_MOST_FLAGS], *more])}", style=STYLES["warning"])
    missing = [
        f"{percentile_name(share)} takes {wanted(share)}" for share in (0.5, 0.95, 0.99) if wanted(share) > least
    ]
    if missing:
        yield Text(f"         {', '.join(missing)} requests of each arm, not {least:,}")


def _next_lines(material: Material, folder: Path | None, *, page: bool) -> Iterator[Text]:
    if folder is not None:
        files = f"{folder / 'report.html'}, run.json" if page else str(folder / "run.json")
        yield Text(f"Saved    {files}")
        yield Text(f"More     fastlane bench report {folder} --full")
    if material.recorded.header.embedded:
        yield Text("Yours    fastlane bench run --base-url URL --model NAME")
