"""What a provider says of the time that it spent on a call, by its own clock."""

from __future__ import annotations

from dataclasses import dataclass


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
