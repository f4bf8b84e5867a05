"""What compression leaves of the bodies of one endpoint, for the next prediction."""

from __future__ import annotations

from ._verdicts import MOST_KEYS, Key, bounded

# The share of its bytes that gzip leaves of a JSON body of text: 3.2 to 4 times fewer for real source code
# (docs/plays/encoding.md). Until this process has seen what its own bodies are like.
_FIRST_SHARE = 0.27
_WEIGHT = 0.3
# Bodies may become other ones: so many calls after one was found not worth the try, one is tried again.
_TRY_AGAIN = 16


class Shares:
    """What compression leaves of the bodies of one endpoint. A lost update between threads does no harm."""

    def __init__(self) -> None:
        self._known: dict[Key, float] = {}
        self._passed: dict[Key, int] = {}

    def expected(self, key: Key) -> float:
        """The share to expect of the next body."""
        return min(1.0, self._known.get(key, _FIRST_SHARE))

    def learn(self, key: Key, share: float) -> None:
        """A body has shrunk to this share of its bytes."""
        known = self._known.get(key)
        self._known[key] = share if known is None else known + _WEIGHT * (share - known)
        self._passed.pop(key, None)
        bounded(self._known, MOST_KEYS)

    def passed(self, key: Key) -> None:
        """A body was sent as it is because no more was expected."""
        times = self._passed[key] = self._passed.get(key, 0) + 1
        if times >= _TRY_AGAIN:
            self._known.pop(key, None)
            self._passed.pop(key, None)
        bounded(self._passed, MOST_KEYS)


shares = Shares()
