from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.emulator._meters import Meter, WindowKind, meter

S = 1_000_000_000
MINUTE = 60 * S
KINDS: list[WindowKind] = ["bucket", "fixed", "sliding", "quantized"]


def make(kind: WindowKind, limit: float = 60, *, burst: float = 1.0) -> Meter:
    return meter(kind, limit, MINUTE, burst=burst, quantum_ns=S, now=0)


def taken(of: Meter, arrivals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What passes of requests that come after so many nanoseconds each, of so many tokens."""
    now, passed = 0, []
    for gap, amount in arrivals:
        now += gap
        if of.wait_ns(now, amount) == 0:
            of.take(now, amount)
            passed.append((now, amount))
    return passed


ARRIVALS = st.lists(st.tuples(st.integers(0, 20 * S), st.integers(1, 30)), max_size=60)


@given(ARRIVALS)
@settings(max_examples=60)
def test_no_sliding_minute_holds_more_than_the_limit(arrivals: list[tuple[int, int]]) -> None:
    passed = taken(make("sliding"), arrivals)

    assert all(sum(a for t, a in passed if end - MINUTE < t <= end) <= 60 for end, _ in passed)


@given(ARRIVALS)
@settings(max_examples=60)
def test_no_fixed_minute_holds_more_than_the_limit(arrivals: list[tuple[int, int]]) -> None:
    passed = taken(make("fixed"), arrivals)

    assert all(sum(a for t, a in passed if t // MINUTE == minute) <= 60 for minute in range(30))


@given(ARRIVALS, st.sampled_from([0.5, 1.0]))
@settings(max_examples=60)
def test_a_bucket_gives_its_burst_and_what_has_come_since(arrivals: list[tuple[int, int]], burst: float) -> None:
    passed = taken(make("bucket", burst=burst), arrivals)

    assert all(
        sum(a for t, a in passed if start <= t <= end) <= 60 * burst + (end - start) / S + 1e-3
        for start, _ in passed
        for end, _ in passed
        if end >= start
    )


@given(st.lists(st.integers(0, 2 * S), max_size=60))
@settings(max_examples=60)
def test_a_quantum_lets_its_share_pass_however_much_is_left(gaps: list[int]) -> None:
    passed = taken(make("quantized"), [(gap, 1) for gap in gaps])

    assert len({moment // S for moment, _ in passed}) == len(passed)


@given(st.sampled_from(KINDS), ARRIVALS, st.integers(1, 60))
@settings(max_examples=150)
def test_who_waits_as_long_as_is_told_passes(kind: WindowKind, arrivals: list[tuple[int, int]], amount: int) -> None:
    of = make(kind)
    now = sum(gap for gap, _ in arrivals)
    taken(of, arrivals)
    wait = of.wait_ns(now, amount)

    assert wait is not None
    assert wait < S or of.wait_ns(now + wait - S // 10, amount) != 0
    assert of.wait_ns(now + wait, amount) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_more_than_the_limit_never_passes(kind: WindowKind) -> None:
    assert make(kind).wait_ns(0, 61) is None


@pytest.mark.parametrize("kind", KINDS)
@given(arrivals=ARRIVALS)
@settings(max_examples=40)
def test_all_of_the_limit_is_there_again_after_its_reset(kind: WindowKind, arrivals: list[tuple[int, int]]) -> None:
    of = make(kind)
    now = sum(gap for gap, _ in arrivals)
    taken(of, arrivals)

    assert of.room(now + of.reset_ns(now)) == pytest.approx(60)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_back_is_there_again(kind: WindowKind) -> None:
    of = make(kind)
    of.take(0, 50)
    of.take(0, -30)

    assert of.room(0) == pytest.approx(40)


@pytest.mark.parametrize("kind", KINDS)
def test_who_comes_again_and_again_without_waiting_never_passes_but_in_fixed_windows(kind: WindowKind) -> None:
    of = make(kind, 6)
    passed = 0
    for tick in range(3_000):
        now = tick * S // 10
        if of.wait_ns(now, 1) == 0:
            of.take(now, 1)
            passed += 1
        else:
            of.refused(now, 1)

    # A refused request counts, as OpenAI documents it: what has come back is gone before it is a whole request.
    assert passed == {"bucket": 6, "sliding": 6, "fixed": 30, "quantized": 1}[kind]


@given(st.lists(st.integers(0, 3), max_size=500))
@settings(max_examples=20)
def test_a_sliding_window_remembers_no_more_moments_than_it_has_grains(gaps: list[int]) -> None:
    of = meter("sliding", 1e9, 6_000, burst=1, quantum_ns=1, now=0)
    now = 0
    for gap in gaps * 40:
        now += gap
        of.take(now, 1)

    assert len(of._taken) <= 6_001  # type: ignore[attr-defined]
