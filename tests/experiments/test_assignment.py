"""Units are assigned uniformly, the same in every process, and stay in an arm whose share grows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from fastlane.experiments.experiment import arm_at, draw, hash_key

SHARES = st.fixed_dictionaries({arm: st.floats(0.0, 0.3) for arm in ("a", "b", "c")})
POINTS = [(at + 0.5) / 500 for at in range(500)]


@given(SHARES)
def test_each_arm_gets_its_share_and_the_reference_the_rest(shares: dict[str, float]) -> None:
    arms = [arm_at(point, shares, "reference") for point in POINTS]

    for arm, share in shares.items():
        assert arms.count(arm) / len(POINTS) == pytest.approx(share, abs=0.005)
    assert arms.count("reference") / len(POINTS) == pytest.approx(1 - sum(shares.values()), abs=0.01)


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_units_stay_in_an_arm_whose_share_grows(share: float, more: float) -> None:
    grown = {"a": share + more}

    assert all(arm_at(point, grown, "r") == "a" for point in POINTS if arm_at(point, {"a": share}, "r") == "a")


def test_points_and_hashes_are_uniform_and_independent() -> None:
    key = hash_key("an experiment", None)

    for ids in ([f"user-{number}" for number in range(20_000)], [None] * 20_000):
        cells = [0] * 64
        for one in ids:
            unit = draw(key, one)
            cells[int(unit.point * 8) * 8 + int(unit.unit_id_hash[:2], 16) // 32] += 1
        # Chi-squared with 63 degrees of freedom: 120 is exceeded by chance once in 50,000 times.
        assert sum((count - 312.5) ** 2 / 312.5 for count in cells) < 120


def test_another_process_assigns_the_same_arm() -> None:
    code = (
        "from fastlane.experiments.experiment import draw, hash_key;"
        "print([draw(hash_key('an experiment', 'salt'), f'user-{n}') for n in range(20)])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert other.strip() == str([draw(hash_key("an experiment", "salt"), f"user-{number}") for number in range(20)])


def test_other_names_and_salts_give_other_hashes() -> None:
    keys = [hash_key("one", None), hash_key("two", None), hash_key("one", "salt")]

    assert len({draw(key, "user-42") for key in keys}) == 3


def test_id_that_no_encoding_takes_is_hashed() -> None:
    assert draw(hash_key("one", None), "\ud800") == draw(hash_key("one", None), "\ud800")
