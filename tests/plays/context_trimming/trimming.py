"""Cut a conversation as the play does: a list of messages, with its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastlane.knowledge.tokens import counter
from fastlane.plays.context_trimming.cut import Counting, Marks
from fastlane.plays.context_trimming.play import counted_with
from fastlane.plays.context_trimming.replay import ReplaySettings, new_memory, trim
from fastlane.records import ContextTrimmingRecord

_memory = new_memory()


class TrimmedContext(list[Any]):
    """The messages to send, with what was cut on `record`."""

    record: ContextTrimmingRecord


def trim_context(
    messages: Sequence[Mapping[str, Any]],
    budget: int,
    *,
    low: int | None = None,
    keep_turns: int = 2,
    count: Callable[[Mapping[str, Any]], int] | None = None,
) -> TrimmedContext:
    """Cut down to `low` tokens (half of the budget unless given) what is longer than `budget` tokens."""

    def start(leading: Sequence[Mapping[str, Any]]) -> Counting:
        return (
            counted_with(counter(None), leading, None) if count is None else Counting(count, sum(map(count, leading)))
        )

    marks = Marks(budget, max(1, budget // 2) if low is None else low, keep_turns)
    trimmed = trim("messages", messages, ReplaySettings(marks, _memory, start, (marks, count)))
    found = TrimmedContext(messages if trimmed.messages is None else trimmed.messages)
    found.record = trimmed.record
    return found
