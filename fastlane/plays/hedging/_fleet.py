"""What the replicas of an application tell each other about late calls, and how tokens of the budget change hands."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._sighting import Sighting
    from fastlane.knowledge.prediction._upstream import Upstream

    from ._budget import Budget

SEEN, ASKED, GIVEN = "hedging", "hedging_ask", "hedging_give"
"""Kinds of events: what an attempt has shown, and that a replica asks another for tokens, and gets some."""

_NS = 1_000_000_000
# Events take up to 0.2 s to leave, and as long to be heard: after this, an answer is not expected any more.
_ANSWER_NS = _NS
# An older request has been made to somebody else meanwhile.
_MOST_ASKED_AGE_NS = 5 * _NS
# Of a replica without calls the store's thread still answers; of one that has ended, one request gets no answer.
_RICH_NS = 600 * _NS
_MOST_REPLICAS = 256
_MOST_OPEN = 8
# Less than this share of what is wanted is not worth an event.
_LEAST_SHARE = 0.05


class Shares(Protocol):
    """Where what is learned is told to other processes."""

    def publish(self, event: Mapping[str, Any]) -> None:
        """Tell it. Waits for nothing, and raises nothing."""

    def start(self) -> None:
        """Begin to tell and to hear; where that has begun, this does nothing."""


class _Spare(NamedTuple):
    tokens: float
    heard_ns: int


class Fleet:
    """One replica's part in what all of them share.

    Each has a budget of its own, and one that runs short asks the one that has told of most to spare. Tokens leave one
    budget before the event that carries them is sent, and enter the other once, when it is heard and was asked for. So
    each token is in one budget at most, at any time and however long events take, and what all replicas spend never
    exceeds what all have earned. An event that is lost takes its tokens with it. Thread-safe.
    """

    def __init__(self, shares: Shares, name: str, budget: Budget) -> None:
        self._shares = shares
        self.name = name
        """Of this replica: no other has had it before."""
        self._budget = budget
        self._spare: dict[str, _Spare] = {}
        self._open: dict[int, float] = {}
        """Tokens that were asked for, by the number of the request."""
        self._numbers = itertools.count()
        self._quiet_until_ns: int | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to tell and to hear: in a child process it is yet to begin."""
        self._shares.start()

    def tell(self, upstream: Upstream, sighting: Sighting | None, is_slow: bool | None) -> None:
        """Tell what an attempt has shown of an upstream, and whether most are late there; None: too little is known."""
        event: dict[str, Any] = {
            "kind": SEEN,
            "by": self.name,
            "spare": self._budget.spare,
            "model": upstream.model,
            "origin": upstream.origin,
        }
        if is_slow is not None:
            event["slow"] = is_slow
        if sighting is not None:
            for name in ("uncached_tokens", "first_token_s", "late_s"):
                value = getattr(sighting, name)
                if value is not None:
                    event[name] = value
        self._shares.publish(event)

    def ask(self, now_ns: int, tokens: float = 0.0) -> None:
        """Where few tokens are left here, ask for some; `tokens` were needed just now, and were not there."""
        wanted = self._budget.wanted(tokens)
        if wanted <= 0 or not self._spare:
            return
        with self._lock:
            if self._quiet_until_ns is not None and now_ns < self._quiet_until_ns:
                return
            least, since_ns = _LEAST_SHARE * wanted, now_ns - _RICH_NS
            rich = [
                (spare.tokens, name)
                for name, spare in self._spare.items()
                if spare.tokens > least and spare.heard_ns >= since_ns
            ]
            if not rich:
                return
            _, to = max(rich)
            # Until it tells of more: it may have ended.
            self._spare[to] = _Spare(0.0, now_ns)
            number = next(self._numbers)
            self._open[number] = wanted
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
            self._quiet_until_ns = now_ns + _ANSWER_NS
        self._shares.publish({"kind": ASKED, "by": self.name, "to": to, "number": number, "tokens": wanted})

    def told(self, event: Mapping[str, Any], at_ns: int, now_ns: int) -> None:
        """Another replica has told something. Raises TypeError, ValueError or KeyError for what it cannot have told."""
        kind, by = event["kind"], str(event["by"])
        if by == self.name:
            return
        if kind == SEEN:
            self._heard_of(by, float(event["spare"]), at_ns)
        elif event["to"] != self.name:
            return
        elif kind == ASKED and now_ns - at_ns <= _MOST_ASKED_AGE_NS:
            given = self._budget.give(float(event["tokens"]))
            if given > 0:
                answer = {"kind": GIVEN, "by": self.name, "to": by, "number": event["number"], "tokens": given}
                self._shares.publish(answer)
        elif kind == GIVEN:
            tokens = float(event["tokens"])
            with self._lock:
                wanted = self._open.pop(event["number"], 0.0)
                self._quiet_until_ns = None
            if tokens > 0:
                self._budget.receive(min(tokens, wanted))

    def _heard_of(self, name: str, spare: float, at_ns: int) -> None:
        with self._lock:
            before = self._spare.pop(name, None)
            if before is not None and before.heard_ns > at_ns:
                self._spare[name] = before  # it was asked since
                return
            self._spare[name] = _Spare(spare, at_ns)
            if len(self._spare) > _MOST_REPLICAS:
                del self._spare[next(iter(self._spare))]

    def begin_in_child(self) -> None:
        """A child is another replica: what comes for its parent is not for it."""
        self._lock = threading.Lock()
        self.name = f"{self.name}-{os.getpid()}"
        self._quiet_until_ns = None
