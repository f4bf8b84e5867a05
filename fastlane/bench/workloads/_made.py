"""Conversations that are made when they are asked for, so that thousands of them cost nothing until they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from ._workload import Conversation


@dataclass(frozen=True, slots=True)
class Made(Sequence[Conversation]):
    """The conversations of some numbers: `make(number)` for each. Pickles as its numbers and `make`, without text."""

    numbers: range
    make: Callable[[int], Conversation]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Conversation: ...
    @overload
    def __getitem__(self, at: slice) -> Made: ...
    def __getitem__(self, at: int | slice) -> Conversation | Made:
        if isinstance(at, slice):
            return Made(self.numbers[at], self.make)
        return self.make(self.numbers[at])
