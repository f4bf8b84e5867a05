"""What blows a fuse: an arm that fails by itself, and neither the provider nor what was before."""

from __future__ import annotations

from collections.abc import Iterable

from fastlane.experiments._fuse import Fuse


def blown_after(calls: Iterable[tuple[str, str]], most: int = 5) -> int | None:
    fuse = Fuse(most, reference="control")
    for number, (arm, outcome) in enumerate(calls, 1):
        if fuse.is_blown(outcome, arm):
            assert fuse.blown == {arm}
            return number
    return None


BAD = ("arm", "failed")
GOOD = ("control", "completed")
DOWN = ("control", "failed")


def test_an_arm_that_fails_beside_one_that_answers_ends_at_once() -> None:
    assert blown_after([BAD, GOOD, *[BAD] * 4]) == 6


def test_an_arm_that_fails_now_and_then_stays() -> None:
    assert blown_after([*[BAD] * 4, ("arm", "completed"), GOOD] * 10) is None


def test_any_other_arm_tells_a_broken_arm_from_a_broken_provider() -> None:
    assert blown_after([BAD, ("other", "completed"), *[BAD] * 4]) == 6
    assert blown_after([BAD, ("other", "failed"), *[BAD] * 4] * 10) is None


def test_an_arm_that_nobody_else_was_asked_beside_is_given_time() -> None:
    assert blown_after([BAD] * 100) == 15
    assert blown_after([*[BAD] * 14, *[DOWN] * 15, *[BAD] * 4]) is None


def test_calls_that_are_given_up_while_the_provider_hangs_are_no_answers() -> None:
    assert blown_after([BAD, DOWN, ("control", "cancelled"), ("control", "cancelled"), *[BAD] * 4] * 10) is None


def test_a_provider_that_comes_back_ends_no_arm_whose_last_calls_of_then_fail_now() -> None:
    down = [BAD, DOWN] * 30
    assert blown_after([*down, GOOD, GOOD, *[BAD] * 4, ("arm", "completed"), GOOD]) is None
    assert blown_after([*down, *[GOOD, BAD] * 10]) is not None
