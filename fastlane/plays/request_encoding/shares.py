"""What compression leaves of the bodies of one endpoint, for the next prediction."""

from __future__ import annotations

from fastlane.knowledge.table import Table

from .verdicts import MOST_KEYS, Key

# The share of its bytes that gzip leaves of a JSON body of text: 3.2 to 4 times fewer for real source code
# (docs/plays/request_encoding.md). Until this process has seen what its own bodies are like.
_FIRST_SHARE = 0.27
_WEIGHT = 0.3
# Bodies may become other ones: so many calls after one was found not worth the try, one is tried again.
_TRY_AGAIN = 16


class Shares:
    """What compression leaves of the bodies of one endpoint. Threads may share it."""

    def __init__(self) -> None:
        self._known: Table[Key, float] = Table("compression shares", max_entries=MOST_KEYS)
        self._passed: Table[Key, int] = Table("bodies not compressed", max_entries=MOST_KEYS)

    def expected(self, key: Key) -> float:
        """The share to expect of the next body."""
        return min(1.0, self._known.get(key) or _FIRST_SHARE)

    def learn(self, key: Key, share: float) -> None:
        """A body has shrunk to this share of its bytes."""
        self._known.update(key, lambda known: share if known is None else known + _WEIGHT * (share - known))
        self._passed.pop(key)

    def passed(self, key: Key) -> None:
        """A body was sent as it is because no more was expected."""
        if self._passed.update(key, lambda times: (times or 0) + 1) >= _TRY_AGAIN:
            self._known.pop(key)
            self._passed.pop(key)


shares = Shares()
