"""What each play contributes, of runs whose truth is known."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fastlane.bench import RecordedRun, Sample, find
from tests.bench.recorded_runs import MS, a_run, an_arm
from tests.bench.reports.made import reported

PLAYS = ("Connection()", "RequestEncoding()", "PromptCache()")
SAVED_MS = {"Connection()": 40, "RequestEncoding()": 25, "PromptCache()": 60}


def arms(plays: Sequence[str] = PLAYS, *, only: bool = True, without: bool = True) -> tuple[Any, ...]:
    """A stock client, and the arms of a run that adds plays one by one and takes them away one by one."""
    client = "fastlane.OpenAI"
    found = [an_arm("baseline"), an_arm("baseline-again"), an_arm("none", plays=(), client=client)]
    for play in plays:
        others = tuple(each for each in plays if each != play)
        found += [an_arm(f"only {play}", plays=(play,), client=client)] if only else []
        if without and (len(plays) > 2 or not only):
            found.append(an_arm(f"all but {play}", plays=others, client=client))
    return (*found, an_arm("every play", plays=tuple(plays), client=client))


def run(
    infos: Sequence[Any], saved_ms: Mapping[str, float] = SAVED_MS, *, pairs: int = 150, together_ms: float = 0
) -> RecordedRun:
    """A run in which each play saves what it saves, and all of them `together_ms` more or less."""
    chance = random.Random(5)
    plays = {info.name: info.plays or () for info in infos}
    whole = max(map(len, plays.values()))

    def cheaper(sample: Sample) -> Sample:
        less = sum(saved_ms[play] for play in plays[sample.arm])
        less += together_ms * (len(plays[sample.arm]) == whole) + chance.gauss(0, 5)
        names = ("response_ns", "first_event_ns", "first_content_ns", "ended_ns")
        stamps = {name: getattr(sample, name) - round(less * MS) for name in names}
        tokens = tuple(stamp - round(less * MS) for stamp in sample.token_ns)
        return dataclasses.replace(sample, token_ns=tokens, **stamps)

    return a_run(
        arms=infos, pairs=pairs, ratio=1.0, time_to_first_token_s=0.5, spread=0.02, change=cheaper, metrics=(FIRST,)
    )


FIRST = "time_to_first_token"


def attributed(recorded: RecordedRun) -> Any:
    (found,) = find(recorded).attributions
    return found


def test_costs_that_add_up_are_attributed_to_their_plays() -> None:
    found = attributed(run(arms()))
    total = sum(SAVED_MS.values())
    assert found.total.value == pytest.approx(-total, abs=0.03 * total)
    for each in found.shares:
        assert each.share.value == pytest.approx(-SAVED_MS[each.play], abs=0.05 * total)
        assert each.share.low is not None
        assert each.share.high is not None
        assert each.share.low < -SAVED_MS[each.play] < each.share.high
    assert found.interaction.low is not None
    assert found.interaction.high is not None
    assert found.interaction.low < 0 < found.interaction.high


def test_parts_add_up_to_the_whole_and_interaction_is_shown() -> None:
    found = attributed(run(arms(), together_ms=-50))
    assert sum(each.share.value for each in found.shares) == pytest.approx(found.total.value)
    # Alone they save 125 ms, together 75: they hinder each other by 50.
    assert found.interaction.value == pytest.approx(50, abs=6)
    assert found.interaction.low is not None
    assert found.interaction.low > 0
    for each in found.shares:
        assert each.alone is not None
        assert each.last is not None
        assert each.alone.value < each.share.value < each.last.value


def test_two_plays_get_shapley_shares() -> None:
    two = PLAYS[:2]
    found = attributed(run(arms(two), together_ms=-20))
    # Each gets half of the interaction: 40 - 10 and 25 - 10.
    assert [each.share.value for each in found.shares] == pytest.approx([-30, -15], abs=3)
    assert sum(each.share.value for each in found.shares) == pytest.approx(found.total.value)


def test_few_blocks_have_no_interval() -> None:
    found = attributed(run(arms(), pairs=4))
    assert found.total.low is None
    assert all(each.share.low is None for each in found.shares)


def test_report_divides_the_change_among_the_plays() -> None:
    title = "Time to first token: each play's part of the change (ms)"
    shown = reported(run(arms(), together_ms=-20)).table(title)
    shares = [float(share.removesuffix(" %")) for (share,) in shown.by_column("of the whole")]

    assert [row[0] for row in shown.rows] == ["Connection", "RequestEncoding", "PromptCache", "all together"]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=2)
    assert shown.notes[0].startswith("Interaction: +")
    nothing = run(arms(), dict.fromkeys(PLAYS, 0.0))
    # Parts of a whole that may as well be nothing say nothing.
    assert "of the whole" not in reported(nothing).table(title).columns


def test_stock_client_is_baseline_if_no_arm_lacks_plays() -> None:
    kept = tuple(info for info in arms() if info.name != "none")
    assert attributed(run(kept)).total.value == pytest.approx(-125, abs=5)


@pytest.mark.parametrize(
    "infos",
    [
        (an_arm("baseline"), an_arm("fastlane", plays=())),
        (an_arm("baseline"), an_arm("fastlane", plays=PLAYS[:1])),
        arms(only=False),
        arms(without=False),
        [info for info in arms() if "RequestEncoding" not in info.name],
        # An asynchronous client is no substitute.
        [
            *(info for info in arms() if info.name != "only RequestEncoding()"),
            an_arm("async", plays=("RequestEncoding()",), client="fastlane.AsyncOpenAI"),
        ],
    ],
    ids=["no play", "one play", "none alone", "none left out", "one in no arm", "one in another kind of client"],
)
def test_attribution_needs_all_arms(infos: Sequence[Any]) -> None:
    assert find(run(infos, pairs=20)).attributions == ()
