"""What a gate asks of whoever keeps to the provider's rate limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fastlane.records.urgency import Level


class Pace(Protocol):
    """`pacing.Pacer`, as far as a gate needs it: called under the gate's lock, in monotonic nanoseconds."""

    def ready_ns(self, now_ns: int, *, tokens: int, level: Level, is_next: bool = True) -> int: ...

    def spend(self, now_ns: int, *, tokens: int) -> Any: ...

    def answered(self, now_ns: int, spent: Any, status: int, headers: Mapping[str, str]) -> bool: ...

    def settled(self, now_ns: int, spent: Any, tokens: int | None) -> None: ...
