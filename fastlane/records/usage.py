"""What the provider says of a call: the tokens that it counted, and its own times."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTimes:
    """A provider's own times of an answer, in seconds; None for what it does not say.

    Nobody has checked them: they are the provider's word, and what one means by a time another may count otherwise
    (`docs/providers.md` has notes on that).
    """

    queue_s: float | None = None
    """The request waited to be begun."""
    prefill_s: float | None = None
    """The prompt was read."""
    decode_s: float | None = None
    """The answer was generated."""
    total_s: float | None = None
    """All of it; some leave out the queue."""
    head_s: float | None = None
    """Until the head of a streamed answer was sent, where a header says the time: headers go out before the answer is
    there, and cannot say how long that took."""
