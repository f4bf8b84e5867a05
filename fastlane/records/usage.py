"""What the provider reports of a call: token counts and its own times."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTimes:
    """A provider's own times of an answer, in seconds; None for those that it does not report.

    They are not verified, and providers define them differently (see the notes in `docs/providers.md`).
    """

    queue_s: float | None = None
    """The wait before processing."""
    prefill_s: float | None = None
    """The time to process the prompt."""
    decode_s: float | None = None
    """The time to generate the answer."""
    total_s: float | None = None
    """The total; some providers leave out the queue."""
    head_s: float | None = None
    """The time until the head of a streamed response was sent, if a header reports it: headers are sent before the
    answer is generated, and cannot contain the total."""
