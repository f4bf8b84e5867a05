"""Four replicas in simulated time, whose events are delayed, lost and doubled."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.plays.hedging._budget import Budget
from fastlane.plays.hedging._fleet import ASKED, GIVEN, SEEN, Fleet
from fastlane.plays.hedging._governor import SLOW, TOO_LITTLE_SEEN
from fastlane.plays.hedging.play import Hedging
from tests.hedging.simulated import NS, ORIGIN, Bus, call, ns, run, usual

HERE = Upstream("m", ORIGIN)


class Wire:
    """Keeps what a replica says until it is handed on."""

    def __init__(self) -> None:
        self.said: list[Mapping[str, Any]] = []

    def publish(self, event: Mapping[str, Any]) -> None:
        self.said.append(event)

    def start(self) -> None:
        """It has begun."""


class Replica:
    def __init__(self, name: str, share: float = 0.05) -> None:
        self.wire = Wire()
        self.budget = Budget(share)
        self.fleet = Fleet(self.wire, name, self.budget)

    def spare_told_to(self, other: Replica, at_ns: int = 0) -> None:
        self.fleet.tell(HERE, None, None)
        other.fleet.told(self.wire.said.pop(), at_ns, at_ns)


def rich_and_poor() -> tuple[Replica, Replica]:
    """One with nothing to spend, and one with all it may save up, of which the other knows."""
    poor, rich = Replica("poor"), Replica("rich")
    poor.budget.earn(1_000)
    for _ in range(500):
        rich.budget.earn(1_000)
    rich.spare_told_to(poor)
    return poor, rich


# The budget of a fleet

STEPS = ("call", "call", "calm", "second", "second", "over", "tell", "hear", "hear", "hear", "hear", "time", "child")


def travel(*, seed: int, share: float, lost: float, twice: float) -> int:
    """Hold four replicas to their budget at each of many steps; how often tokens changed hands."""
    random = Random(seed)
    replicas = [Replica(str(number), share) for number in range(4)]
    arriving: list[list[Mapping[str, Any]]] = [[] for _ in replicas]
    under_way: list[list[float]] = [[] for _ in replicas]
    tokens = used = 0.0
    now_ns, gifts = NS, 0
    for _ in range(600):
        what, number = random.choice(STEPS), random.randrange(4)
        one, size = replicas[number], 1_000 * random.lognormvariate(0, 1)
        if what == "call" or (what == "calm" and number == 0):
            times = 1 if what == "call" else 100
            for _ in range(times):
                one.budget.earn(size)
            tokens += times * size
        elif what == "second" and number:
            has_room = one.budget.reserve(size)
            under_way[number] += [size] * has_room
            one.fleet.ask(now_ns, 0.0 if has_room else size)
        elif what == "over" and under_way[number]:
            reserved, part = under_way[number].pop(0), random.random()
            one.budget.settle(reserved, reserved * part)
            used += reserved * part
        elif what == "tell":
            one.fleet.tell(HERE, None, None)
        elif what == "time":
            now_ns += int(random.expovariate(1) * NS)
        elif what == "child" and random.random() < 0.05:
            one.budget.begin_in_child()
            one.fleet.begin_in_child()
        elif what == "hear" and arriving[number]:
            # In any order, and after any time.
            place = random.randrange(len(arriving[number]))
            stays = random.random() < twice
            event = arriving[number][place] if stays else arriving[number].pop(place)
            if random.random() >= lost:
                one.fleet.told(event, now_ns, now_ns)
        for other, replica in enumerate(replicas):
            gifts += sum(event["kind"] == GIVEN for event in replica.wire.said)
            for queue in arriving[:other] + arriving[other + 1 :]:
                queue += replica.wire.said
            replica.wire.said.clear()

        left = sum(max(0.0, replica.budget.left) for replica in replicas)
        assert used + sum(map(sum, under_way)) + left <= share * tokens * (1 + 1e-9)
    return gifts


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    share=st.sampled_from([0.01, 0.05, 1.0]),
    lost=st.sampled_from([0.0, 0.3]),
    twice=st.sampled_from([0.0, 0.3]),
)
def test_a_fleet_never_spends_more_than_all_have_earned_however_its_events_travel(
    seed: int, share: float, lost: float, twice: float
) -> None:
    travel(seed=seed, share=share, lost=lost, twice=twice)


def test_in_what_proves_that_tokens_change_hands() -> None:
    assert travel(seed=1, share=0.05, lost=0.3, twice=0.3) >= 5


def test_who_runs_short_asks_the_one_with_most_to_spare_and_gets_it() -> None:
    poor, rich = rich_and_poor()
    before = rich.budget.left
    poor.fleet.ask(NS)
    (asked,) = poor.wire.said
    rich.fleet.told(asked, NS, NS)
    (given,) = rich.wire.said
    assert rich.budget.left == before - given["tokens"]  # from now on, and not when it arrives
    poor.fleet.told(given, NS, NS)

    assert (asked["kind"], asked["to"], given["kind"], given["to"]) == (ASKED, "rich", GIVEN, "poor")
    # Half of what it may save up is asked for, and half of what another does not keep for itself is given.
    assert asked["tokens"] == pytest.approx(0.5 * 0.05 * 400 * 1_000 - 50)
    assert given["tokens"] == pytest.approx(0.5 * 0.8 * before)
    assert poor.budget.left + rich.budget.left == pytest.approx(before + 50)


def test_what_arrives_twice_or_was_never_asked_for_counts_once_or_not_at_all() -> None:
    poor, rich = rich_and_poor()
    poor.fleet.ask(NS)
    rich.fleet.told(poor.wire.said[0], NS, NS)
    given = rich.wire.said[0]
    for event in (given, given, {**given, "number": 77}, {**given, "tokens": 1e12}):
        poor.fleet.told(event, NS, NS)

    assert poor.budget.left == pytest.approx(50 + given["tokens"])


def test_more_than_was_asked_for_is_not_taken() -> None:
    poor, _ = rich_and_poor()
    poor.fleet.ask(NS)
    asked = poor.wire.said[0]
    poor.fleet.told({**asked, "kind": GIVEN, "by": "rich", "to": "poor", "tokens": 1e12}, NS, NS)

    assert poor.budget.left == pytest.approx(50 + asked["tokens"])


def test_nobody_gives_what_it_needs_itself_or_answers_what_is_long_past() -> None:
    poor, rich = rich_and_poor()
    poor.fleet.ask(NS)
    asked = poor.wire.said[0]
    rich.fleet.told(asked, NS, 100 * NS)
    assert rich.wire.said == []
    for _ in range(50):
        rich.fleet.told(asked, NS, NS)

    assert rich.budget.left >= 0.2 * 0.05 * 400 * 1_000


def test_who_gets_no_answer_asks_another_one_after_a_second() -> None:
    poor, rich = rich_and_poor()
    other = Replica("other")
    for _ in range(100):
        other.budget.earn(1_000)
    other.budget.receive(9_000)
    other.spare_told_to(poor)
    for at_ns in (NS, NS + NS // 2, 2 * NS + 1, 4 * NS, 5 * NS):
        poor.fleet.ask(at_ns)

    # Of neither is more known to be there.
    assert [event["to"] for event in poor.wire.said] == ["rich", "other"]
    rich.spare_told_to(poor, 5 * NS)
    poor.fleet.ask(6 * NS)
    assert [event["to"] for event in poor.wire.said] == ["rich", "other", "rich"]


def test_nobody_asks_one_that_was_not_heard_of_for_long() -> None:
    poor, _ = rich_and_poor()
    poor.fleet.ask(3_600 * NS)

    assert poor.wire.said == []


# In simulated time


def fleet(bus: Bus, count: int = 4, **fields: Any) -> list[Hedging]:
    return [bus.join(Hedging(**fields), str(number)) for number in range(count)]


def hedged_by(outcome: Any, replica: int) -> float:
    own: list[bool] = [hedged for hedged, by in zip(outcome.hedged, outcome.replicas, strict=True) if by == replica]
    return sum(own) / len(own)


CALM, UNLUCKY = usual(), usual(0.11)


def test_a_replica_with_many_late_calls_uses_what_the_others_do_not() -> None:
    kinds = [UNLUCKY, CALM, CALM, CALM]
    bus = Bus(Random(0))
    alone, together = [Hedging(minimum_delay_s=1.5) for _ in kinds], fleet(bus, minimum_delay_s=1.5)
    for play in (*alone[1:], *together[1:]):
        for _ in range(100):
            play.memory.budget.earn(1_300)
    without = run(alone, kinds, calls=1_000)
    outcome = run(together, kinds, calls=1_000, bus=bus)

    assert hedged_by(without, 0) <= 0.07
    assert hedged_by(outcome, 0) >= 1.3 * hedged_by(without, 0)
    assert outcome.extra_tokens <= 0.05 * (outcome.tokens + 300 * 1_300)
    # Hardly any besides those that tell of calls.
    assert Counter(bus.kinds)[ASKED] <= 0.03 * 1_000


@settings(max_examples=4)
@given(
    late=st.tuples(*[st.floats(0, 0.4)] * 4),
    weights=st.tuples(*[st.floats(0.05, 1)] * 4),
    per_s=st.sampled_from([2.0, 40.0, 400.0]),
    most_delay_s=st.sampled_from([0.0, 0.4, 5.0]),
    lost=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 1_000),
)
def test_whatever_the_load_and_the_delays_a_fleet_stays_within_its_budget(
    late: tuple[float, ...], weights: tuple[float, ...], per_s: float, most_delay_s: float, lost: float, seed: int
) -> None:
    bus = Bus(Random(seed), most_delay_s=most_delay_s, lost=lost, twice=0.1)
    kinds = [usual(share) for share in late]
    outcome = run(fleet(bus), kinds, calls=300, per_s=per_s, seed=seed, bus=bus, weights=weights)

    assert outcome.most_over_budget <= 0


def test_a_new_replica_knows_when_a_call_is_late_by_what_it_is_told() -> None:
    bus = Bus(Random(0))
    old, new = fleet(bus, 2)
    run([old, new], CALM, calls=100, bus=bus, weights=[1, 0])
    known, told = old.plan(call("a", at_s=50)).hedge, new.plan(call("b", at_s=50)).hedge

    assert known is not None
    assert told is not None
    assert told.delay_s == pytest.approx(known.delay_s, rel=0.1)
    assert Hedging().plan(call("c")).hedge.why_not == TOO_LITTLE_SEEN  # type: ignore[union-attr]


def test_a_busy_replica_goes_by_its_own_first_tokens() -> None:
    bus = Bus(Random(0))
    far, near = fleet(bus, 2)
    run([far, near], [usual(median_s=4.0), CALM], calls=320, per_s=4, bus=bus)
    delays = [play.plan(call("a", at_s=90)).hedge.delay_s for play in (far, near)]  # type: ignore[union-attr]

    assert 4 < delays[0] < 8  # type: ignore[operator]
    assert 0.5 < delays[1] < 1  # type: ignore[operator]


TOLD: dict[str, Any] = {"kind": SEEN, "by": "x", "spare": 1.0, "model": "m", "origin": ORIGIN}


@pytest.mark.parametrize(("words", "answer"), [((True, True, False), SLOW), ((True, False, False), None)])
def test_a_quiet_replica_takes_the_word_of_most_others(words: tuple[bool, ...], answer: str | None) -> None:
    quiet = Hedging(budget=1.0)
    quiet.memory.share(Wire(), "me")
    quiet.memory.budget.earn(1e6)
    for at_s in range(30):
        for name, is_slow in enumerate(words):
            event = {**TOLD, "by": str(name), "slow": is_slow, "first_token_s": 0.5}
            quiet.memory.told(event, ns(at_s), ns(at_s))
    plan = quiet.plan(call("1", at_s=30)).hedge
    assert plan is not None
    assert plan.governor.take(100, ns(31)) == answer

    # What they said half a minute ago says nothing any more.
    assert plan.governor.take(100, ns(61)) is None


def test_a_replica_with_trouble_of_its_own_stays_alone() -> None:
    bus = Bus(Random(0))
    stalls = usual(1.0)
    kinds = [lambda random, at_s: (stalls if at_s > 15 else CALM)(random, at_s), *[CALM] * 3]
    plays = fleet(bus, minimum_delay_s=1.5)
    run(plays, kinds, calls=600, bus=bus)
    end_ns = ns(31)

    assert [play.memory.governor(HERE).is_slow(end_ns) for play in plays] == [True, False, False, False]


def test_it_is_told_at_once_that_everybody_is_slow() -> None:
    wire, play = Wire(), Hedging(budget=1.0)
    play.memory.share(wire, "me")
    run(play, CALM, calls=40, per_s=1.0)
    wire.said.clear()
    for number in range(7):
        plan = play.plan(call(str(number), at_s=60)).hedge
        assert plan is not None
        plan.governor.take(1, ns(64 if number == 6 else 61))

    # None of them is over.
    assert [(event["kind"], event["slow"]) for event in wire.said if "slow" in event] == [(SEEN, True)]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"kind": "sighting", "by": "x"},
        {"kind": SEEN},
        {"kind": SEEN, "by": "x", "spare": "much"},
        {"kind": SEEN, "by": ["x"], "spare": 1.0, "model": 1, "origin": {}},
        {**TOLD, "first_token_s": "soon"},
        {**TOLD, "first_token_s": 1.0, "uncached_tokens": []},
        {**TOLD, "spare": float("nan"), "first_token_s": -1.0},
        {"kind": ASKED, "by": "x", "to": "me", "tokens": "all", "number": 1},
        {"kind": ASKED, "by": "x", "to": "me"},
        {"kind": GIVEN, "by": "x", "to": "me", "tokens": 5, "number": []},
        {"kind": GIVEN, "by": "x", "to": "me", "tokens": -1e9, "number": 0},
    ],
)  # fmt: skip
def test_what_no_replica_can_have_told_changes_nothing(event: dict[str, Any]) -> None:
    play = Hedging()
    play.memory.share(Wire(), "me")
    play.memory.budget.earn(1_000)
    for _ in range(30):
        play.memory.told(event, NS, NS)

    assert play.memory.budget.left == pytest.approx(50)
    assert play.plan(call()).hedge.why_not == TOO_LITTLE_SEEN  # type: ignore[union-attr]


def test_models_of_others_do_not_drive_out_those_that_are_asked_for_here() -> None:
    play = Hedging()
    play.memory.share(Wire(), "me")
    mine = play.memory.governor(HERE)
    for number in range(1_000):
        play.memory.told({**TOLD, "model": f"m{number}", "first_token_s": 0.5}, NS, NS)

    assert play.memory.governor(HERE) is mine
    assert len(play.memory._governors) <= 256


# In a child process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_waits_for_no_lock_of_its_parent_and_has_none_of_its_tokens() -> None:
    play = Hedging()
    play.memory.share(Wire(), "me")
    run(play, CALM, calls=50)
    memory = play.memory
    governor, fleet_of = memory.governor(HERE), memory._fleet
    assert fleet_of is not None
    left = memory.budget.left
    assert left > 0
    locks = (memory._lock, memory.budget._lock, governor._lock, fleet_of._lock)
    holding, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        holding.set()
        may_go.wait()
        for lock in locks:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait()
    if (child := os.fork()) == 0:
        code = 1
        try:
            learned: list[Any] = []

            def learn() -> None:
                learned.append(run(play, CALM, calls=25))
                fleet_of.ask(NS, 1e9)
                learned.append("asked")

            # Where a lock is held, the child ends all the same, and says so.
            thread = threading.Thread(target=learn, daemon=True)
            own = memory.budget.left == 0 and fleet_of.name == f"me-{os.getpid()}"
            thread.start()
            thread.join(20)
            code = 0 if len(learned) == 2 and own else 2
        finally:
            os._exit(code)
    may_go.set()
    holder.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert memory.budget.left == left
    assert fleet_of.name == "me"


def test_a_sighting_is_told_in_numbers_alone() -> None:
    wire = Wire()
    Fleet(wire, "me", Budget(0.05)).tell(HERE, Sighting(model="m", origin=ORIGIN, task="secret", late_s=2.0), True)

    assert wire.said == [
        {"kind": SEEN, "by": "me", "spare": 0.0, "model": "m", "origin": ORIGIN, "slow": True, "late_s": 2.0}
    ]
