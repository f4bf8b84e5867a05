"""The governor of one upstream: when a call there is late, and whether a second attempt is to be made then."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

from fastlane._fork import new_lock, starts_over
from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.prediction._speed import Speed

from ._regime import Awaited, Regime
from ._usual import Usual

if TYPE_CHECKING:
    from fastlane.knowledge.prediction._sighting import Sighting

    from ._budget import Budget

LEAST_SIGHTINGS = 20
"""First tokens of an upstream that have to be seen before one can be late."""
TOO_LITTLE_SEEN = f"fewer than {LEAST_SIGHTINGS} first tokens of this model have been seen"
SLOW = "everybody is slow"
SPENT = "budget"

# Only how much longer a longer prompt takes counts here, and is learned.
_UNKNOWN_FIRST_TOKEN_S = ((1_000, 0.5), (10_000, 1.0))
_UNKNOWN_TOKENS_PER_S = 100.0
_USUAL_TOKENS = 1_000.0
# A process that has seen as many first tokens within this time needs none of others, which may be elsewhere.
_OWN_NS = 60_000_000_000


class Governor:
    """Knows when an answer of one upstream is late, and stops second attempts while most are. Thread-safe.

    Time comes in as monotonic nanoseconds. `budget` is shared by all upstreams of a play.
    """

    __slots__ = (
        "__weakref__", "_lock", "_minimum_delay_s", "_own_ns", "_quantile", "_regime", "_seen", "_speed", "_usual",
        "budget", "sizes",
    )  # fmt: skip

    def __init__(self, budget: Budget, *, quantile: float, minimum_delay_s: float) -> None:
        self.budget = budget
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._lock = new_lock()
        self._begin()
        starts_over(self)

    def _begin(self) -> None:
        self.sizes = CallSizes()
        self._speed = Speed(first_token_s=_UNKNOWN_FIRST_TOKEN_S, tokens_per_s=_UNKNOWN_TOKENS_PER_S)
        self._usual = Usual()
        self._regime = Regime(self._quantile)
        self._seen = 0
        self._own_ns: deque[int] = deque(maxlen=LEAST_SIGHTINGS)

    def begin_in_child(self) -> None:
        """See `StartsOver`: what another thread of the parent was changing is half changed, and is found out anew."""
        if self._lock.locked():
            self._begin()

    def is_slow(self, now_ns: int) -> bool:
        """Whether most answers are late, so that no second attempt is made."""
        return self._regime.is_slow

    def delay(
        self, uncached_tokens: float, now_ns: int, call: CallGovernor | None = None
    ) -> tuple[float | None, str | None]:
        """Return the seconds after which a call that begins now is late, or None and why there are none.

        Whether `call` is late then counts for whether everybody is slow.
        """
        with self._lock:
            if self._seen < LEAST_SIGHTINGS:
                return None, TOO_LITTLE_SEEN
            delay_s = self._usual.late_after(self._quantile) * self._scale(uncached_tokens, now_ns)
            delay_s = max(self._minimum_delay_s, delay_s)
            if call is not None:
                call.awaited = self._regime.began(delay_s, now_ns)
            return delay_s, None

    def late(self, tokens: float, now_ns: int, awaited: Awaited | None = None) -> str | None:
        """A call is late: reserve `tokens` of the budget for a second attempt; None allows it, else why not."""
        with self._lock:
            self._regime.late(awaited, now_ns)
            if self._regime.is_slow:
                return SLOW
        return None if self.budget.reserve(tokens) else SPENT

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt at this upstream."""
        with self._lock:
            self._regime.settle(now_ns)
            if self._learn(sighting, now_ns):
                self._own_ns.append(now_ns)
                if self._knows_itself(now_ns) and self._usual.own >= LEAST_SIGHTINGS:
                    self._usual.forget_shared()

    def learn_shared(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from an attempt of another process, unless enough have been seen here of late."""
        with self._lock:
            if not self._knows_itself(now_ns):
                self._learn(sighting, now_ns, is_shared=True)

    def _knows_itself(self, now_ns: int) -> bool:
        return len(self._own_ns) == LEAST_SIGHTINGS and now_ns - self._own_ns[0] <= _OWN_NS

    def _learn(self, sighting: Sighting, now_ns: int, *, is_shared: bool = False) -> bool:
        """Whether a first token was seen."""
        seconds = sighting.first_token_s or sighting.late_s
        if seconds is None or not 0 < seconds < inf:
            return False
        self._speed.note(sighting, now_ns)
        usual_s = seconds / self._scale(sighting.uncached_tokens, now_ns)
        self._usual.note(usual_s, now_ns, is_slow=self._regime.is_slow, is_shared=is_shared)
        is_seen = sighting.first_token_s is not None
        self._seen += is_seen
        return is_seen

    def _scale(self, uncached_tokens: float | None, now_ns: int) -> float:
        """How many times as long a prompt of this size takes as a usual one."""
        if uncached_tokens is None:
            return 1.0
        return self._speed.first_token(uncached_tokens, now_ns) / self._speed.first_token(_USUAL_TOKENS, now_ns)


class CallGovernor:
    """The governor's word on one call, which remembers what it has reserved for it."""

    __slots__ = ("_governor", "awaited", "reserved")

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self.awaited: Awaited | None = None
        """What counts for whether everybody is slow; None where it does not count."""
        self.reserved = 0.0
        """Tokens of the budget that are reserved."""

    def take(self, tokens: float, now_ns: int) -> str | None:
        """The call is late: reserve `tokens` for a second attempt; None allows it, else why not. Call it once."""
        why_not = self._governor.late(tokens, now_ns, self.awaited)
        if why_not is None:
            self.reserved += tokens
        return why_not

    def settle(self, used: float | None) -> None:
        """The call is over, and its second attempt cost `used` tokens; None: as many as were reserved."""
        reserved, self.reserved = self.reserved, 0.0
        if used is not None and (reserved or used):
            self._governor.budget.settle(reserved, used)
