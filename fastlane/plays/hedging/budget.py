"""The budget of second attempts: a share of the tokens of all calls."""

from __future__ import annotations

from fastlane._fork import new_lock, starts_over

# So many calls' share may be saved up: after a long calm, a bad minute must not cost more than that at once.
_SAVED_CALLS = 400
# Weight of one call in the mean of their tokens, once there have been as many.
_WEIGHT = 1 / 64


class Budget:
    """A bucket into which every call puts `share` of its tokens, and out of which second attempts are paid.

    There is no credit to start with. So what second attempts have cost and what is reserved for those under way never
    exceeds the share of what all calls have taken until then, as long as none costs more than was reserved for it; what
    one costs beyond that is taken from those after it. The same holds for all processes together, as each spends its
    own. Thread-safe.
    """

    __slots__ = ("__weakref__", "_calls", "_left", "_lock", "_mean", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = 0.0
        self._mean = 0.0
        self._calls = 0
        self._lock = new_lock()
        starts_over(self)

    @property
    def left(self) -> float:
        """Tokens that second attempts may cost now; below 0 where some have cost more than was reserved for them."""
        return self._left

    def earn(self, tokens: float) -> None:
        """Note that a call took so many tokens, input and output, second attempts not counted."""
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
        """Give back what a second attempt did not use of what was reserved for it."""
        with self._lock:
            self._left += reserved - max(0.0, used)

    def _most(self) -> float:
        return self._share * _SAVED_CALLS * self._mean

    def begin_in_child(self) -> None:
        """See `StartsOver`: what is left is the parent's, and a copy of it would be a second time as much."""
        self._left = 0.0
