"""What a provider itself says of why a prompt was not read from its cache."""

from __future__ import annotations

from typing import Any

from .fields import field

# A reason is a word, as of today "previous_message_not_found" at most. What is longer is none: no text of a provider
# gets into a record unbounded.
_LONGEST = 64
# These say that the provider did not compare, and so nothing of the prompt.
_NOTHING = frozenset(
    {"unavailable", "comparison_response_not_found", "previous_message_not_found", "cache_hit", "cache_miss"}
)


def cache_miss_reason(answer: Any) -> str | None:
    """Return a provider's own word for why a prompt was not read from its cache ("tools_changed").

    `answer` is a whole answer, the response that a Responses stream ends with or the event that it comes in, as an
    object or as a mapping. None where it gives no reason: it read the prompt, could not compare, or says nothing. Never
    raises.
    """
    try:
        return _reason(answer) or _reason(field(answer, "response"))
    except Exception:  # noqa: BLE001 - answers are made of whatever a provider sent
        return None


def _reason(answer: Any) -> str | None:
    diagnostics = field(answer, "prompt_cache_diagnostics")
    if diagnostics is None:
        others = field(answer, "diagnostics")
        diagnostics = field(answer if others is None else others, "cache_miss_reason")
    for _ in range(2):
        if diagnostics is None or isinstance(diagnostics, str):
            break
        inner = field(diagnostics, "reason")
        diagnostics = field(diagnostics, "type") if inner is None else inner
    if not isinstance(diagnostics, str) or not 0 < len(diagnostics) <= _LONGEST or not diagnostics.isidentifier():
        return None
    return None if diagnostics in _NOTHING else diagnostics
