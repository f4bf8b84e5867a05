"""Read the reason that a provider gives for a cache miss."""

from __future__ import annotations

from typing import Any

from .fields import field

# The longest reason as of today is "previous_message_not_found". Longer texts are ignored: records must stay bounded.
_LONGEST = 64
# Reasons that do not concern the prompt: the provider did not compare it.
_NOTHING = frozenset(
    {"unavailable", "comparison_response_not_found", "previous_message_not_found", "cache_hit", "cache_miss"}
)


def cache_miss_reason(answer: Any) -> str | None:
    """Return the reason that a provider gives for a cache miss, such as "tools_changed".

    `answer` is a whole answer, the response that ends a Responses stream, or its event, as an object or a mapping. None
    if there was a hit, no comparison, or no reason. Never raises.
    """
    try:
        return _reason(answer) or _reason(field(answer, "response"))
    except Exception:  # noqa: BLE001 - an answer may contain anything
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
