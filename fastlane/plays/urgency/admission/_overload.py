"""Whether calls were refused because so many were under way, or for the provider's own reasons."""

from __future__ import annotations

from collections import deque

# Some providers refuse a few calls whatever is under way. It is for the number of calls where at least two, and more
# than this share, of those that were sent among as many were refused: beyond a limit nearly all are.
_FOR_THE_NUMBER = 0.2
# It is looked for among the latest calls: so many for each under way, and no fewer or more than this.
_FOR_EACH, _FEWEST, _MOST = 2, 16, 64


class Overload:
    """The latest calls and refusals, each with how many were under way."""

    __slots__ = ("_number", "_refused", "_sent")

    def __init__(self) -> None:
        self._number = 0
        self._sent: deque[int] = deque(maxlen=_MOST)
        self._refused: deque[tuple[int, int]] = deque(maxlen=_MOST)

    def sent(self, in_flight: int) -> None:
        """A call is sent, with so many under way, itself included."""
        self._number += 1
        self._sent.append(in_flight)

    def refused(self, number: int, in_flight: int, *, since: int) -> bool:
        """Return whether the `number`-th call, sent among so many, and others were refused for their number.

        Calls up to the `since`-th count no more.
        """
        self._refused.append((number, in_flight))
        lately = min(_MOST, max(_FEWEST, _FOR_EACH * in_flight))
        first = max(since, self._number - lately)
        refused = [among for one, among in self._refused if one > first]
        if len(refused) < 2:
            return False
        fewest = min(refused)
        as_many = sum(among >= fewest for among in list(self._sent)[first - self._number :])
        return len(refused) > _FOR_THE_NUMBER * as_many
