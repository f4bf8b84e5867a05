"""Ratios that are watched while a run goes on hold together at every look."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from fastlane.bench.progress import Watch
from fastlane.bench.recorded import Sample
from tests.bench.recorded_runs import a_run

METRICS = ("time_to_first_token", "time_per_output_token", "api_end_to_end")
ARMS = ("baseline", "baseline-again", "one", "two", "three")


def blocks(pairs: int, seed: int, ratio: float = 1.0, arms: Sequence[str] = ARMS) -> list[dict[str, Sample]]:
    found: dict[object, dict[str, Sample]] = defaultdict(dict)
    for sample in a_run(arms=arms, pairs=pairs, ratio=ratio, seed=seed, tokens=4).measured():
        found[sample.key][sample.arm] = sample
    return list(found.values())


@pytest.mark.slow
def test_any_line_of_equal_arms_is_coloured_in_one_run_of_twenty() -> None:
    """Someone who stops at the first coloured of twelve lines of equal arms looks after every block."""
    arms = ("baseline", *(f"arm {number}" for number in range(12)))
    by_block = [list(block.values()) for block in blocks(250, 0, arms=arms)]
    chance, runs, stopped = random.Random(1), 100, 0
    for _ in range(runs):
        watch = Watch(dict.fromkeys(arms, "baseline"), METRICS[:1])
        # Which of a block's equal requests was whose is drawn again for every run.
        for block in chance.sample(by_block, len(by_block)):
            watch.pair(dict(zip(arms, chance.sample(block, len(block)), strict=True)))
            if any(each.high < 1 or each.low > 1 for each in watch.ratios()):
                stopped += 1
                break
    assert stopped <= 0.05 * runs + 3 * math.sqrt(runs * 0.05 * 0.95)


def test_more_lines_make_wider_intervals() -> None:
    one = Watch(dict.fromkeys(("baseline", "one"), "baseline"), METRICS[:1])
    all_ = Watch(dict.fromkeys(ARMS, "baseline"), METRICS)
    for block in blocks(60, 1, ratio=0.8):
        one.pair(block)
        all_.pair(block)
    (alone,) = one.ratios()
    among = next(each for each in all_.ratios() if (each.arm, each.metric) == ("one", METRICS[0]))
    assert among.low < alone.low < alone.high < among.high
