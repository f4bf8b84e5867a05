from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from fastlane.bench import Conversation, Workload
from fastlane.bench._schedule import lanes, salt

USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}
ARMS = ("baseline", "connection", "fastlane")


def workload(conversations: int, turns: int) -> Workload:
    talk = (USER, ANSWER) * turns
    return Workload(
        name="talks",
        conversations=tuple(Conversation(name=f"talk {at}", messages=talk) for at in range(conversations)),
    )


@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_every_turn_is_one_block_in_which_every_arm_sends_once(talks: int, turns: int, count: int, seed: int) -> None:
    planned = lanes(workload(talks, turns), ARMS, lane_count=count, turns=None, seed=seed)

    blocks = [block for lane in planned for block in lane]
    assert len(planned) == count
    assert Counter((block.conversation_index, block.turn.number) for block in blocks) == {
        (talk, turn): 1 for talk in range(talks) for turn in range(1, turns + 1)
    }
    assert all(sorted(block.order) == sorted(ARMS) for block in blocks)
    assert len({block.tag(arm) for block in blocks for arm in ARMS}) == 3 * len(blocks)


def test_a_lane_replays_a_conversation_from_its_start_before_the_next() -> None:
    lane, other = lanes(workload(3, 2), ARMS, lane_count=2, turns=None, seed=0)

    assert [(block.conversation_index, block.turn.number) for block in lane] == [(0, 1), (0, 2), (2, 1), (2, 2)]
    assert [(block.conversation_index, block.turn.number) for block in other] == [(1, 1), (1, 2)]
    assert [block.number for block in lane] == [0, 1, 2, 3]


def test_turns_can_be_limited() -> None:
    (lane,) = lanes(workload(2, 5), ARMS, lane_count=1, turns=2, seed=0)

    assert [block.turn.number for block in lane] == [1, 2, 1, 2]


def test_the_order_is_drawn_and_every_arm_comes_first_about_equally_often() -> None:
    (lane,) = lanes(workload(60, 5), ARMS, lane_count=1, turns=None, seed=0)
    (again,) = lanes(workload(60, 5), ARMS, lane_count=1, turns=None, seed=0)
    (other,) = lanes(workload(60, 5), ARMS, lane_count=1, turns=None, seed=1)

    first = Counter(block.order[0] for block in lane)
    assert all(70 < first[arm] < 130 for arm in ARMS)
    assert lane == again
    assert lane != other


def test_salts_differ_between_arms_and_conversations_and_are_equally_long() -> None:
    salts = {salt(0, arm, conversation) for arm in ARMS for conversation in range(50)}

    assert len(salts) == 150
    assert len({len(each) for each in salts}) == 1
    assert salt(0, "baseline", 1) == salt(0, "baseline", 1) != salt(1, "baseline", 1)
