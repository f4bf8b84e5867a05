"""Which of two ways of a call comes first: the one that brings the first content, and never both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._leg import Leg


class Race:
    """The ways of one call that are under way at once. Thread-safe."""

    def __init__(self, first: Leg) -> None:
        self._lock = threading.Lock()
        self._under_way: list[Leg] = [first]
        self._is_closed = False
        self.winner: Leg | None = None
        """Whose content came first; None while none has."""
        first.race = self

    def has_room(self, may_enter: Callable[[], bool]) -> bool:
        """A second way is to be made: whether it still makes sense, and `may_enter` allows it."""
        with self._lock:
            return not self._is_closed and self.winner is None and may_enter()

    def enter(self, leg: Leg, entered: Callable[[], None]) -> bool:
        """A second way is to begin: whether it still makes sense; `entered` is called before anything else happens."""
        with self._lock:
            if self._is_closed or self.winner is not None:
                return False
            leg.race = self
            entered()
            self._under_way.append(leg)
        return True

    def claim(self, leg: Leg) -> bool:
        """The first content of a way has come: whether no other was faster. Those that lose are given up."""
        with self._lock:
            if self.winner is None:
                self.winner = leg
            won = self.winner is leg
            losers = [one for one in self._under_way if one is not leg] if won else []
            # A loser takes some time to notice, and is nothing to count on meanwhile.
            self._under_way = [one for one in self._under_way if one not in losers]
        for loser in losers:
            loser.lose()
        return won

    def ended(self, leg: Leg) -> bool:
        """A way has failed: whether another is under way. From here on none begins that has not."""
        with self._lock:
            self._is_closed = True
            if leg in self._under_way:
                self._under_way.remove(leg)
            return bool(self._under_way)

    def goes_on_without(self, leg: Leg) -> bool:
        """Whether another way is under way beside this one; if not, none will begin any more."""
        with self._lock:
            others = any(one is not leg for one in self._under_way)
            self._is_closed = self._is_closed or not others
            return others

    def close(self) -> None:
        """No further way begins."""
        with self._lock:
            self._is_closed = True
