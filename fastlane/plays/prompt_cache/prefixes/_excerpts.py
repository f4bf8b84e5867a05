"""The texts around a difference, for `PromptCache(quote=True)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..differences import written

if TYPE_CHECKING:
    from ._departure import Departure
    from ._outline import Outline

_BEFORE = 40
_AFTER = 120
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def excerpts(
    departed: Departure, new: Outline, values: Sequence[Any], earlier: Callable[[int], Any]
) -> tuple[str | None, str | None]:
    """The text around a difference in the earlier prompt and in this one; None for what is not there."""
    place = departed.place
    if place is None:
        return None, None
    old = departed.seen.outline
    before = after = None
    was, now = old.path(place), new.path(place)
    # Where a tool is new or gone, something else stands at its place in the other prompt.
    if place < len(old.digests) and departed.path.startswith(was):
        kept = earlier(old.digests[place])
        if kept is not None:
            before = _around(kept, departed.path.removeprefix(was), departed.character)
    if place < len(values) and departed.path.startswith(now):
        after = _around(values[place], departed.path.removeprefix(now), departed.character)
    return before, after


def _around(value: Any, inside: str, character: int | None) -> str:
    """The text at a path inside a segment, from a little before a character on."""
    for name, index in _STEP.findall(inside):
        if name and isinstance(value, Mapping) and name in value:
            value = value[name]
        elif index and isinstance(value, list | tuple) and int(index) < len(value):
            value = value[int(index)]
        else:
            break
    text = value if isinstance(value, str) else written(value)
    start = max(0, (character or 0) - _BEFORE)
    return text[start : start + _BEFORE + _AFTER]
