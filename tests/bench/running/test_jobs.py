from __future__ import annotations

from typing import Any

from fastlane.bench.load import Block, Due
from fastlane.bench.recorded import Cell
from fastlane.bench.running._requests import RequestMaker, ScheduledRequest
from fastlane.bench.workloads import Conversation, Workload

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {}}}
SAID = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
ANSWER = {"role": "assistant", "content": "Hello there, my dear friend."}
TALK = Conversation(name="talk", messages=(*SAID, ANSWER, SAID[1], ANSWER), tools=(TOOL,))


def jobs(**changes: Any) -> RequestMaker:
    return RequestMaker(**{"model": "model", "embedded": True, **changes})


def job(arm: str, turn: int = 0, *, replay: str = "0/0", lane: int = 0, **changes: Any) -> ScheduledRequest:
    cell = Cell(name="talks", workload="talks", users=1, caching_forbidden=changes.pop("caching_forbidden", False))
    block = Block(lane=lane, number=turn, replay=replay, turn=TALK.turns[turn], order=("baseline", "fastlane"))
    return jobs(**changes).of_block(cell, Due(block, block.order.index(arm)), shard=0)


def salt(job: ScheduledRequest) -> str:
    text: str = job.body["messages"][0]["content"]
    return text.partition("\n")[0]


def test_prefix_is_shared_by_the_turns_of_an_arms_replay() -> None:
    first, second, again = job("baseline", 0), job("baseline", 1), job("baseline", 0, replay="1/0")

    assert salt(first) == salt(second) != salt(again)
    assert first.body["tools"] == second.body["tools"] != again.body["tools"]
    assert salt(first) != salt(job("fastlane"))
    assert len(salt(first)) == len(salt(job("fastlane")))
    assert salt(job("baseline", 0, caching_forbidden=True)) != salt(job("baseline", 1, caching_forbidden=True))


def test_arms_of_a_block_share_the_emulator_seed() -> None:
    def luck(job: ScheduledRequest) -> str:
        return job.headers["x-emulator-draw"]

    assert luck(job("baseline")) == luck(job("fastlane"))
    others = (job("baseline", 1), job("baseline", lane=1), job("baseline", seed=1))
    assert len({luck(job("baseline")), *map(luck, others)}) == 4
    assert job("baseline", embedded=False).headers == {}


def test_requested_output_is_as_recorded_up_to_the_limit() -> None:
    whole, cut = job("baseline"), job("baseline", max_output_tokens=3)

    assert whole.body["max_completion_tokens"] == 7 == whole.place.asked_output_tokens
    assert (cut.body["max_completion_tokens"], cut.headers["x-emulator-output-tokens"]) == (3, "3")


def test_shards_have_distinct_tags_for_cold_requests() -> None:
    talks = Workload(name="talks", conversations=(TALK,))
    assert len({jobs().unmeasured(talks, "baseline", shard=shard).place.tag for shard in (0, 1)}) == 2
