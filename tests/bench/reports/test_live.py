from __future__ import annotations

import io

from rich.console import Console

from fastlane.bench.progress import Progress, RunningRatio
from fastlane.bench.reports import LiveProgress

RATIO = RunningRatio(arm="[bold]arm", metric="time_to_first_token", pairs=40, ratio=0.69, low=0.6, high=0.8)
UNDER_WAY = Progress(
    cell="chat, 4",
    cells_done=1,
    cells=3,
    blocks=40,
    requests=120,
    failed=2,
    share=0.33,
    elapsed_s=12.3,
    ratios=(RATIO,),
)


def shown(progress: Progress) -> str:
    file = io.StringIO()
    with LiveProgress(Console(file=file, width=160, force_terminal=True, color_system=None)) as display:
        display(progress)
    return file.getvalue()


def test_progress_shows_ratios_that_may_be_watched() -> None:
    text = shown(UNDER_WAY)

    assert "33%" in text
    assert "chat, 4 (2/3), 40 blocks, 120 requests, 2 failed, 12.3 s" in text
    assert "[bold]arm: time to first token -31 % [-40, -20], 40 pairs" in text
