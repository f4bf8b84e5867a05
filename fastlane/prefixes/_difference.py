"""Where and how a prompt departs from an earlier one of which only hashes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastlane._prompt_records import DriftKind
from fastlane.prefixes._outline import Outline
from fastlane.prefixes._sketch import Sketch


class Difference(NamedTuple):
    """The first place where two prompts differ."""

    kind: DriftKind
    index: int  # type: ignore[assignment]
    """The segment of the new outline at which it departs; its length where the new one just ends."""
    path: str
    """The differing value: "messages[7].tool_calls[0].function.arguments"."""
    character: int | None
    """Characters of that value before the difference, rounded down to what is told apart; None where it is no text."""
    before_size: int
    """Characters of the prompt before the difference."""
    lost_size: int
    """Characters that would have been in common but for the difference."""


def difference(
    old: Outline, new: Outline, values: Sequence[Any], sketch_of: Callable[[int], Sketch | None]
) -> Difference | None:
    """Where and why `new` departs from `old`; None where one begins with all of the other."""
    raise NotImplementedError


def similarity(old: Sketch, value: Any) -> float:
    """How much of a segment is the same as what was sketched: 0 to 1."""
    raise NotImplementedError
