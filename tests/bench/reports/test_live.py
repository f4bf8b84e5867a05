from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from fastlane.bench._progress import Progress
from fastlane.bench.load._precision import RunningRatio
from fastlane.bench.reports import LiveProgress
from fastlane.bench.reports._live import picture

RATIO = RunningRatio(
    cell="chat, 4", arm="fastlane", metric="time_to_first_token", pairs=40, ratio=0.69, low=0.6, high=0.8
)
UNDER_WAY = Progress(
    cell="chat, 4",
    cells_done=1,
    cells=3,
    blocks_done=40,
    blocks_planned=120,
    requests=120,
    failed=2,
    share=0.33,
    elapsed_s=12.3,
    ratios=(RATIO,),
)


def shown(progress: Progress) -> str:
    file = io.StringIO()
    Console(file=file, width=160, force_terminal=True, color_system=None).print(picture(progress))
    return file.getvalue()


def test_progress_shows_ratios_that_may_be_watched() -> None:
    text = shown(UNDER_WAY)

    assert "33%" in text
    assert "chat, 4 (2/3), 40 of 120 blocks, 120 requests, 2 failed, 12.3 s" in text
    assert "fastlane: time to first token -31 % [-40, -20], 40 pairs" in text


def test_before_the_first_cell_the_processes_start() -> None:
    assert "the arms' processes start" in shown(replace(UNDER_WAY, cell="", ratios=(), failed=0))


def test_a_display_on_a_terminal_follows_the_run_and_goes_away() -> None:
    file = io.StringIO()

    with LiveProgress(Console(file=file, width=160, force_terminal=True), what="two arms") as display:
        display(UNDER_WAY)

    assert "two arms" in file.getvalue()
    assert "40 of 120 blocks" in file.getvalue()


def test_where_nobody_watches_there_is_a_line_for_each_cell() -> None:
    file = io.StringIO()

    with LiveProgress(Console(file=file, width=160)) as display:
        for blocks in range(3):
            display(replace(UNDER_WAY, blocks_done=blocks))
        display(replace(UNDER_WAY, cell="chat, 16", cells_done=2))

    assert file.getvalue().splitlines() == ["chat, 4: cell 2 of 3", "chat, 16: cell 3 of 3"]
