"""The first screen of a run: what was compared, what changed and where, how far to trust it, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

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
from ..recorded import FAILED_ALIKE, ArmInfo, RecordedRun, RequestMetric
from ..statistics import wanted
from ._material import TITLES, ArmPhases, Material
from ._sections import band_of, connections, play_name, tone_of, verdict_word
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


class ArmGroup(NamedTuple):
    """A reference and the one arm that is compared with it."""

    reference: ArmInfo
    arm: ArmInfo

    @property
    def kind(self) -> str:
        """Whether the clients are "sync" or "async"."""
        return "async" if "Async" in (self.reference.client or self.reference.description) else "sync"

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called: their clients, or else the arms' names."""
        clients = self.reference.client, self.arm.client
        return clients if all(clients) and clients[0] != clients[1] else (self.reference.name, self.arm.name)


class MetricChange(NamedTuple):
    """One metric of a reference and of an arm, as it is read."""

    title: str
    before: str
    """The reference's p50 with its unit, "-" where there is none."""
    after: str
    change: str
    """With its interval."""
    word: str
    """Such as "faster"."""
    tone: Tone


def groups_of(material: Material) -> list[ArmGroup] | None:
    """Return each reference with its one arm; None where the run has several cells, or several arms to a reference."""
    references = [material.recorded.header.reference_of(arm.name) for arm in material.compared_arms]
    if len(material.cells) != 1 or references != [arm for arm in material.arms if arm.name in material.references]:
        return None
    return [ArmGroup(*pair) for pair in zip(references, material.compared_arms, strict=True)]


def changes_of(material: Material, group: ArmGroup) -> list[MetricChange]:
    """Return the metrics of a reference and its arm."""
    cell = material.cells[0].name
    found = []
    for metric in material.metrics:
        title = lowered(metric.title)
        before, after = (_median(material, cell, arm.name, metric) for arm in group)
        change, word = "", ""
        tone: Tone = "plain"
        if comparison := material.comparison(cell, group.arm.name, metric.name):
            change = "" if comparison.typical is None else change_with_interval(comparison.typical)
            word = verdict_word(comparison, metric)
            word = f"same (±{percent(material.findings.margin)})" if word == "equivalent" else word
            tone = tone_of(comparison, band_of(material, cell, group.arm.name, metric.name))
        found.append(MetricChange(title, before, after, change, word, tone))
    return found


