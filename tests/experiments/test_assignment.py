"""Units are drawn uniformly, the same everywhere, and stay where they are while shares grow."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from fastlane.experiments._assignment import BUCKETS, Allocation, bucket_of, draw, draw_anew, key_of

SHARES = st.lists(st.floats(0.0, 0.3), min_size=3, max_size=3)
ARMS = ("a", "b", "c")
POINTS = [(at + 0.5) / 500 for at in range(500)]


def allocated(*ramps: list[float]) -> list[Allocation]:
    found = [Allocation("reference", ())]
    for shares in ramps:
        found.append(found[-1].ramped(dict(zip(ARMS, shares, strict=True))))
    return found[1:]


@given(SHARES)
def test_each_arm_has_its_share_and_the_reference_what_is_left(shares: list[float]) -> None:
    (allocation,) = allocated(shares)

    for arm, share in zip(ARMS, shares, strict=True):
        assert allocation.share_of(arm) == pytest.approx(share, abs=1e-9)
        seen = sum(allocation.arm_at(point) == arm for point in POINTS) / len(POINTS)
        assert seen == pytest.approx(share, abs=0.005)


@given(SHARES, st.lists(st.floats(0.0, 0.03), min_size=3, max_size=3))
def test_ramping_up_moves_units_of_the_reference_alone(shares: list[float], more: list[float]) -> None:
    larger = [share + added for share, added in zip(shares, more, strict=True)]
    before, after = allocated(shares, larger)

    for point in POINTS:
        if before.arm_at(point) != "reference":
            assert after.arm_at(point) == before.arm_at(point)


@given(SHARES, SHARES, SHARES)
def test_after_any_ramps_the_shares_are_those_that_were_asked_for(
    first: list[float], second: list[float], third: list[float]
) -> None:
    last = allocated(first, second, third)[-1]

    assert [last.share_of(arm) for arm in ARMS] == pytest.approx(third, abs=1e-9)
    ends = [at for low, high, _ in last.intervals for at in (low, high)]
    assert ends == sorted(ends)


def test_ramping_down_and_up_again_gives_an_arm_the_same_units() -> None:
    before, _, after = allocated([0.3, 0.2, 0.0], [0.1, 0.2, 0.0], [0.3, 0.2, 0.0])

    assert before.intervals == after.intervals


def test_a_share_of_everything_leaves_nothing_to_the_reference() -> None:
    (allocation,) = allocated([0.4, 0.4, 0.2])

    assert {allocation.arm_at(point) for point in (0.0, *POINTS, 1 - 2**-53)} == {"a", "b", "c"}


def test_points_and_buckets_are_uniform_and_independent_of_each_other() -> None:
    key = key_of("an experiment", None)
    drawn = [draw(key, f"user-{number}") for number in range(20_000)]

    for drew in (drawn, [draw_anew() for _ in range(20_000)]):
        cells = [0] * 64
        for one in drew:
            cells[int(one.point * 8) * 8 + bucket_of(one.unit_id_hash) * 8 // BUCKETS] += 1
        # Chi-squared with 63 degrees of freedom: 120 is exceeded by chance once in 50,000 times.
        assert sum((count - 312.5) ** 2 / 312.5 for count in cells) < 120


def test_another_process_draws_the_same() -> None:
    code = (
        "from fastlane.experiments._assignment import draw, key_of;"
        "print([draw(key_of('an experiment', 'salt'), f'user-{n}') for n in range(20)])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert other.strip() == str([draw(key_of("an experiment", "salt"), f"user-{number}") for number in range(20)])


def test_other_experiments_and_other_salts_draw_otherwise() -> None:
    keys = [key_of("one", None), key_of("two", None), key_of("one", "salt")]

    assert len({draw(key, "user-42") for key in keys}) == 3


def test_an_id_that_no_encoding_takes_is_drawn_all_the_same() -> None:
    assert draw(key_of("one", None), "\ud800") == draw(key_of("one", None), "\ud800")
