"""The first screen of a run: what was compared, what changed and where, how far to trust it, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TextColumn
from rich.text import Text

from .. import _formatting as words
from .._formatting import change_with_interval, counted, figure, lowered
from ..checks import Checked
from ..findings import MARGIN, Findings
from ..recorded import FAILED_ALIKE, ArmInfo, RecordedRun, RequestMetric, metric_named
from ..statistics import Interval, wanted
from ._material import TITLES, Material
from ._sections import band_of, play_name, tone_of, verdict_word
from ._tables import Tone

if TYPE_CHECKING:
    from ..progress import Progress, RunningRatio


STYLES: Final = {"plain": "", "good": "green", "bad": "bold red", "warning": "yellow", "muted": "dim"}
_WIDTH: Final = 100
_NAME: Final = 25
_BAR: Final = 20
_MOST_ROWS: Final = 12
_MOST_PHASES: Final = 3
_MOST_ERRORS: Final = 3
_MOST_FLAGS: Final = 2
_LEAST_MS: Final = 1.0
"""Changes of a phase below this, and below 2 % of the whole request, are put together."""
_DOT: Final = " \N{MIDDLE DOT} "


class ArmGroup(NamedTuple):
    """A reference and the one arm that is compared with it."""

    reference: ArmInfo
    arm: ArmInfo

    @property
    def kind(self) -> str:
        return "async" if "Async" in (self.reference.client or self.reference.description) else "sync"

    @property
    def names(self) -> tuple[str, str]:
        """What the two are called: their clients, or else the arms' names."""
        clients = self.reference.client, self.arm.client
        return clients if all(clients) and clients[0] != clients[1] else (self.reference.name, self.arm.name)


class MetricChange(NamedTuple):
    """One metric of a reference and of an arm: both p50 with their unit, "-" where there is none, and the change."""

    title: str
    before: str
    after: str
    change: str
    word: str
    tone: Tone


def groups_of(material: Material) -> list[ArmGroup] | None:
    """Return each reference with its one arm; None if the run has several cells, or several arms to a reference."""
    references = [material.recorded.header.reference_of(arm.name) for arm in material.compared_arms]
    if len(material.cells) != 1 or references != [arm for arm in material.arms if arm.name in material.references]:
        return None
    return [ArmGroup(*pair) for pair in zip(references, material.compared_arms, strict=True)]


def changes_of(material: Material, group: ArmGroup) -> list[MetricChange]:
    cell = material.cells[0].name
    found = []
    for metric in material.metrics:
        before, after = (_median(material, cell, arm.name, metric) for arm in group)
        change, word = "", ""
        tone: Tone = "plain"
        if comparison := material.comparison(cell, group.arm.name, metric.name):
            change = "" if comparison.typical is None else words.change_with_interval(comparison.typical)
            word = verdict_word(comparison, metric)
            word = f"same (±{words.percent(MARGIN)})" if word == "equivalent" else word
            tone = tone_of(comparison, band_of(material, cell, group.arm.name, metric.name))
        found.append(MetricChange(words.lowered(metric.title), before, after, change, word, tone))
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
        why = list(material.refusals().items())[:_MOST_ERRORS]
        said = ["No figure of this run may be used:", *(f"  {check}: {sentence}" for check, sentence in why)]
        lines += [Text(line, style=STYLES["bad"]) for line in said]
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
    workload = "; ".join(material.scenarios) or header.workload
    facts = header.provider, workload, words.counted(material.blocks, "pair"), f"{words.figure(recorded.duration_s)} s"
    title = Text.assemble(("fastlane bench", "bold"), "   ", _DOT.join(facts))
    if recorded.ended in ("interrupted", FAILED_ALIKE):
        title.append(f"{_DOT}{recorded.ended}", style=STYLES["bad"])
    return title


def _group_lines(material: Material, group: ArmGroup) -> Iterator[Text]:
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
    found = material.median(cell, arm, metric.name)
    return "-" if found is None else words.with_unit(found.value, metric.unit)


