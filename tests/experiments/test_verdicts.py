"""Verdicts hold at any time, with returning units too, and find what is there."""

from __future__ import annotations

import math
from random import Random

import pytest

from fastlane.experiments._guards import Guard
from fastlane.experiments._metrics import BY_NAME, METRICS
from fastlane.experiments._sums import Sums
from fastlane.experiments._verdicts import ALPHA, LEAST_BUCKETS, alpha_of, compared, limits_of, mean_of

FIRST_TOKEN, ERRORS, PRICE = BY_NAME["time_to_first_token"], BY_NAME["error_rate"], BY_NAME["price"]


def arms(
    random: Random, calls: int, *, units: int = 0, between: float = 0.0, effect: float = 0.0, metric: int = FIRST_TOKEN
) -> tuple[Sums, Sums, int | None]:
    """An arm, the reference, and the call after which a look every 50 calls first showed a difference."""
    found: int | None = None
    arm, reference = Sums(), Sums()
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
        (arm if is_arm else reference).add(metric, bucket, value)
        if number % 50 == 0 and found is None:
            limits = limits_of(metric, arm, reference, ALPHA)
            if limits is not None and not limits[1] <= 0 <= limits[2]:
                found = number
    return arm, reference, found


@pytest.mark.parametrize(
    ("units", "between", "metric"), [(0, 0.0, FIRST_TOKEN), (80, 0.3, FIRST_TOKEN), (0, 0.0, ERRORS), (0, 0.0, PRICE)]
)
def test_equal_arms_are_hardly_ever_said_to_differ_however_often_one_looks(
    units: int, between: float, metric: int
) -> None:
    random = Random(7)
    shown = [arms(random, 1_500, units=units, between=between, metric=metric)[2] for _ in range(25)]

    # Of 25 at 5 %, more than five come in one of 300 times.
    assert sum(one is not None for one in shown) <= 5


def test_calls_of_one_unit_are_not_taken_for_as_many_units() -> None:
    random = Random(3)
    returning, _, _ = arms(random, 4_000, units=100, between=0.5)
    lone, _, _ = arms(random, 4_000)

    one, other = mean_of(returning, FIRST_TOKEN), mean_of(lone, FIRST_TOKEN)
    assert one is not None
    assert other is not None
    # 50 units of which each is known well: 0.5 squared over 50, and not over 2,000.
    assert one.variance == pytest.approx(0.25 / 50, rel=0.5)
    assert other.variance < one.variance / 20


@pytest.mark.parametrize(
    ("metric", "effect", "said"),
    [(FIRST_TOKEN, 0.2, "slower"), (FIRST_TOKEN, -0.2, "faster"), (PRICE, 0.2, "dearer"), (ERRORS, 0.2, "more errors")],
)
def test_a_large_difference_is_found_and_its_interval_covers_it(metric: int, effect: float, said: str) -> None:
    arm, reference, found = arms(Random(5), 2_000, effect=effect, metric=metric)

    comparison = compared(metric, arm, reference, ALPHA)
    assert found is not None
    assert comparison is not None
    assert comparison.said == said
    assert comparison.low is not None
    assert comparison.high is not None
    truth = effect if METRICS[metric].scale == "share" else math.exp(effect) - 1
    assert comparison.low < truth < comparison.high


def test_arms_that_are_known_to_be_alike_are_equivalent() -> None:
    arm, reference = Sums(), Sums()
    random = Random(1)
    for number in range(60_000):
        (arm, reference)[number % 2].add(FIRST_TOKEN, random.randrange(256), random.gauss(0, 0.2))

    comparison = compared(FIRST_TOKEN, arm, reference, ALPHA)
    assert comparison is not None
    assert (comparison.verdict, comparison.said) == ("equivalent", "equivalent within 3 %")


def test_few_units_say_nothing_however_many_calls_they_make() -> None:
    arm, reference = Sums(), Sums()
    for number in range(10_000):
        arm.add(FIRST_TOKEN, number % (LEAST_BUCKETS - 1), 5.0)
        reference.add(FIRST_TOKEN, number % 256, 1.0)

    comparison = compared(FIRST_TOKEN, arm, reference, ALPHA)
    assert comparison is not None
    assert comparison.verdict == "too few units"
    assert comparison.low is None


def test_no_errors_at_all_are_no_certainty() -> None:
    arm, reference = Sums(), Sums()
    for number in range(100):
        arm.add(ERRORS, number, 0.0)
        reference.add(ERRORS, number, 0.0)

    comparison = compared(ERRORS, arm, reference, ALPHA)
    assert comparison is not None
    assert comparison.verdict == "no difference shown so far"
    assert comparison.high is not None
    assert comparison.high > 0.01