def screen(
    recorded: RecordedRun, findings: Findings, checked: Checked, *, folder: Path | None = None, page: bool = False
) -> list[Text]:
    """Return the lines of the first screen. `folder` holds the run's files, and with `page` its report.html."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    groups = groups_of(material)
    refused = material.refused_all()
    lines = [_title(material), Text()]
    if refused is not None:
        lines += _refusal(material)
    elif groups is None:
        lines += _grid(material)
    else:
        for group in groups:
            lines += [*_group_lines(material, group), Text()]
        if all(sample.error is None for sample in recorded.measured()):
            lines += _phase_lines(material, groups)
    lines += [*_attribution_lines(material), *_error_lines(material), Text()]
    if refused is None:
        lines += _trust_lines(material)
    if folder is not None:
        files = f"{folder / 'report.html'}, run.json" if page else str(folder / "run.json")
        lines += [Text(f"Saved    {files}"), Text(f"More     fastlane bench report {folder} --full")]
    if recorded.header.embedded:
        lines.append(Text("Yours    fastlane bench run --base-url URL --model NAME"))
    return lines


def _title(material: Material) -> Text:
    recorded, header = material.recorded, material.recorded.header
    facts = [
        header.provider,
        "; ".join(material.scenarios) or header.workload,
        counted(len({sample.key for sample in recorded.measured()}), "pair"),
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


def _group_lines(material: Material, group: ArmGroup) -> Iterator[Text]:
    """Return the metrics of a reference and the one arm that is compared with it."""
    yield Text(f"{_row(f'{group.kind}, p50', *group.names)}  change", style="bold")
    refused = [why for arm in group if (why := material.refused(material.cells[0].name, arm.name))]
    if refused:
        yield Text(f"  {refused[0]}", style=STYLES["bad"])
        return
    for each in changes_of(material, group):
        line = Text(_row(f"  {each.title}", each.before, each.after))
        if each.word:
            line.append(f"  {each.change:<20} ")
            line.append(each.word, style=STYLES[each.tone])
        yield line


def _row(name: str, before: str, after: str) -> str:
    return f"{name:<{_NAME}}{before:>21}{after:>21}"


def _median(material: Material, cell: str, arm: str, metric: RequestMetric) -> str:
    found = material.figures(cell, arm, metric.name)
    value = None if found is None else found.quantiles[0.5].value
    return "-" if value is None else with_unit(value, metric.unit)


def _phase_lines(material: Material, groups: Sequence[ArmGroup]) -> Iterator[Text]:
    """Return by how much each part of a request became shorter or longer, in the mean."""
    found = {each.arm: each for each in material.phases(material.cells[0].name)}
    shown_groups = [group for group in groups if group.reference.name in found and group.arm.name in found]
    if not shown_groups:
        return
    pairs = [(found[group.reference.name], found[group.arm.name]) for group in shown_groups]
    changes = [
        {key: ours.milliseconds.get(key, 0.0) - theirs.milliseconds.get(key, 0.0) for key in TITLES}
        for theirs, ours in pairs
    ]
    least = max(_LEAST_MS, 0.02 * max(theirs.total_ms for theirs, _ in pairs))
    size = {key: max(abs(change[key]) for change in changes) for key in TITLES}
    largest = sorted((key for key in TITLES if size[key] >= least), key=lambda key: -size[key])[:_MOST_PHASES]
    shown = [key for key in TITLES if key in largest]
    kinds = [group.kind for group in shown_groups] if len(shown_groups) > 1 else [""]
    yield Text(f"{'Where from (mean)':<{_NAME}}" + "".join(f"{kind:>14}" for kind in kinds), style="bold")
    opened = {key: _opened(material, pairs) for key in shown if key in ("opening", "connect", "tls")}
    for key in shown:
        first = changes[0][key]
        bar = "#" * round(_BAR * abs(first) / (max(size.values()) or 1.0))
        line = Text(_parts(TITLES[key], [change[key] for change in changes]))
        line.append(f"   {bar:<{_BAR}}", style=STYLES["good" if first < 0 else "bad"])
        line.append(f" {opened.pop(key)}" if key in opened else "", style=STYLES["muted"])
        line.rstrip()
        yield line
    yield Text(_parts("other parts", [sum(change[key] for key in TITLES if key not in shown) for change in changes]))


def _parts(name: str, changes: Sequence[float]) -> str:
    return f"{'  ' + name:<{_NAME}}" + "".join(f"{signed_figure(each, 'ms') + ' ms':>14}" for each in changes)


def _opened(material: Material, pairs: Sequence[tuple[ArmPhases, ArmPhases]]) -> str:
    """Return how many connections the arms opened: "connections opened 170 -> 0"."""
    cell = material.cells[0].name
    counts = [[connections(material, material.recorded.measured(cell, each.arm)) for each in pair] for pair in pairs]
    if any(None in pair for pair in counts):
        return ""
    return f"connections opened {', '.join(f'{before} -> {after}' for before, after in counts)}"


def _grid(material: Material) -> Iterator[Text]:
    """Return a row for each cell and arm, with each metric's median and change."""
    rows = [
        (f"{cell.name} | {arm.name}" if material.several_cells else arm.name, cell.name, arm.name)
        for cell in material.cells
        for arm in material.own_arms
    ]
    name = min(_NAME + 12, max(len(title) for title, _, _ in rows) + 2)
    yield Text(f"{'p50, change':<{name}}" + "".join(f"{metric.title:>28}" for metric in material.metrics), style="bold")
    for title, cell, arm in rows[:_MOST_ROWS]:
        line = Text(f"{title:<{name}}")
        refused = material.refused(cell, arm)
        line.append(refused or "", style=STYLES["bad"])
        for metric in () if refused else material.metrics:
            comparison = material.comparison(cell, arm, metric.name)
            size = "" if comparison is None or comparison.typical is None else change_with_interval(comparison.typical)
            line.append(f"{_median(material, cell, arm, metric):>10}")
            line.append(f" {size:>17}", style=STYLES["plain" if comparison is None else tone_of(comparison)])
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
    failed = [each for each in measured if each.error is not None]
    if not failed:
        return
    arms = Counter(each.arm for each in failed).most_common(_MOST_ERRORS)
    whose = ", ".join(f"{arm} {count:,}" for arm, count in arms)
    yield Text(f"Failed: {len(failed):,} of {counted(len(measured), 'request')} ({whose})", style=STYLES["bad"])
    errors = Counter((each.error, each.error_message or "") for each in failed)
    for (error, message), count in errors.most_common(_MOST_ERRORS):
        line = f"  {count:,} x {error}" + (f": {' '.join(message.split())}" if message else "")
        yield Text(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}\N{HORIZONTAL ELLIPSIS}")


def _trust_lines(material: Material) -> Iterator[Text]:
    results = material.checked.results
    counts = {level: sum(each.level == level for each in results) for level in ("passed", "flagged", "refused")}
    words = [f"checks: {', '.join(f'{count} {level}' for level, count in counts.items() if count) or 'none'}"]
    if all(sample.error is None for sample in material.recorded.measured()):
        words.insert(0, "no request failed")
    bands = [
        band
        for reference in material.references
        for cell in material.valid_cells
        if (band := band_of(material, cell.name, reference, material.metrics[0].name)) is not None
    ]
    if bands:
        words.append(f"equal arms differed by up to {percent(max(bands))}")
    yield Text(f"Trust    {'; '.join(words)}")
    flagged = list(dict.fromkeys(each.check for each in results if each.level in ("flagged", "refused")))
    if flagged:
        more = [f"{len(flagged) - _MOST_FLAGS} more"] if len(flagged) > _MOST_FLAGS else []
        yield Text(f"         look at: {listed([*flagged[:_MOST_FLAGS], *more])}", style=STYLES["warning"])
    recorded = material.recorded
    least = min(len(recorded.measured(cell.name, arm.name)) for cell in material.cells for arm in material.arms)
    missing = [
        f"{percentile_name(share)} takes {wanted(share)}" for share in (0.5, 0.95, 0.99) if wanted(share) > least
    ]
    if missing:
        yield Text(f"         {', '.join(missing)} requests of each arm, not {least:,}")
