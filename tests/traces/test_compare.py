from __future__ import annotations

from pathlib import Path

import pytest

from fastlane import ConfigurationError
from fastlane.traces import TraceEntry, compare, entries, read_spans
from tests.traces.recorded import experiment, recording


def read(path: Path) -> tuple[TraceEntry, ...]:
    return entries(read_spans(path.read_bytes(), path.name).spans)


def test_the_same_unit_stands_in_each_arm_phase_by_phase(tmp_path: Path) -> None:
    found = read(experiment(tmp_path / "spans.jsonl"))

    (comparison,) = compare(found)

    base, ours = comparison.arms
    assert (comparison.experiment, comparison.baseline) == ("answer tickets", "baseline")
    assert (base.arm, base.pairs, ours.arm, ours.pairs) == ("baseline", 24, "fastlane", 24)
    assert (ours.faster, ours.slower) == (22, 2)
    assert base.phases_s["tls"] == pytest.approx(0.031)
    assert ours.phases_s["tls"] == 0
    assert base.phases_s["decode"] == pytest.approx(ours.phases_s["decode"])
    assert ours.median_ratio is not None
    assert 0.5 < ours.median_ratio < 0.8
    for group in comparison.groups:
        marks = {arm: found[at].experiment for arm, at in group.members.items()}
        assert {arm: mark.arm for arm, mark in marks.items() if mark} == {arm: arm for arm in group.members}
        assert {mark.unit for mark in marks.values() if mark} == {group.unit}


def test_failures_and_units_without_a_counterpart_are_left_out_and_counted(tmp_path: Path) -> None:
    (comparison,) = compare(read(experiment(tmp_path / "spans.jsonl")))

    assert (comparison.failed, comparison.alone, comparison.unnamed) == (1, 1, 0)


def test_any_arm_can_be_the_one_that_others_are_compared_with(tmp_path: Path) -> None:
    found = read(experiment(tmp_path / "spans.jsonl", pairs=3, arms=("baseline", "connection", "fastlane")))

    (comparison,) = compare(found, baseline="connection")

    assert [arm.arm for arm in comparison.arms] == ["connection", "baseline", "fastlane"]
    assert len(comparison.groups[0].members) == 3
    with pytest.raises(ConfigurationError, match="no arm 'nosuch' to compare with; the file's arms are baseline, conn"):
        compare(found, baseline="nosuch")


def test_a_unit_with_several_requests_is_compared_in_their_order(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        for arm, lengths in (("baseline", (300, 500)), ("fastlane", (200, 400, 100))):
            for number, length in enumerate(lengths):
                made.chat(number * 1_000, number * 1_000 + length, arm=("search", arm, "a user"))

    found = read(tmp_path / "spans.jsonl")
    (comparison,) = compare(found)

    pairs = [tuple(round(found[at].duration_s, 3) for at in group.members.values()) for group in comparison.groups]
    assert sorted(map(sorted, pairs)) == [[0.2, 0.3], [0.4, 0.5]]
    assert comparison.alone == 1


def test_an_experiment_with_one_arm_or_without_units_compares_nothing(tmp_path: Path) -> None:
    with recording(tmp_path / "spans.jsonl") as made:
        made.chat(0, 300, arm=("alone", "fastlane", "a"))
        for arm in ("baseline", "fastlane"):
            made.chat(0, 300, fastlane__experiment__name="no units", fastlane__experiment__arm=arm)

    (comparison,) = compare(read(tmp_path / "spans.jsonl"))

    assert (comparison.experiment, comparison.arms, comparison.groups, comparison.unnamed) == ("no units", (), (), 2)


@pytest.mark.parametrize(("faster", "shown"), [(13, False), (5, False), (19, True), (24, True)])
def test_difference_that_chance_makes_of_equal_arms_is_not_shown(tmp_path: Path, faster: int, shown: bool) -> None:
    """Of 24 pairs 18 one way are what the sign test needs at 5 %."""
    with recording(tmp_path / "spans.jsonl") as made:
        for number in range(24 if faster != 5 else 5):
            for turn, arm in enumerate(("baseline", "other")):
                start = number * 2_000 + turn * 900
                longer = 0 if arm == "baseline" else -50 if number < faster else 50
                made.chat(start, start + 500 + longer, arm=("e", arm, f"unit {number}"))
    (found,) = compare(entries(read_spans((tmp_path / "spans.jsonl").read_bytes(), "x").spans))

    assert [arm.shown for arm in found.arms] == [False, shown]
