"""The budget of second attempts: a share of the tokens of all calls."""

from __future__ import annotations

import threading

# So many calls' share may be saved up: after a long calm, a bad minute must not cost more than that at once.
_SAVED_CALLS = 400
# Weight of one call in the mean of their tokens, once there have been as many.
_WEIGHT = 1 / 64
# What a replica keeps for itself, below which it asks others, and up to how much it asks: enough for the second that an
# answer takes. In tokens of whole calls, and no more than these shares of what may be saved up.
_KEPT_CALLS, _KEPT = 4, 0.2
_WANTED_CALLS, _WANTED = 10, 0.5


class Budget:
    """A bucket into which every call puts `share` of its tokens, and out of which second attempts are paid.

    There is no credit to start with. So what second attempts have cost and what is reserved for those under way never
    exceeds the share of what all calls have taken until then, as long as none costs more than was reserved for it; what
    one costs beyond that is taken from those after it. What one bucket gives to another is in neither of them until it
    arrives: the same holds for all of them together. Thread-safe.
    """

    __slots__ = ("_calls", "_left", "_lock", "_mean", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = 0.0
        self._mean = 0.0
        self._calls = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Tokens that second attempts may cost now; below 0 where some have cost more than was reserved for them."""
        return self._left

    @property
    def spare(self) -> float:
        """Tokens that would be given away now: half of what is not kept, so that the next to ask gets some too."""
        return max(0.0, (self._left - self._kept()) / 2)

    def wanted(self, tokens: float = 0.0) -> float:
        """Tokens to ask others for; 0 while there are enough. `tokens` were asked for just now, and were not there."""
        if self._left >= max(self._kept(), tokens):
            return 0.0
        return max(min(_WANTED * self._most(), _WANTED_CALLS * self._mean), tokens) - self._left

    def earn(self, tokens: float) -> None:
        """A call is over that took so many tokens, input and output, second attempts not counted."""
        if not tokens > 0:
            return
        with self._lock:
            self._calls += 1
            self._mean += (tokens - self._mean) * max(_WEIGHT, 1 / self._calls)
            self._left = max(self._left, min(self._most(), self._left + self._share * tokens))

    def reserve(self, tokens: float) -> bool:
        """Reserve so many tokens for a second attempt; False where they are not there."""
        with self._lock:
            if not 0 <= tokens <= self._left:
                return False
            self._left -= tokens
            return True

    def settle(self, reserved: float, used: float) -> None:
        """A second attempt is over: give back what it did not use of what was reserved for it."""
        with self._lock:
            self._left += reserved - max(0.0, used)

    def give(self, tokens: float) -> float:
        """Take out up to so many tokens for another bucket, and return how many: no more than are to spare."""
        with self._lock:
            given = min(tokens, self.spare)
            if not given > 0:
                return 0.0
            self._left -= given
            return given

    def receive(self, tokens: float) -> None:
        """Put in what another bucket has given."""
        with self._lock:
            self._left += tokens

    def _most(self) -> float:
        return self._share * _SAVED_CALLS * self._mean

    def _kept(self) -> float:
        return min(_KEPT * self._most(), _KEPT_CALLS * self._mean)

    def begin_in_child(self) -> None:
        """What is left is the parent's, who spends it itself: a copy of it would be a second time as much."""
        self._lock = threading.Lock()
        self._left = 0.0
