from __future__ import annotations

from itertools import islice, pairwise

from hypothesis import given, strategies as st

from fastlane.bench.load import Block, blocks_in_pass, lane_of, open_blocks
from fastlane.bench.workloads import Conversation, Workload

ARMS = ("baseline", "fastlane", "baseline-again")


def workload(*lengths: int) -> Workload:
    said = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."})
    return Workload(
        name="talks",
        conversations=tuple(
            Conversation(name=f"talk {at}", messages=said * length) for at, length in enumerate(lengths)
        ),
    )


lengths = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def all_lanes(talks: Workload, lanes: int, passes: int = 1) -> list[list[Block]]:
    return [list(lane_of(talks, ARMS, lane=lane, lanes=lanes, passes=passes, seed="0/cell")) for lane in range(lanes)]


@given(lengths, st.integers(1, 12), st.integers(1, 3))
def test_users_share_every_pass_over_the_workload_and_leave_nothing_out(
    lengths: list[int], users: int, passes: int
) -> None:
    talks = workload(*lengths)

    blocks = [block for lane in all_lanes(talks, users, passes) for block in lane]

    assert len(blocks) == passes * blocks_in_pass(talks) == passes * sum(lengths)
    assert len({(block.replay, block.turn.number) for block in blocks}) == len(blocks)
    assert len({(block.lane, block.number) for block in blocks}) == len(blocks)


@given(lengths, st.integers(1, 12))
def test_one_user_takes_the_turns_of_a_conversation_in_order(lengths: list[int], users: int) -> None:
    for lane in all_lanes(workload(*lengths), users):
        assert [block.number for block in lane] == list(range(len(lane)))
        for before, after in pairwise(lane):
            if before.replay == after.replay:
                assert after.turn.number == before.turn.number + 1
            else:
                assert after.turn.number == 1


@given(lengths, st.integers(1, 12), st.text(max_size=4))
def test_every_block_has_every_arm_once(lengths: list[int], users: int, seed: str) -> None:
    for lane in all_lanes(workload(*lengths), users):
        assert all(sorted(block.order) == sorted(ARMS) for block in lane)


def test_the_order_of_the_arms_is_drawn_for_every_block() -> None:
    first = lane_of(workload(3), ARMS, lane=0, lanes=1, passes=None, seed="0/cell")
    places = [block.order.index("fastlane") for block in islice(first, 3_000)]

    # Three places at 1,000 each, give or take five standard deviations.
    assert all(abs(places.count(place) - 1_000) < 5 * 26 for place in range(3))


def test_the_same_seed_gives_the_same_blocks_and_another_one_other_orders() -> None:
    def orders(seed: str) -> list[tuple[str, ...]]:
        blocks = lane_of(workload(4), ARMS, lane=0, lanes=1, passes=None, seed=seed)
        return [block.order for block in islice(blocks, 50)]

    assert orders("1/cell") == orders("1/cell")
    assert orders("1/cell") != orders("2/cell")


def test_a_workload_that_is_used_up_begins_again_as_another_replay() -> None:
    blocks = list(islice(lane_of(workload(2), ARMS, lane=0, lanes=1, passes=None, seed="0/cell"), 6))

    assert [block.replay for block in blocks] == ["0/0", "0/0", "1/0", "1/0", "2/0", "2/0"]


def test_more_users_than_conversations_all_have_something_to_say() -> None:
    talks = workload(1, 1)

    lanes = [next(lane_of(talks, ARMS, lane=lane, lanes=5, passes=None, seed="0/cell")) for lane in range(5)]

    assert [block.replay for block in lanes] == ["0/0", "0/1", "1/0", "1/1", "2/0"]


@given(lengths, st.floats(0.1, 50))
def test_an_open_load_sends_every_turn_in_each_pass(lengths: list[int], rate: float) -> None:
    blocks = list(open_blocks(workload(*lengths), ARMS, rate=rate, passes=2, seed="0/cell"))

    assert [block.number for block in blocks] == list(range(2 * sum(lengths)))
    assert len({(block.replay, block.turn.number) for block in blocks}) == len(blocks)


@given(lengths, st.floats(0.1, 50))
def test_an_open_load_sends_the_arms_of_a_block_apart_and_before_long(lengths: list[int], rate: float) -> None:
    blocks = open_blocks(workload(*lengths), ARMS, rate=rate, passes=1, seed="0/cell")
    for block in blocks:
        assert block.intended_s is not None
        first, *_, last = block.intended_s
        assert list(block.intended_s) == sorted(set(block.intended_s))
        assert last - first < min(1 / rate, 1.0)
