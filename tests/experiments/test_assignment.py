"""Units are assigned uniformly, and apart from other experiments."""

from __future__ import annotations

from collections import Counter

import pytest

from fastlane.experiments.experiment import draw, hash_key
from tests.experiments.conftest import CONTROL, Make

UNITS = [f"user-{number}" for number in range(20_000)]


def test_each_arm_gets_its_share_and_the_reference_the_rest(make: Make) -> None:
    shares = {"a": 0.05, "b": 0.3, "none": 0.0}
    experiment = make(arms={"reference": CONTROL, **dict.fromkeys(shares, CONTROL)}, share=shares)

    counts = Counter(experiment.arm_of(unit) for unit in UNITS)
    for arm, share in {**shares, "reference": 0.65}.items():
        assert counts[arm] / len(UNITS) == pytest.approx(share, abs=0.015)


def test_experiments_of_other_names_or_salts_assign_independently(make: Make) -> None:
    one, *others = [
        [experiment.arm_of(unit) for unit in UNITS[:2_000]]
        for experiment in (make("one"), make("two"), make("salted", salt="salt"))
    ]

    for other in others:
        alike = sum(arm == its for arm, its in zip(one, other, strict=True))
        assert alike / len(one) == pytest.approx(0.5, abs=0.06)


def test_points_and_hashes_are_uniform_and_independent() -> None:
    key = hash_key("an experiment", None)

    for ids in (UNITS, [None] * len(UNITS)):
        cells = [0] * 64
        for one in ids:
            unit = draw(key, one)
            cells[int(unit.point * 8) * 8 + int(unit.unit_id_hash[:2], 16) // 32] += 1
        # Chi-squared with 63 degrees of freedom: 120 is exceeded by chance once in 50,000 times.
        assert sum((count - 312.5) ** 2 / 312.5 for count in cells) < 120


def test_id_that_no_encoding_takes_is_assigned(make: Make) -> None:
    experiment = make()

    assert experiment.arm_of("\ud800") == experiment.arm_of("\ud800") in ("control", "mark")
