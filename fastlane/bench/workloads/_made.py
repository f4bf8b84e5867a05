"""Conversations and messages that are made when they are looked at: thousands of them cost nothing until then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from ._messages import Message
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


@dataclass(frozen=True, slots=True)
class GeneratedMessages(Sequence[Message]):
    """So many messages, or tools, that `write()` writes each time they are looked at: none of their text is kept."""

    size: int
    write: Callable[[], Sequence[Message]]

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...
    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        return self.write()[at]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.write())
