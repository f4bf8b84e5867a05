"""What the provider reports of a call: token counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the provider reported them; None means unknown, not 0."""

    input_tokens: int | None = None
    """All tokens of the prompt, cached ones included."""
    cached_tokens: int | None = None
    """Tokens of the prompt that were read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Tokens of the prompt that were written to the provider's cache; None if not reported."""
    output_tokens: int | None = None
    """All tokens generated, reasoning included."""
    reasoning_tokens: int | None = None
    """Tokens generated as reasoning."""
    estimated: bool = False
    """Whether the counts are estimates, because the stream was stopped before the provider's arrived."""
