"""Measurements of attempts at upstreams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Upstream(NamedTuple):
    """A model at a provider's origin."""

    model: str
    """The name of the model at the provider."""
    origin: str
    """scheme://host:port."""


Failure = Literal["connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long"]
"""Why an attempt gave no answer.

- connection: no connection could be opened, or it broke
- rate_limit: the provider's limit is reached (429), or the tier has no capacity (498)
- server: the provider failed (5xx, 409)
- timeout: no first token in time
- empty: an answer without any content
- denied: the provider refuses this key or this model (401, 402, 403, 404)
- too_long: the prompt is longer than the model's context, against expectation
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The measurements of one attempt at one upstream. Contains no text and no key."""

    model: str
    """The name of the model at the upstream."""
    origin: str
    """scheme://host:port."""
    task: str | None = None
    uncached_tokens: float | None = None
    """Tokens of the prompt that were not read from the provider's cache."""
    body_bytes: int | None = None
    """Bytes of the request as JSON."""
    input_tokens: int | None = None
    """All tokens of the prompt, as the provider reports."""
    first_token_s: float | None = None
    """Seconds from the request's predicted arrival to the first token; None if not observed."""
    late_s: float | None = None
    """Seconds after which it was given up without a first token; None if it was not."""
    output_tokens: int | None = None
    """Tokens received in the stream."""
    decode_s: float | None = None
    """Seconds from the first token to the last."""
    whole_s: float | None = None
    """Seconds from the request's arrival to the whole answer, if no first token was observed."""
    failure: Failure | None = None
    """Why it gave no answer; None if it did, or if another attempt was faster."""
    rest_s: float | None = None
    """Seconds of the provider's retry-after; None without one."""
