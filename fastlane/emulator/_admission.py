"""The provider's queue: a number of places, the highest tier first, then first come, first served."""

from __future__ import annotations

import asyncio
import heapq


class Admission:
    """Lets `places` requests run at once."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    async def enter(self, rank: int) -> bool:
        """Take a place, waiting if there is none; returns whether it had to wait."""
        if self._free:
            self._free -= 1
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (-rank, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # The place may have been handed over in the very moment of the cancellation.
            if turn.done() and not turn.cancelled():
                self.leave()
            raise
        return True

    def leave(self) -> None:
        """Give the place to the next in line."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