def test_all_stages_together_stay_within_the_error_that_is_permitted() -> None:
    # But for what rounding adds, which is not the same with each version of Python.
    assert sum(alpha_of(stage) for stage in range(1, 50)) <= ALPHA * (1 + 1e-12)
    assert alpha_of(1) > alpha_of(2) > alpha_of(3)


def test_units_are_counted_though_none_is_kept() -> None:
    from fastlane.experiments._assignment import draw, key_of

    key, sums = key_of("an experiment", None), Sums()
    for number in range(5_000):
        for _ in range(2):
            sums.saw(draw(key, f"user-{number}").unit_id_hash, is_lone=False)
    sums.saw("0" * 16, is_lone=True)

    assert sums.unit_count == pytest.approx(5_001, rel=0.1)
    assert sums.calls == 10_001


def test_the_sums_of_two_processes_are_those_of_one() -> None:
    random = Random(9)
    parts, whole = [Sums(), Sums()], Sums()
    for number in range(500):
        value, bucket, unit = float(random.randrange(8)), random.randrange(256), f"{random.getrandbits(64):016x}"
        for sums in (parts[number % 2], whole):
            sums.add(FIRST_TOKEN, bucket, value)
            sums.saw(unit, is_lone=False)

    together = Sums.from_bytes(parts[0].to_bytes()).plus(parts[1])
    assert together.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("damage", [b"", b"x" * 10])
def test_sums_that_are_cut_off_are_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="bytes of sums"):
        Sums.from_bytes(damage)


def test_a_guard_ends_what_is_shown_to_be_worse_and_nothing_else() -> None:
    slower, reference, _ = arms(Random(11), 2_000, effect=0.3)
    alike, other, _ = arms(Random(11), 2_000)

    guard = Guard("time_to_first_token")
    told = guard.broken(slower, reference, ALPHA)
    assert told is not None
    assert told.startswith("time_to_first_token is worse than the reference's by at least ")
    assert guard.broken(alike, other, ALPHA) is None
    assert guard.broken(reference, slower, ALPHA) is None
    assert Guard("time_to_first_token", worse_by=0.5).broken(slower, reference, ALPHA) is None


@pytest.mark.parametrize(
    ("guard", "good", "bad"),
    [
        (Guard("error_rate", above=0.1), 0.0, 1.0),
        (Guard("quality", below=0.8), 0.9, 0.5),
        (Guard("time_to_first_token", above=1.0), math.log(0.5), math.log(2.0)),
        (Guard("price", above=0.01), 0.005, 0.02),
        (Guard("time_to_first_token_p95", above=2.0), 0.0, 1.0),
    ],
)
def test_a_limit_ends_an_arm_that_is_beyond_it(guard: Guard, good: float, bad: float) -> None:
    metric = BY_NAME[guard.metric]

    def arm(value: float, calls: int) -> Sums:
        sums, random = Sums(), Random(2)
        for number in range(calls):
            noise = 0.0 if METRICS[metric].scale == "share" else value * random.uniform(-0.1, 0.1)
            sums.add(metric, number % 256, value + noise)
        return sums

    assert guard.broken(arm(good, 500), Sums(), ALPHA) is None
    assert guard.broken(arm(bad, 500), Sums(), ALPHA) is not None
    assert guard.broken(arm(bad, 3), Sums(), ALPHA) is None


def test_an_error_is_left_to_any_number_of_stages() -> None:
    spent = [alpha_of(stage) for stage in range(1, 2_000)]

    assert sum(spent) <= 0.05 + 1e-12
    assert all(0 < one / 100 < 1 for one in spent)


def test_where_one_unit_makes_most_calls_nothing_is_said_of_the_others() -> None:
    random, arm, reference = Random(3), Sums(), Sums()
    number = BY_NAME["end_to_end"]
    for bucket in range(256):
        for _ in range(4):
            arm.add(number, bucket, random.gauss(0.0, 0.1))
            reference.add(number, bucket, random.gauss(0.0, 0.1))
    for _ in range(1_000):
        arm.add(number, 7, random.gauss(1.0, 0.1))

    comparison = compared(number, arm, reference, ALPHA)
    assert comparison is not None
    assert comparison.verdict == "too few units"
    assert Guard("end_to_end").broken(arm, reference, ALPHA) is None
