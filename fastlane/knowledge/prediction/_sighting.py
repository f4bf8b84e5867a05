"""What one attempt has shown of an upstream: all that predictions learn from, here and in other processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Failure = Literal["connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long"]
"""Why an attempt brought no answer.

- connection: none could be opened, or it broke
- rate_limit: the provider takes no more for now (429), or has no room in the tier (498)
- server: the provider failed (5xx, 409)
- timeout: the first token did not come in time
- empty: an answer without any content
- denied: the provider lets this key or this model not in (401, 402, 403, 404)
- too_long: the prompt is longer than the model takes, other than was expected
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One attempt at one upstream, in numbers: no text, no key."""

    model: str
    """As the upstream knows it."""
    origin: str
    """scheme://host:port."""
    task: str | None = None
    uncached_tokens: float | None = None
    """Tokens of the prompt that were not read from the provider's cache."""
    expected_cached_tokens: float | None = None
    """Tokens of the prompt that should have been."""
    cached_tokens: int | None = None
    """Tokens that were, by the provider's own word; None where it does not say."""
    body_bytes: int | None = None
    """Of the request as JSON."""
    input_tokens: int | None = None
    """All tokens of the prompt, by the provider's own word."""
    first_token_s: float | None = None
    """Seconds from the request's being there, as predicted, to its first token; None where that was not seen."""
    late_s: float | None = None
    """Seconds after which it was given up without a first token: it would have taken longer."""
    output_tokens: int | None = None
    """Tokens that came in the stream."""
    decode_s: float | None = None
    """Seconds from the first of them to the last."""
    whole_s: float | None = None
    """Seconds from the request's being there to the whole answer, where no first token was seen."""
    failure: Failure | None = None
    """Why it brought no answer; None where it did, or was given up for another that was faster."""
    rest_s: float | None = None
    """Seconds for which the provider asked to be left alone."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, without what is None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild what `to_json` gave; fields that a newer version has added are left out.

        Anybody may have written it: raises TypeError or ValueError for what `to_json` cannot have given.
        """
        for name in _NUMBERS:
            value = data.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} expects a finite number of at least 0")
        return cls(**{name: data[name] for name in _NAMES if name in data})


_NAMES = tuple(field.name for field in fields(Sighting))
_NUMBERS = tuple(name for name in _NAMES if name not in ("model", "origin", "task", "failure"))
