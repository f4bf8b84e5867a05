"""The limits that several clients of one gate have set: the strictest of those given lately."""

from __future__ import annotations

from ._settings import AdmissionSettings

# A bound that one client has set holds for all of its gate so long after that client's last call.
_LATELY_NS = 600_000_000_000
# So often it is noted that they are still given: not for every call.
AGAIN_NS = 10_000_000_000

_Given = tuple[int | None, float | None, float | None]
"""The most at once, requests per minute and tokens per minute that somebody has set."""


class Bounds:
    """What clients have set, each with the time at which it was last given."""

    __slots__ = ("_given", "by", "noted_ns")

    def __init__(self) -> None:
        self._given: dict[_Given, int] = {}
        self.by: AdmissionSettings | None = None
        """The settings that were noted last."""
        self.noted_ns = 0

    def note(self, settings: AdmissionSettings, now: int) -> bool:
        """A client comes that keeps to these; whether it has to be looked which are the strictest now."""
        given, all_given = (
            (settings.max_concurrency, settings.requests_per_minute, settings.tokens_per_minute),
            self._given,
        )
        if now - all_given.get(given, -AGAIN_NS) < AGAIN_NS:
            self.by, self.noted_ns = settings, all_given[given]
            return False
        all_given[given] = now
        for one, given_ns in list(all_given.items()):
            if now - given_ns > _LATELY_NS:
                del all_given[one]
        return True

    def strictest(self) -> _Given:
        """The least of each; None where nobody has set any."""
        most = min((most for most, _, _ in self._given if most is not None), default=None)
        requests = min((of for _, of, _ in self._given if of is not None), default=None)
        tokens = min((of for _, _, of in self._given if of is not None), default=None)
        return most, requests, tokens
