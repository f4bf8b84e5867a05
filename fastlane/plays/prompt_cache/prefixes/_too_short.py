"""Whether a prompt is so short that its provider's cache keeps nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._outline import Outline

# What stands in a request by its name alone, and is read by the model in full.
_ELSEWHERE = ("previous_response_id", "conversation")
_MESSAGES = (None, "message", "function_call", "function_call_output")
_TEXTS = ("text", "input_text", "output_text", "refusal")


def is_too_short(body: Mapping[str, Any], outlined: Outline, segments: list[Any], minimum_tokens: int | None) -> bool:
    """Whether a prompt is as good as certain to have fewer tokens than a provider keeps prompts from.

    A token is seldom less than a character, so that a text of fewer characters than that many tokens is too short. (One
    of rare emoji or scripts may be taken for too short: that costs it a cache key, and nothing else.) What
    has another size than its words in the request say, such as an image or a tool of the provider's own, never is; nor
    is any prompt where the minimum is not known.
    """
    if minimum_tokens is None or sum(outlined.sizes) >= minimum_tokens:
        return False
    if any(body.get(name) is not None for name in _ELSEWHERE):
        return False
    # Of the Responses API it is a template kept by the provider; of completions it is the prompt.
    return not isinstance(body.get("prompt"), Mapping) and all(_says_its_size(segment) for segment in segments)


def _says_its_size(segment: Any) -> bool:
    """Whether a segment is text and functions."""
    if not isinstance(segment, Mapping):
        return isinstance(segment, str)
    kind = segment.get("type")
    if "role" not in segment and kind in ("function", "json_schema", "json_object", "text"):
        return True
    content = segment.get("output" if kind == "function_call_output" else "content")
    return kind in _MESSAGES and (
        content is None
        or isinstance(content, str)
        or (
            isinstance(content, list)
            and all(isinstance(part, Mapping) and part.get("type") in _TEXTS for part in content)
        )
    )
