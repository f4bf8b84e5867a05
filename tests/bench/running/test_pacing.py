from __future__ import annotations

import heapq
import itertools
from random import Random

from hypothesis import given, strategies as st

from fastlane.bench.load import Due, Pacing, lane_of, open_blocks
from fastlane.bench.workloads import Conversation, Workload

ARMS = ("baseline", "fastlane")
SAID = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
TALKS = Workload(
    name="talks", conversations=tuple(Conversation(name=f"talk {at}", messages=SAID * 3) for at in range(4))
)


def closed(users: int, *, think_s: float = 0.0, passes: int = 2) -> Pacing:
    lanes = [lane_of(TALKS, ARMS, lane=lane, lanes=users, passes=passes, seed="0/cell") for lane in range(users)]
    return Pacing(lanes, now=0, think_s=think_s, block_s=1.0, seed="0/cell")


def opened(rate: float) -> Pacing:
    return Pacing([open_blocks(TALKS, ARMS, rate=rate, passes=2, seed="0/cell")], now=0)


def simulate(pacing: Pacing, durations: Random) -> list[tuple[int, int, Due]]:
    """Answer every request after a random time; return when each was handed out and answered."""
    under_way: list[tuple[int, int, int, Due]] = []
    sent: list[tuple[int, int, Due]] = []

    def send(now: int, due: Due) -> None:
        answered = now + durations.randrange(1, 3_000_000_000)
        heapq.heappush(under_way, (answered, len(sent), now, due))
        sent.append((now, answered, due))

    while True:
        start = pacing.next_ns()
        if start is not None and (not under_way or start <= under_way[0][0]):
            for due in pacing.start():
                send(start, due)
        elif under_way:
            now, _, _, due = heapq.heappop(under_way)
            following = pacing.ended(due, now)
            if following is not None:
                send(now, following)
        else:
            return sent


@given(st.integers(1, 9), st.integers(0, 99))
def test_closed_load_keeps_one_request_in_flight_per_user(users: int, seed: int) -> None:
    sent = simulate(closed(users), Random(seed))

    assert len(sent) == 2 * 12 * len(ARMS)
    assert len({(due.block.lane, due.block.number, due.arm) for _, _, due in sent}) == len(sent)
    for lane in range(users):
        mine = sorted((began, ended) for began, ended, due in sent if due.block.lane == lane)
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(mine))


@given(st.integers(2, 50))
def test_users_start_one_after_the_other_within_one_block(users: int) -> None:
    sent = simulate(closed(users, passes=20), Random(1))
    starts: dict[int, int] = {}
    for began, _, due in sent:
        starts.setdefault(due.block.lane, began)

    assert list(starts) == list(range(users))
    assert len(set(starts.values())) == users
    assert max(starts.values()) < 1_000_000_000


def test_user_thinks_before_each_block_but_the_first() -> None:
    sent = simulate(closed(1, think_s=5.0), Random(1))
    blocks: dict[int, list[tuple[int, int]]] = {}
    for began, ended, due in sent:
        blocks.setdefault(due.block.number, []).append((began, ended))

    ends = {number: max(ended for _, ended in times) for number, times in blocks.items()}
    assert blocks[0][0][0] == 0
    assert all(blocks[number][0][0] == ends[number - 1] + 5_000_000_000 for number in range(1, 24))


@given(st.floats(0.2, 100), st.integers(0, 99), st.integers(0, 99))
def test_open_load_schedule_is_independent_of_response_times(rate: float, seed: int, other: int) -> None:
    def intended(pacing: Pacing, durations: Random) -> list[tuple[int, str, int | None]]:
        return [(due.block.number, due.arm, due.intended_ns) for _, _, due in simulate(pacing, durations)]

    first = intended(opened(rate), Random(seed))

    assert first == intended(opened(rate), Random(other))
    assert len(first) == 2 * 12 * len(ARMS)


@given(st.floats(0.2, 100))
def test_open_load_requests_are_handed_out_before_due_time(rate: float) -> None:
    for handed_out, _, due in simulate(opened(rate), Random(0)):
        assert due.intended_ns is not None
        assert handed_out < due.intended_ns
