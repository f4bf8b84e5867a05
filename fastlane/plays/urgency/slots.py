"""The slots of one origin, account and model: how many calls may be under way at once, and who gets the next slot."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from fastlane.engine.request_queue import GRANTED, QueueTicket, RequestQueue
from fastlane.knowledge.table import Table

_S = 1_000_000_000
_TOO_MANY = 429
_REFUSALS = frozenset({_TOO_MANY, 503, 529})
# A limit for which no call has waited in so long is forgotten.
_FORGOTTEN_NS = 600 * _S
# A limit that calls wait for grows after so long; a limit that was met again, after twice as long as before.
_HOLD_NS, _LONGEST_HOLD_NS = 5 * _S, 60 * _S
# Some providers refuse a few calls whatever is under way. It is for the number of calls where at least two, and more
# than this share, of the latest calls that were sent among as many were refused: beyond a limit nearly all are.
_OVERLOAD = 0.2
_LATEST = 64


class Slot(QueueTicket):
    """One attempt's slot."""

    __slots__ = ("concurrency", "in_flight", "is_refused", "max_concurrency", "number", "reserved")

    def __init__(
        self,
        queue: SlotQueue,
        level: int,
        *,
        max_concurrency: int | None = None,
        reserved: float = 0.05,
        **settings: Any,
    ) -> None:
        """`settings`: see `QueueTicket`."""
        super().__init__(queue, level, **settings)
        self.max_concurrency = math.inf if max_concurrency is None else max_concurrency
        self.reserved = reserved
        self.concurrency: int | None = None
        """The limit when it was granted; None: there was none."""
        self.number = self.in_flight = 0
        self.is_refused = False


class ConcurrencyLimit:
    """How many calls may be under way at once: any number until the provider refuses some, then as many as it served.

    Additive increase and decrease by refusals: a refusal lowers the limit to the calls that are being served. While
    calls wait, it grows by 1, then 2, 4, 8 and so on, until the provider refuses again.
    """

    def __init__(self) -> None:
        self.value = math.inf
        self.number = 0
        """How many calls were sent: tells a call sent after a refusal from one before it."""
        self._latest: deque[tuple[int, int]] = deque(maxlen=_LATEST)
        """The latest calls: number, and how many were under way with it."""
        self._refused: dict[int, int] = {}
        """Those of them that were refused."""
        self._proven = math.inf
        """Of the calls that were answered since the limit changed, the most that were under way."""
        self._confirmed = math.inf
        """The limit before it grew. A call that is sent among more is a trial."""
        self._cut_at = 0
        self._before = math.inf
        """The limit before the latest cut."""
        self._step, self._hold_ns = 1, _HOLD_NS
        self._changed_ns = self._wanted_ns = 0
        self._is_wanted = False

    def wanted(self, now: int) -> None:
        """A call waits for a slot."""
        self._is_wanted, self._wanted_ns = True, now

    def sent(self, now: int, in_flight: int) -> None:
        """A call is sent; so many are under way with it."""
        self.number += 1
        if len(self._latest) == _LATEST:
            self._refused.pop(self._latest[0][0], None)
        self._latest.append((self.number, in_flight))
        if self.value < math.inf and now - max(self._wanted_ns, self._changed_ns) > _FORGOTTEN_NS:
            self.value = self._confirmed = math.inf

    def answered(self, now: int, in_flight: int) -> None:
        """A call that was sent among so many was answered, and is over."""
        if self.value == math.inf:
            return
        self._proven = max(self._proven, min(in_flight, self.value))
        if self._is_wanted and now - self._changed_ns >= self._hold_ns:
            if self._step > 1:
                self._hold_ns = _HOLD_NS  # the step before this one was not refused
            self._confirmed = self._proven
            self._set(now, self.value + self._step)
            self._step *= 2

    def refused(self, now: int, number: int, in_flight: int, serving: int) -> None:
        """The `number`-th call was refused, sent among so many; `serving` others are under way and not refused."""
        if in_flight <= 1:
            return  # it was alone: the number of calls was not why
        if number > self._cut_at:
            self._refused[number] = in_flight
            is_trial = in_flight > self._confirmed
            if not self._is_overload(is_trial=is_trial) or serving >= self.value:
                return
            # A call that was sent before this was known belongs to the same refusal.
            self._cut_at = self.number
            self._hold_ns = min(2 * self._hold_ns, _LONGEST_HOLD_NS) if is_trial else _HOLD_NS
            self._before = self.value
            self._latest.clear()
            self._refused.clear()
        if not serving:
            # All were refused, however many there were: their number was not why.
            self._confirmed = self._before
            self._set(now, self._before)
        elif serving < self.value:
            self._confirmed, self._step = serving, 1
            self._set(now, serving)

    def _is_overload(self, *, is_trial: bool) -> bool:
        """Whether most calls that are sent among as many are refused. One refused trial is enough, two of others."""
        refused = [among for among in self._refused.values() if not is_trial or among > self._confirmed]
        if len(refused) < (1 if is_trial else 2):
            return False
        fewest = min(refused)
        return len(refused) > _OVERLOAD * sum(in_flight >= fewest for _, in_flight in self._latest)

    def _set(self, now: int, value: float) -> None:
        self.value, self._changed_ns, self._is_wanted, self._proven = value, now, False, 0


