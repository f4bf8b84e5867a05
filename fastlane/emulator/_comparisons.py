"""OpenAI's diagnostics of its prompt cache: why a response did not read what an earlier one had written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastlane.emulator import _tokens
from fastlane.emulator._log import OpenRecord
from fastlane.emulator._prompt import GenerationRequest

# Finer than what is cached, so that the place of a change is told well.
_BLOCK_TOKENS = 16
_MOST_RESPONSES = 1_000


@dataclass(frozen=True, slots=True)
class _Seen:
    """One response's prompt; `parts` are what may have changed, in the order in which it is looked at."""

    parts: Mapping[str, str]
    blocks: tuple[bytes, ...]
    tokens: int


class Comparisons:
    """The prompts of the latest responses, as digests."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def diagnostics(self, prompt: GenerationRequest, tier: str, record: OpenRecord) -> Mapping[str, object]:
        """Remember a response's prompt, and return `prompt_cache_diagnostics` if the request asks for it."""
        if not record.path.rstrip("/").endswith("/responses"):
            return {}
        seen = _Seen(
            _parts(prompt, tier), _tokens.prefix_digests(prompt.text, block_tokens=_BLOCK_TOKENS), record.prompt_tokens
        )
        earlier = self._seen.get(prompt.compare_with or "")
        self._seen[f"resp_{record.sequence_number:012d}"] = seen
        if len(self._seen) > _MOST_RESPONSES:
            del self._seen[next(iter(self._seen))]
        if prompt.compare_with is None:
            return {}
        if earlier is None:
            return {"prompt_cache_diagnostics": {"type": "comparison_response_not_found"}}
        return {"prompt_cache_diagnostics": _compared(earlier, seen, prompt, record.cached_tokens)}


def _compared(earlier: _Seen, seen: _Seen, prompt: GenerationRequest, cached_tokens: int) -> Mapping[str, object]:
    common = 0
    for one, other in zip(earlier.blocks, seen.blocks, strict=False):
        if one != other:
            break
        common += 1
    reason = next((name for name, part in seen.parts.items() if part != earlier.parts[name]), None)
    if reason is None and common < len(earlier.blocks):
        reason = "context_compacted" if _is_compacted(prompt) else "input_changed"
    if reason is not None:
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": seen.tokens - common * _BLOCK_TOKENS,
            "comparison_reusable_tokens": common * _BLOCK_TOKENS,
        }
    # Nothing has changed: what was not read has expired, or lies on another machine, or is too short.
    return {"type": "cache_hit" if cached_tokens else "unavailable"}


def _parts(prompt: GenerationRequest, tier: str) -> dict[str, str]:
    body = prompt.body
    text = body.get("text")
    form = text.get("format") if isinstance(text, Mapping) else None
    effort, verbosity, *_ = (*prompt.cache_lane, None, None)
    values: dict[str, Any] = {
        "model_changed": prompt.model,
        "prompt_cache_key_changed": prompt.cache_key,
        "service_tier_changed": tier,
        "tools_changed": body.get("tools"),
        "text_format_changed": form,
        "reasoning_effort_changed": effort,
        "verbosity_changed": verbosity,
    }
    return {name: _tokens.fingerprint(str(value)) for name, value in values.items()}


def _is_compacted(prompt: GenerationRequest) -> bool:
    items = prompt.body.get("input")
    return isinstance(items, list) and any(
        isinstance(item, Mapping) and str(item.get("type")).startswith("compaction") for item in items
    )
