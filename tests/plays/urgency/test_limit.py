"""The limit of calls at once: none until the provider refuses, in simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import pytest

from fastlane.plays.urgency.slots import Slot, SlotQueue

S = 1_000_000_000


def sent(queue: SlotQueue, count: int) -> list[Slot]:
    slots = [Slot(queue, 0) for _ in range(count)]
    for slot in slots:
        slot.start(bool)
    assert all(slot.is_granted for slot in slots)
    return slots


def refuse(queue: SlotQueue, *slots: Slot, status: int = 503, headers: Mapping[str, str] = {}) -> None:
    for slot in slots:
        queue.answered(slot, status, headers)
        slot.release()


def limits(
    slot_count: Callable[[float], int], seconds: int, *, answer_s: float = 1.7, jitter: float = 0.6
) -> list[tuple[float, int]]:
    """The limit in each twentieth of a second and how many were refused in it, by a provider without a place for them.

    Three hundred calls are wanted at any time.
    """
    random, now_ns = Random(1), [S]
    queue = SlotQueue(clock=lambda: now_ns[0], call_at=lambda at_ns, do: None)
    served: list[tuple[float, Slot]] = []
    sent_now: list[Slot] = []
    found = []

    def come() -> None:
        slot = Slot(queue, 1)

        def granted() -> bool:
            sent_now.append(slot)
            return True

        slot.start(granted)
        if slot.is_granted:
            sent_now.append(slot)

    for tick in range(seconds * 20):
        refused = 0
        now_ns[0] = S + tick * S // 20
        for ends_s, slot in [one for one in served if one[0] <= tick / 20]:
            served.remove((ends_s, slot))
            slot.release(failed=False)
        for _ in range(300 - sum(queue.in_flight) - sum(queue.queued)):
            come()
        for slot in sent_now:
            if len(served) < slot_count(tick / 20):
                served.append((tick / 20 + answer_s * random.lognormvariate(0, jitter), slot))
                continue
            refuse(queue, slot)
            refused += 1
        sent_now.clear()
        found.append((queue.limit.value, refused))
    return found


@pytest.mark.parametrize("slot_count", [2, 16, 64])
@pytest.mark.parametrize(("answer_s", "jitter"), [(0.2, 0.0), (1.7, 0.6), (3.0, 1.0)])
def test_limit_of_a_refusing_provider_is_found(slot_count: int, answer_s: float, jitter: float) -> None:
    found = limits(lambda _: slot_count, 150, answer_s=answer_s, jitter=jitter)[-1_500:]

    assert sum(limit for limit, _ in found) / len(found) == pytest.approx(slot_count, abs=max(1.1, 0.1 * slot_count))
    # The limiter probes a refusing provider less and less often: a few of a thousand calls are refused.
    assert sum(refused for _, refused in found) <= max(9, 0.2 * slot_count, 0.003 * slot_count * 75 / answer_s)


def test_limit_follows_a_provider_that_shrinks_and_grows() -> None:
    found = limits(lambda at_s: 6 if 100 <= at_s < 200 else 24, 350)

    for first, last, least, most in ((50, 100, 20, 28), (120, 200, 5, 8), (250, 350, 20, 28)):
        some = [limit for limit, _ in found[20 * first : 20 * last]]
        assert least < sum(some) / len(some) < most


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("served", [0, 1, 64, 450])
def test_limit_after_a_burst_is_what_was_served(served: int, in_order: bool) -> None:
    """If all calls are refused there is no limit: an outage has nothing to do with how many are under way."""
    queue = SlotQueue()
    refused = sent(queue, 500)[served:]
    if not in_order:
        Random(0).shuffle(refused)
    refuse(queue, *refused)
    assert queue.limit.value == (served or math.inf)


def test_unneeded_limit_is_removed_after_ten_minutes() -> None:
    now_ns = [S]
    queue = SlotQueue(clock=lambda: now_ns[0])
    first = sent(queue, 40)
    refuse(queue, *first[20:])
    for slot in first[:20]:
        slot.release(failed=False)
    for at_s, limit in ((600, 20), (602, math.inf)):
        now_ns[0] = at_s * S
        sent(queue, 1)[0].release(failed=False)
        assert queue.limit.value == limit


@pytest.mark.parametrize(
    ("status", "headers", "teaches"),
    [
        (429, {"x-ratelimit-remaining-requests": "0"}, False),
        (429, {"retry-after": "1"}, False),
        (429, {"x-ratelimit-remaining-requests": "500", "retry-after-ms": "20"}, False),
        (429, {"x-ratelimit-remaining-requests": "500"}, True),
        (429, {}, True),
        (503, {}, True),
        (529, {}, True),
        (500, {}, False),
    ],
)
def test_limit_is_lowered_by_refusals_of_capacity(status: int, headers: dict[str, str], teaches: bool) -> None:
    queue = SlotQueue()
    refuse(queue, *sent(queue, 8)[4:], status=status, headers=headers)
    assert queue.limit.value == (4 if teaches else math.inf)