def _phase_lines(material: Material, groups: Sequence[ArmGroup]) -> Iterator[Text]:
    """Return by how much each part of a request became shorter or longer, in the mean."""
    found = {each.arm: each for each in material.phases(material.cells[0].name)}
    groups = [group for group in groups if all(arm.name in found for arm in group)]
    if not groups:
        return
    pairs = [(found[group.reference.name], found[group.arm.name]) for group in groups]
    changes = [
        {key: ours.milliseconds.get(key, 0.0) - theirs.milliseconds.get(key, 0.0) for key in TITLES}
        for theirs, ours in pairs
    ]
    least = max(_LEAST_MS, 0.02 * max(theirs.total_ms for theirs, _ in pairs))
    size = {key: max(abs(change[key]) for change in changes) for key in TITLES}
    largest = sorted((key for key in TITLES if size[key] >= least), key=lambda key: -size[key])[:_MOST_PHASES]
    shown = [key for key in TITLES if key in largest]
    kinds = [group.kind for group in groups] if len(groups) > 1 else [""]
    yield Text(f"{'Where from (mean)':<{_NAME}}" + "".join(f"{kind:>14}" for kind in kinds), style="bold")
    opening = next((key for key in shown if key in ("opening", "connect", "proxy", "tls")), None)
    for key in shown:
        first = changes[0][key]
        bar = "#" * round(_BAR * abs(first) / (max(size.values()) or 1.0))
        line = Text(_parts(TITLES[key], [change[key] for change in changes]))
        line.append(f"   {bar:<{_BAR}}", style=STYLES["good" if first < 0 else "bad"])
        line.append(f" {_opened(material, groups)}" if key == opening else "", style=STYLES["muted"])
        line.rstrip()
        yield line
    yield Text(_parts("other parts", [sum(change[key] for key in TITLES if key not in shown) for change in changes]))


def _parts(name: str, changes: Sequence[float]) -> str:
    return f"{'  ' + name:<{_NAME}}" + "".join(f"{words.signed_figure(each, 'ms') + ' ms':>14}" for each in changes)


def _opened(material: Material, groups: Sequence[ArmGroup]) -> str:
    """Return how many connections the arms opened: "connections opened 170 -> 0"."""
    run, cell = material.recorded, material.cells[0].name
    counts = [[run.connections_opened(run.measured(cell, arm.name)) for arm in group] for group in groups]
    if any(None in pair for pair in counts):
        return ""
    return f"connections opened {', '.join(f'{before} -> {after}' for before, after in counts)}"


def _grid(material: Material) -> Iterator[Text]:
    rows = [
        (f"{cell.name} | {arm.name}" if material.several_cells else arm.name, cell.name, arm.name)
        for cell in material.cells
        for arm in material.own_arms
    ]
    name = min(_NAME + 12, max(len(title) for title, _, _ in rows) + 2)
    yield Text(f"{'p50, change':<{name}}" + "".join(f"{metric.title:>28}" for metric in material.metrics), style="bold")
    for title, cell, arm in rows[:_MOST_ROWS]:
        refused = material.refused(cell, arm)
        line = Text.assemble(f"{title:<{name}}", (refused or "", STYLES["bad"]))
        for metric in () if refused else material.metrics:
            change = material.comparison(cell, arm, metric.name)
            size = "" if change is None or change.typical is None else words.change_with_interval(change.typical)
            line.append(f"{_median(material, cell, arm, metric):>10}")
            line.append(f" {size:>17}", style=STYLES["plain" if change is None else tone_of(change)])
        yield line
    if len(rows) > _MOST_ROWS:
        yield Text(f"and {words.counted(len(rows) - _MOST_ROWS, 'row')} more", style=STYLES["muted"])


