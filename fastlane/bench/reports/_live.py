"""What a run shows while it runs: how far it is, and ratios that may be watched without harm."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .._formatting import change_with_interval, counted, figure, lowered
from ..recorded import metric_named
from ..statistics import Interval

if TYPE_CHECKING:
    from .._progress import Progress

_BAR_WIDTH: Final = 40


class LiveProgress:
    """A display that follows a run on a terminal: `Experiment.run(on_progress=display)` inside its `with` block.

    The ratios come with confidence sequences. All of a cell hold together at every look with a probability of 95 %, so
    that to stop a run because any of them has excluded "no change" errs in one run of twenty at most. Where the
    console is no terminal nothing is shown but a line as each cell begins.
    """

    def __init__(self, console: Console, *, what: str = "") -> None:
        self._console = console
        self._what = what
        self._cell: str | None = None
        self._live = Live(console=console, transient=True, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        if self._what:
            self._console.print(self._what, markup=False, highlight=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far the run is."""
        if self._live is not None:
            self._live.update(picture(progress))
        elif progress.cell and progress.cell != self._cell:
            self._console.print(
                f"{progress.cell}: cell {progress.cells_done + 1} of {progress.cells}", markup=False, highlight=False
            )
        self._cell = progress.cell


def picture(progress: Progress) -> Group:
    """Return what is shown of a run's progress."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=min(1.0, progress.share), width=_BAR_WIDTH)
    grid.add_row(bar, f"{progress.share:.0%}", Text(", ".join(_said(progress))))
    return Group(grid, *_ratios(progress))


def _said(progress: Progress) -> Iterator[str]:
    if not progress.cell:
        yield "the arms' processes start"
    else:
        yield progress.cell if progress.cells == 1 else f"{progress.cell} ({progress.cells_done + 1}/{progress.cells})"
    planned = "" if progress.blocks_planned is None else f" of {progress.blocks_planned:,}"
    yield f"{progress.blocks_done:,}{planned} blocks"
    yield counted(progress.requests, "request")
    if progress.failed:
        yield f"{progress.failed:,} failed"
    yield f"{figure(progress.elapsed_s)} s"


def _ratios(progress: Progress) -> Iterator[Text]:
    for each in progress.ratios:
        metric = metric_named(each.metric)
        shown = each.high < 1 or each.low > 1
        better = (each.ratio < 1) == metric.lower_is_better
        style = ("green" if better else "red") if shown else "dim"
        said = change_with_interval(Interval(value=each.ratio, low=each.low, high=each.high))
        line = f"  {each.arm}: {lowered(metric.title)} {said}, {counted(each.pairs, 'pair')}"
        yield Text(line, style=style)
