"""What a provider itself says of why a prompt was not read from its cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A reason is a word, as of today "previous_message_not_found" at most. What is longer is none: no text of a provider
# gets into a record unbounded.
_LONGEST = 64
# These say that the provider did not compare, and so nothing of the prompt.
_NOTHING = frozenset({"unavailable", "comparison_response_not_found", "previous_message_not_found", "cache_hit"})
_NOT_PYDANTIC = object()


def cache_miss_reason(answer: Any) -> str | None:
    """Return a provider's own word for why a prompt was not read from its cache ("tools_changed").

    `answer` is a whole answer, the response that a Responses stream ends with or the event that it comes in, as an
    object or as a mapping. None where it gives no reason: it read the prompt, could not compare, or says nothing. Never
    raises.
    """
    try:
        return _reason(answer)
    except Exception:  # noqa: BLE001 - answers are made of whatever a provider sent
        return None


def _reason(answer: Any) -> str | None:
    for whole in (answer, _member(answer, "response")):
        if whole is None:
            continue
        diagnostics = _member(whole, "prompt_cache_diagnostics")
        if diagnostics is None:
            of_others = _member(whole, "diagnostics")
            diagnostics = _member(whole if of_others is None else of_others, "cache_miss_reason")
        found = _word(diagnostics)
        if found is not None:
            return found
    return None


def _word(diagnostics: Any) -> str | None:
    """The reason as a text, or in an object that has it as its reason, or else as its type."""
    for _ in range(2):
        if diagnostics is None or isinstance(diagnostics, str):
            break
        inner = _member(diagnostics, "reason")
        diagnostics = _member(diagnostics, "type") if inner is None else inner
    if not isinstance(diagnostics, str) or not 0 < len(diagnostics) <= _LONGEST or not diagnostics.isidentifier():
        return None
    return None if diagnostics in _NOTHING or diagnostics == "cache_miss" else diagnostics


def _member(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    # A pydantic object takes three microseconds to say that it has no such attribute, and every answer is asked.
    further: Any = getattr(value, "__pydantic_extra__", _NOT_PYDANTIC)
    if further is _NOT_PYDANTIC:
        return getattr(value, name, None)
    found = value.__dict__.get(name)
    return further.get(name) if found is None and further else found
