"""The tokens of a call, as the provider counted them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the provider reported them; None is unknown, which is not 0."""

    input_tokens: int | None = None
    """All tokens of the prompt, cached ones included."""
    cached_tokens: int | None = None
    """Tokens of the prompt that were read from the provider's cache."""
    cache_write_tokens: int | None = None
    """Tokens of the prompt that were written to the provider's cache, where that is counted."""
    output_tokens: int | None = None
    """All tokens generated, reasoning included."""
    reasoning_tokens: int | None = None
    """Tokens generated as reasoning."""
    estimated: bool = False
    """The provider's own counts were cut off when the stream was stopped, and these are estimates."""