class SlotQueue(RequestQueue):
    """Grants slots while fewer calls are under way than the provider serves, or than `max_concurrency`."""

    def __init__(self, **settings: Any) -> None:
        """`settings`: see `RequestQueue`."""
        self.limit = ConcurrencyLimit()
        self.in_flight = [0, 0, 0]
        self._refusing = 0
        """Calls under way that the provider has refused."""
        super().__init__(**settings)

    def ready_ns(self, ticket: Slot, level: int, now: int) -> int | None:
        """See `RequestQueue`."""
        places = min(self.limit.value, ticket.max_concurrency)
        if places == math.inf:
            return now
        kept = max(1, int(ticket.reserved * places)) if level and ticket.reserved and places >= 2 else 0
        if sum(self.in_flight) + kept < places:
            return now
        self.limit.wanted(now)
        return None

    def on_granted(self, ticket: Slot, now: int) -> None:
        """See `RequestQueue`."""
        places = min(self.limit.value, ticket.max_concurrency)
        ticket.concurrency = None if places == math.inf else int(places)
        ticket.in_flight = sum(self.in_flight) + 1
        self.limit.sent(now, ticket.in_flight)
        ticket.number = self.limit.number
        self.in_flight[ticket.level] += 1

    def on_released(self, ticket: Slot, now: int, *, failed: bool) -> None:
        """See `RequestQueue`."""
        if not failed and not ticket.is_refused:
            self.limit.answered(now, ticket.in_flight)
        self._refusing -= ticket.is_refused
        self.in_flight[ticket.level] -= 1

    def on_fork(self) -> None:
        """See `RequestQueue`."""
        self.in_flight = [0, 0, 0]
        self._refusing = 0

    def answered(self, slot: Slot, status: int, headers: Mapping[str, str]) -> None:
        """Take note of the head of a response: 429, 503 and 529 may tell of too many calls at once."""
        if status not in _REFUSALS or (status == _TOO_MANY and _is_rate_limit(headers)):
            return
        with self.lock:
            if slot.state == GRANTED and slot.round is self._round and not slot.is_refused:
                now = self.clock()
                slot.is_refused = True
                self._refusing += 1
                self.limit.refused(now, slot.number, slot.in_flight, sum(self.in_flight) - self._refusing)
                self.grant_all(now)


def _is_rate_limit(headers: Mapping[str, str]) -> bool:
    """Whether a refusal is one of a limit per time, which tells nothing of how many calls are served at once."""
    return any(
        name in ("retry-after", "retry-after-ms") or ("ratelimit-remaining" in name and value == "0")
        for name, value in headers.items()
    )


# A queue with calls is kept, however many there are.
queues: Table[tuple[str, bytes, str | None], SlotQueue] = Table(
    "slots", max_entries=1_024, expires_s=1_800, in_use=lambda queue: any(queue.in_flight) or any(queue.queued)
)
"""By origin, account and model."""
