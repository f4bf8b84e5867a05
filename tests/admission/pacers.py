"""A pacer whose rate is known, for tests of who asks it what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastlane.records.urgency import Level

S = 1_000_000_000


class EvenPacer:
    """Lets a call go every so many seconds."""

    def __init__(self, gap_s: float, *, background_from_ns: int = 0) -> None:
        self._gap_ns = int(gap_s * S)
        self._next_ns = 0
        self._background_from_ns = background_from_ns
        self.answers: list[tuple[int, Mapping[str, str]]] = []
        self.settled_tokens: list[int | None] = []

    def ready_ns(self, now_ns: int, *, tokens: int, level: Level, is_next: bool = True) -> int:
        return max(now_ns, self._next_ns, self._background_from_ns if level != "interactive" else 0)

    def spend(self, now_ns: int, *, tokens: int) -> Any:
        self._next_ns = max(now_ns, self._next_ns) + self._gap_ns
        return tokens

    def answered(self, now_ns: int, spent: Any, status: int, headers: Mapping[str, str]) -> bool:
        self.answers.append((status, headers))
        return False

    def settled(self, now_ns: int, spent: Any, tokens: int | None) -> None:
        self.settled_tokens.append(tokens)
