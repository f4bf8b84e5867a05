"""What a provider itself says of why a prompt was not read from its cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fastlane.records.prompt import DriftKind


class Reason(NamedTuple):
    """What a provider's word says in ours."""

    kind: DriftKind
    path: str | None
    """The value that differs, where the word names one."""
    beginnings: tuple[str, ...]
    """How the paths of what it may mean begin: a finding of ours at one of them is the same one, only finer."""


_MESSAGES = ("messages", "input", "instructions", "prompt", "system")
_REASONS: Mapping[str, Reason] = {
    # OpenAI: `PromptCacheDiagnosticsCacheMiss.reason` in openai/types/responses/response.py, 2.47.
    "model_changed": Reason("changed_model", "model", ("model",)),
    "prompt_cache_key_changed": Reason("changed_parameter", "prompt_cache_key", ("prompt_cache_key",)),
    "tools_changed": Reason("changed_tool", "tools", ("tools",)),
    "text_format_changed": Reason("changed", "text.format", ("text.format", "response_format")),
    "reasoning_effort_changed": Reason("changed_parameter", "reasoning.effort", ("reasoning",)),
    "verbosity_changed": Reason("changed_parameter", "text.verbosity", ("text.verbosity", "verbosity")),
    "service_tier_changed": Reason("changed_parameter", "service_tier", ("service_tier",)),
    "context_compacted": Reason("compacted", None, ()),
    # It does not say how, and what is written before the messages is an input too.
    "input_changed": Reason("changed", None, (*_MESSAGES, "tools", "text.format")),
    # Anthropic: `cache_miss_reason` of its Messages API, anthropic 2.10; it shares two words with the above.
    "system_changed": Reason("changed", "system", ("messages", "instructions", "system", "input")),
    "messages_changed": Reason("changed", "messages", _MESSAGES),
}


def meaning(reason: str | None) -> Reason | None:
    """Return what a provider's word says in ours; None for no word, and for one that is not known."""
    return None if reason is None else _REASONS.get(reason)
