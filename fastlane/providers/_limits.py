"""What facts say of rate limits: which headers tell of them, over how long they count, and what they count."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from ._fact import Count, Fact, FrozenMapping, Part, Seconds, Table, Text, Texts

Counts = Literal["requests", "tokens", "input_tokens", "output_tokens"]
"""What a limit counts: requests, tokens of both kinds together, or one kind alone."""
ResetFormat = Literal["duration", "seconds", "milliseconds", "rfc3339", "unix", "unix_milliseconds"]
"""How a header says when a limit is whole again: "6m0s", "12.5", "12500", "2026-11-22T10:00:00Z", "1795341600"."""


def _header(value: str) -> str:
    if value != value.lower() or not value.strip() or any(letter.isspace() or letter == ":" for letter in value):
        raise ValueError('expected the name of a header in lower case, such as "x-ratelimit-limit-requests"')
    return value


Header = Annotated[Text, AfterValidator(_header)]


class RateLimit(Part):
    """One limit that a provider keeps, and the headers by which its answers tell of it."""

    counts: Counts
    window_s: Seconds | None = None
    """Seconds over which it counts: 60 for a limit per minute."""
    limit_header: Header | None = None
    limit_per_s: Seconds | None = None
    """Seconds to which the number in `limit_header` belongs, where these are not those of the window."""
    remaining_header: Header | None = None
    remaining_step: Count | None = None
    """What the number in `remaining_header` is rounded to, where not to 1."""
    reset_header: Header | None = None
    reset_format: ResetFormat | None = None
    """None: nobody says; the reader goes by how it looks."""
    kind: Literal["bucket", "window"] | None = None
    """A bucket fills again all the time, and its reset says when it is full; a window is whole again at its end."""
    enforced_s: Seconds | None = None
    """Seconds of the shorter times over which the provider says that it enforces its share of the limit."""


class RateLimits(Part):
    """Which headers of an answer say what the limits are and what is left, and what counts towards them."""

    headers: Fact[Texts] | None = None
    limits: Table[Fact[RateLimit]] = FrozenMapping({})
    """By a name of ours, such as "requests_per_minute"."""
    admission: Fact[Literal["prompt and limit", "larger of both", "prompt", "nothing"]] | None = None
    """What of a request's tokens is counted before it is answered: its prompt and the limit that it names for its
    output, the larger one of both, its prompt alone, or nothing, because only usage counts."""
    refunded: Fact[bool] | None = None
    """Whether what was counted before the answer, and then not used, is given back."""
    retry_headers: Fact[Texts] | None = None
    """Which headers of a refusal say how long to wait, the most precise one first; those that end in "-ms" in
    milliseconds, the others in seconds."""
