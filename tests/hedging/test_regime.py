from __future__ import annotations

from random import Random

import pytest

from fastlane.plays.hedging._regime import Awaited, Regime

NS = 1_000_000_000
START = 1_000 * NS


def share_slow(late_share: float, *, calls: int = 4_000, per_s: float = 20.0, quantile: float = 0.95) -> float:
    """The share of the second half of the calls that began while everybody was taken to be slow."""
    random, regime = Random(0), Regime(quantile)
    reports: list[tuple[int, Awaited]] = []
    now_ns, slow = START, 0
    for number in range(calls):
        now_ns += int(random.expovariate(per_s) * NS)
        while reports and reports[0][0] <= now_ns:
            at_ns, awaited = reports.pop(0)
            regime.late(awaited, at_ns)
        awaited = regime.began(1.0, now_ns)
        if random.random() < late_share:
            reports.append((now_ns + NS, awaited))
        slow += regime.is_slow and number >= calls // 2
    return slow / (calls / 2)


@pytest.mark.parametrize("late_share", [0.0, 0.01, 0.05, 0.08, 0.12])
def test_a_few_late_ones_are_single_ones(late_share: float) -> None:
    assert share_slow(late_share) <= 0.04


@pytest.mark.parametrize("late_share", [0.3, 0.5, 1.0])
def test_where_many_are_late_everybody_is_slow(late_share: float) -> None:
    assert share_slow(late_share) >= 0.95


def test_an_earlier_delay_has_more_late_ones_of_itself() -> None:
    assert share_slow(0.2, quantile=0.8) <= 0.02
    assert share_slow(0.45, quantile=0.8) >= 0.95


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.7, 0.99, 0.9999])
def test_any_quantile_tells_calm_from_slow(quantile: float) -> None:
    assert share_slow((1 - quantile) * 0.9, quantile=quantile) <= 0.05
    assert share_slow(1.0, quantile=quantile) >= 0.9


def with_late_ones(count: int, *, on_time: int = 0) -> Regime:
    """A regime to which so many calls have just been late, all of which began together with others."""
    regime = Regime(0.95)
    begun = [regime.began(1.0, START + number) for number in range(count + on_time)]
    for awaited in begun[:count]:
        regime.late(awaited, START + NS)
    regime.settle(START + 2 * NS)
    return regime


def test_six_late_ones_in_a_row_are_enough() -> None:
    assert not with_late_ones(5).is_slow
    assert with_late_ones(6).is_slow


def test_calls_that_begin_together_count_as_they_began() -> None:
    regime = Regime(0.95)
    for wave in range(20):
        start = START + 10 * wave * NS
        for awaited in [regime.began(1.0, start + number) for number in range(32)][::3]:
            regime.late(awaited, start + NS)

    assert regime.is_slow


def test_it_passes_when_calls_are_on_time_again() -> None:
    regime = with_late_ones(10)
    later = START + 20 * NS
    for number in range(42):
        regime.began(1.0, later + number)
    regime.settle(later + NS)
    assert regime.is_slow  # none of them had to be in time by then
    regime.settle(later + 2 * NS)

    assert not regime.is_slow


def test_it_is_forgotten_after_a_long_silence() -> None:
    regime = with_late_ones(10)
    assert regime.is_slow
    regime.began(1.0, START + 1_000 * NS)
    regime.settle(START + 1_002 * NS)

    assert not regime.is_slow


def test_a_report_that_is_late_itself_counts_all_the_same() -> None:
    regime = Regime(0.95)
    begun = [regime.began(1.0, START + number) for number in range(8)]
    regime.settle(START + 2 * NS)
    for awaited in begun:
        regime.late(awaited, START + 2 * NS)

    assert regime.is_slow


def test_a_late_call_that_nobody_awaits_counts_for_nothing() -> None:
    regime = Regime(0.95)
    for number in range(50):
        regime.late(None, START + number)

    assert not regime.is_slow


def test_what_waits_is_bounded() -> None:
    regime = Regime(0.95)
    for number in range(10_000):
        regime.began(1e6, START + number)

    assert len(regime._awaited) <= 4_096
