"""Verdicts hold at any time, with returning units too, and find what is there."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from fastlane.experiments import Guard
from fastlane.experiments.comparison import ALPHA, LEAST_BUCKETS, METRICS, ArmSums, compare

FIRST_TOKEN, ERRORS, PRICE = "time_to_first_token", "error_rate", "price"


def compared(metric: str, arm: ArmSums, reference: ArmSums) -> Any:
    return compare(METRICS[metric], arm, reference, ALPHA)


def add(sums: ArmSums, metric: str, bucket: int, value: float) -> None:
    sums.add(metric, f"{bucket:02x}", value)


def arms(
    random: Random, calls: int, *, units: int = 0, between: float = 0.0, effect: float = 0.0, metric: str = FIRST_TOKEN
) -> tuple[ArmSums, ArmSums, int | None]:
    """An arm, the reference, and the call after which a look every 50 calls first showed a difference."""
    found: int | None = None
    arm, reference = ArmSums(), ArmSums()
    of_unit = {}
    drift = 0.0
    for number in range(calls):
        # A provider's slow hours are those of both arms.
        drift += -drift / 60 + random.gauss(0, 0.02)
        unit = random.randrange(units) if units else number
        if unit not in of_unit:
            of_unit[unit] = random.gauss(0, between), random.random() < 0.5, random.randrange(256)
        own, is_arm, bucket = of_unit[unit]
        if metric == ERRORS:
            value = float(random.random() < 0.05 + effect * is_arm)
        else:
            value = own + drift + random.gauss(0, 0.2) + effect * is_arm
        if metric == PRICE:
            value = math.exp(value)
        add(arm if is_arm else reference, metric, bucket, value)
        if number % 50 == 0 and found is None:
            looked = compare(METRICS[metric], arm, reference, ALPHA)
            if looked is not None and looked.verdict in (METRICS[metric].better, METRICS[metric].worse):
                found = number
    return arm, reference, found


@pytest.mark.parametrize(
    ("units", "between", "metric"), [(0, 0.0, FIRST_TOKEN), (80, 0.3, FIRST_TOKEN), (0, 0.0, ERRORS), (0, 0.0, PRICE)]
)
def test_equal_arms_rarely_differ_however_often_one_looks(units: int, between: float, metric: str) -> None:
    random = Random(7)
    shown = [arms(random, 1_500, units=units, between=between, metric=metric)[2] for _ in range(25)]

    # Of 25 at 5 %, more than five come in one of 300 times.
    assert sum(one is not None for one in shown) <= 5


@pytest.mark.parametrize(
    ("metric", "effect", "verdict"),
    [(FIRST_TOKEN, 0.2, "slower"), (FIRST_TOKEN, -0.2, "faster"), (PRICE, 0.2, "dearer"), (ERRORS, 0.2, "more errors")],
)
def test_large_difference_is_found_and_covered(metric: str, effect: float, verdict: str) -> None:
    arm, reference, found = arms(Random(5), 2_000, effect=effect, metric=metric)

    comparison = compared(metric, arm, reference)
    assert found is not None
    assert comparison.verdict == verdict
    truth = effect if METRICS[metric].scale == "binary" else math.exp(effect) - 1
    assert comparison.low < truth < comparison.high


def test_equal_arms_with_many_calls_are_equivalent() -> None:
    arm, reference = ArmSums(), ArmSums()
    random = Random(1)
    for number in range(60_000):
        add((arm, reference)[number % 2], FIRST_TOKEN, random.randrange(256), random.gauss(0, 0.2))

    comparison = compared(FIRST_TOKEN, arm, reference)
    assert comparison.verdict == "equivalent within 3 %"


def test_few_units_with_many_calls_give_no_verdict() -> None:
    arm, reference = ArmSums(), ArmSums()
    for number in range(10_000):
        add(arm, FIRST_TOKEN, number % (LEAST_BUCKETS - 1), 5.0)
        add(reference, FIRST_TOKEN, number % 256, 1.0)

    comparison = compared(FIRST_TOKEN, arm, reference)
    assert comparison.verdict == "too few units"
    assert comparison.low is None


def test_share_without_errors_is_not_certain() -> None:
    arm, reference = ArmSums(), ArmSums()
    for number in range(100):
        add(arm, ERRORS, number, 0.0)
        add(reference, ERRORS, number, 0.0)

    comparison = compared(ERRORS, arm, reference)
    assert comparison.verdict == "no difference shown so far"
    assert comparison.high > 0.01


def test_guard_ends_only_an_arm_shown_to_be_worse() -> None:
    slower, reference, _ = arms(Random(11), 2_000, effect=0.3)
    alike, other, _ = arms(Random(11), 2_000)

    guard = Guard("time_to_first_token")
    reason: Any = guard.reason_to_end(slower, reference, ALPHA)
    assert reason.startswith("time_to_first_token is worse than the reference's by at least ")
    assert guard.reason_to_end(alike, other, ALPHA) is None
    assert guard.reason_to_end(reference, slower, ALPHA) is None
    assert Guard("time_to_first_token", worse_by=0.5).reason_to_end(slower, reference, ALPHA) is None


def test_unit_with_most_calls_gives_no_verdict() -> None:
    random, arm, reference = Random(3), ArmSums(), ArmSums()
    number = "end_to_end"
    for bucket in range(256):
        for _ in range(4):
            add(arm, number, bucket, random.gauss(0.0, 0.1))
            add(reference, number, bucket, random.gauss(0.0, 0.1))
    for _ in range(1_000):
        add(arm, number, 7, random.gauss(1.0, 0.1))

    comparison = compared(number, arm, reference)
    assert comparison.verdict == "too few units"
    assert Guard("end_to_end").reason_to_end(arm, reference, ALPHA) is None