def _attribution_lines(material: Material) -> Iterator[Text]:
    for found in material.findings.attributions[:1]:
        if material.refused_attribution(found.cell) is None:
            unit = next(metric.unit for metric in material.metrics if metric.name == found.metric)
            parts = {play_name(each.play, found): each.share for each in found.shares}
            said = [f"{name} {words.interval(part, unit, signed=True)}" for name, part in parts.items()]
            yield Text(f"Part of each play ({unit}): {', '.join(said)}")


def _error_lines(material: Material) -> Iterator[Text]:
    measured = material.recorded.measured()
    failed = [each for each in measured if each.error is not None]
    if not failed:
        return
    arms = Counter(each.arm for each in failed).most_common(_MOST_ERRORS)
    whose = ", ".join(f"{arm} {count:,}" for arm, count in arms)
    yield Text(f"Failed: {len(failed):,} of {words.counted(len(measured), 'request')} ({whose})", style=STYLES["bad"])
    errors = Counter((each.error, each.error_message or "") for each in failed)
    for (error, message), count in errors.most_common(_MOST_ERRORS):
        line = f"  {count:,} x {error}" + (f": {' '.join(message.split())}" if message else "")
        yield Text(line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}\N{HORIZONTAL ELLIPSIS}")


def _trust_lines(material: Material) -> Iterator[Text]:
    recorded, results = material.recorded, material.checked.results
    counts = {level: sum(each.level == level for each in results) for level in ("passed", "flagged", "refused")}
    said = [f"checks: {', '.join(f'{count} {level}' for level, count in counts.items() if count) or 'none'}"]
    if all(sample.error is None for sample in recorded.measured()):
        said.insert(0, "no request failed")
    metric, cells = material.metrics[0].name, material.valid_cells
    bands = [band_of(material, cell.name, reference, metric) for reference in material.references for cell in cells]
    if known := [band for band in bands if band is not None]:
        said.append(f"equal arms differed by up to {words.percent(max(known))}")
    yield Text(f"Trust    {'; '.join(said)}")
    flagged = list(dict.fromkeys(each.check for each in results if each.level in ("flagged", "refused")))
    if flagged:
        more = [f"{len(flagged) - _MOST_FLAGS} more"] if len(flagged) > _MOST_FLAGS else []
        yield Text(f"         look at: {words.listed([*flagged[:_MOST_FLAGS], *more])}", style=STYLES["warning"])
    least = min(len(recorded.measured(cell.name, arm.name)) for cell in material.cells for arm in material.arms)
    few = [f"{words.percentile_name(at)} takes {wanted(at)}" for at in (0.5, 0.95, 0.99) if wanted(at) > least]
    if few:
        yield Text(f"         {', '.join(few)} requests of each arm, not {least:,}")


# While it runs


class LiveProgress:
    """A display that follows a run on a terminal: `Benchmark.run(on_progress=display)` inside its `with` block."""

    def __init__(self, console: Console) -> None:
        columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task("the arms' processes start", total=1.0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        place = f" ({progress.cells_done + 1}/{progress.cells})" if progress.cells > 1 else ""
        said = [f"{progress.cell}{place}", counted(progress.blocks, "block"), counted(progress.requests, "request")]
        said += [f"{progress.failed:,} failed"] if progress.failed else []
        said.append(f"{figure(progress.elapsed_s)} s")
        description = "\n".join([escape(", ".join(said)), *map(_line, progress.ratios)])
        self._bar.update(self._task, completed=min(1.0, progress.share), description=description)


def _line(ratio: RunningRatio) -> str:
    metric = metric_named(ratio.metric)
    better = (ratio.ratio < 1) == metric.lower_is_better
    style = ("green" if better else "red") if ratio.high < 1 or ratio.low > 1 else "dim"
    change = change_with_interval(Interval(value=ratio.ratio, low=ratio.low, high=ratio.high))
    said = f"{ratio.arm}: {lowered(metric.title)} {change}, {counted(ratio.pairs, 'pair')}"
    return f"[{style}]{escape(said)}[/]"
