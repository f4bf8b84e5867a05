"""The provider's queue: a number of places, the highest tier first, then first come, first served."""

from __future__ import annotations

import asyncio
import heapq


class Admission:
    """Lets `places` requests run at once."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0
        self.waiting = 0
        """How many wait for a place."""

    @property
    def full(self) -> bool:
        """Whether one who comes now would have to wait."""
        return self._free <= 0

    def set_places(self, places: int) -> None:
        """Let so many run at once from now on; those that run already stay."""
        self._free += places - self._places
        self._places = places
        while self._free > 0 and self._hand_over():
            self._free -= 1

    async def enter(self, rank: int) -> bool:
        """Take a place, waiting if there is none; returns whether it had to wait."""
        if self._free > 0:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-rank, self._arrivals, turn))
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been handed over in the very moment of the cancellation.
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        finally:
            self.waiting -= 1
        return True

    def leave(self) -> None:
        """Give the place to the next in line."""
        if self._free < 0 or not self._hand_over():
            self._free += 1

    def _hand_over(self) -> bool:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return True
        return False
