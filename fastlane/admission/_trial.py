"""A trial of more calls at once than usual, or of fewer."""

from __future__ import annotations

from typing import Literal

from ._evidence import Sample
from ._overload import fewest_of

Direction = Literal["up", "down"]


class Trial:
    """A number of calls sent at another level, which is left at once: what becomes of them is waited for."""

    __slots__ = ("_refused", "age", "direction", "level", "need", "over", "results", "sent", "step")

    def __init__(self, direction: Direction, level: int, need: int, step: float) -> None:
        self.direction = direction
        self.level = level
        self.need = need
        self.step = step
        self.age = 0
        self.sent = 0
        self.over = 0
        self.results: list[Sample] = []
        self._refused: list[int] = []

    def lost(self, in_flight: int) -> int | None:
        """One of its calls was refused, sent with so many under way: see `fewest_of`."""
        self._refused.append(in_flight)
        return fewest_of(self._refused, self.sent)


Mark = object | None
"""What a call is told when it is sent, and tells when it is over."""
