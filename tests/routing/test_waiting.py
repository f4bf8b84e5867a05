from __future__ import annotations

from fastlane.plays.routing._waiting import Waiting

S = 1_000_000_000


def test_nobody_who_waits_says_nothing() -> None:
    assert Waiting().slowness(0.3, 100 * S) == 1.0


def test_a_call_that_waits_as_long_as_expected_says_nothing() -> None:
    waiting = Waiting()
    waiting.began(1.0, 0)
    assert waiting.slowness(0.3, S) == 1.0


def test_a_call_that_waits_far_too_long_says_how_slow_it_has_become() -> None:
    waiting = Waiting()
    waiting.began(1.0, 0)
    assert waiting.slowness(0.3, 4 * S) == 4.0


def test_several_that_wait_somewhat_long_say_together_what_one_does_not() -> None:
    alone, together = Waiting(), Waiting()
    alone.began(1.0, 0)
    for _ in range(4):
        together.began(1.0, 0)
    at_ns = round(1.4 * S)
    assert alone.slowness(0.3, at_ns) == 1.0
    assert together.slowness(0.3, at_ns) >= 1.4


def test_an_outlier_that_others_have_overtaken_says_nothing() -> None:
    waiting = Waiting()
    waiting.began(1.0, 0)
    other = waiting.began(1.0, S)
    waiting.over(other, answered=True)
    assert waiting.slowness(0.3, 9 * S) == 1.0


def test_a_call_that_was_given_up_does_not_wait_any_more() -> None:
    waiting = Waiting()
    number = waiting.began(1.0, 0)
    waiting.over(number, answered=False)
    waiting.over(number, answered=False)
    assert waiting.slowness(0.3, 9 * S) == 1.0
