"""One choice of an answer in the place of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def with_choice(answer: Mapping[str, Any], repaired: Mapping[str, Any], choice: int) -> dict[str, Any]:
    """Return a chat or completions answer in which the choice of this index is the first one of another answer.

    Everything else is the first answer's, `usage` too. An answer without such a choice comes back as it was.
    """
    given, others = answer.get("choices"), repaired.get("choices")
    if not isinstance(given, list) or not isinstance(others, list) or not others or not isinstance(others[0], Mapping):
        return dict(answer)
    choices = [
        {**others[0], "index": choice} if isinstance(each, Mapping) and each.get("index", position) == choice else each
        for position, each in enumerate(given)
    ]
    return {**answer, "choices": choices}
