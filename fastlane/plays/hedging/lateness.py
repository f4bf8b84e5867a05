"""When a call at one upstream is late, and whether most calls are."""

from __future__ import annotations

from math import inf, log

from fastlane._fork import new_lock
from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.sightings import Sighting
from fastlane.knowledge.speed import Speed

LEAST_SIGHTINGS = 20
"""First tokens of an upstream that have to be seen before one can be late."""
TOO_FEW = f"fewer than {LEAST_SIGHTINGS} first tokens of this model have been seen"
MOST_LATE = "most calls are late"
OVER_BUDGET = "budget"

# The share of late calls beyond that of the quantile, in a calm and where most are late.
_FEW, _MANY = 0.07, 0.23
_MOST_SHARE = 0.95
# Six late calls in a row are enough to open the breaker, and some forty on time to close it.
_OPEN, _MOST = 5.0, 8.0


class Lateness:
    """Knows when a first token of one upstream is late. Its breaker is open while most are. Thread-safe.

    Each call adds to a sum the logarithm of how much likelier its outcome is where many are late than where few are: a
    cumulative sum, held between two bounds (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954).
    """

    __slots__ = (
        "_is_late",
        "_lock",
        "_minimum_delay_s",
        "_on_time",
        "_own",
        "_quantile",
        "_speed",
        "_sum",
        "is_open",
        "sizes",
    )

    def __init__(self, *, quantile: float, minimum_delay_s: float) -> None:
        self._quantile = quantile
        self._minimum_delay_s = minimum_delay_s
        self._lock = new_lock()
        self._speed = Speed()
        self._own = 0
        few, many = (min(_MOST_SHARE, 1 - quantile + more) for more in (_FEW, _MANY))
        few = min(few, many - 0.05)
        self._is_late, self._on_time = log(many / few), log((1 - many) / (1 - few))
        self._sum = 0.0
        self.is_open = False
        """Whether most calls are late, so that a second attempt would be late as well."""
        self.sizes = CallSizes()

    def delay_s(self, uncached_tokens: float) -> float | None:
        """Return the seconds after which a call is late; None where too few first tokens have been seen."""
        if self._speed.first.count < LEAST_SIGHTINGS:
            return None
        return max(self._minimum_delay_s, self._speed.late_after(uncached_tokens, self._quantile))

    def count(self, *, is_late: bool) -> None:
        """Count a call whose first token is late, or has come in time."""
        with self._lock:
            self._sum = min(_MOST, max(0.0, self._sum + (self._is_late if is_late else self._on_time)))
            if self._sum >= _OPEN or self._sum <= 0:
                self.is_open = self._sum >= _OPEN

    def note(self, sighting: Sighting, now_ns: int, *, is_shared: bool = False) -> None:
        """Learn from one attempt; from another process's only until enough have been seen here."""
        seconds = sighting.first_token_s or sighting.late_s
        if seconds is None or not 0 < seconds < inf or (is_shared and self._own >= LEAST_SIGHTINGS):
            return
        with self._lock:
            self._own += not is_shared
            self._speed.note(sighting, now_ns)
