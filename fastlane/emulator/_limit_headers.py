"""What an answer's headers say of the rate limits, in the formats in which providers write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from fastlane._clock import wall_ns

from ..errors import ConfigurationError

_NS = 1_000_000_000
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")

LIMITS = tuple(f"{unit}/{period}" for period in ("minute", "hour", "day") for unit in ("requests", "tokens"))
"""What can be limited, as headers are told to say it."""


class LimitState(NamedTuple):
    """One limit as it stands after a request."""

    limit: float
    remaining: float
    reset_ns: int


def duration(nanoseconds: int) -> str:
    """Write a time as OpenAI does: 12ms, 1s, 8.64s, 6m0s, 1h0m0s; rounded up to a millisecond."""
    milliseconds = -(-nanoseconds // 1_000_000)
    if milliseconds <= 0:
        return "0s"
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest / 1_000:g}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return text


_FORMATS: Mapping[str, Callable[[int], str]] = MappingProxyType(
    {
        "duration": duration,
        "seconds": lambda ns: f"{math.ceil(ns / 1e6) / 1e3:g}",
        "whole_seconds": lambda ns: str(math.ceil(ns / 1e9)),
        "milliseconds": lambda ns: str(math.ceil(ns / 1e6)),
        "rfc3339": lambda ns: datetime.fromtimestamp(math.ceil((wall_ns() + ns) / _NS), UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        ),
        "epoch_seconds": lambda ns: str(math.ceil((wall_ns() + ns) / _NS)),
        "epoch_milliseconds": lambda ns: str(math.ceil((wall_ns() + ns) / 1e6)),
    }
)


def _usual(*resets: str, requests: str = "minute", tokens: str = "minute") -> tuple[tuple[str, str], ...]:
    form = resets[0] if resets else "duration"
    windows = {"requests": requests, "tokens": tokens}
    return tuple(
        (f"x-ratelimit-{what}-{unit}", f"{what} {unit}/{window}{f' {form}' if what == 'reset' else ''}")
        for what in ("limit", "remaining", "reset")
        for unit, window in windows.items()
    )


HEADER_FAMILIES: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        # OpenAI: https://developers.openai.com/api/docs/guides/rate-limits
        "usual": _usual(),
        # Groq: the usual names, and yet the requests are those of a day. https://console.groq.com/docs/rate-limits
        "usual_daily": _usual(requests="day"),
        # Azure: tokens alone, in whole seconds.
        "usual_tokens": tuple(pair for pair in _usual("whole_seconds") if pair[0].endswith("-tokens")),
        # Cerebras: https://inference-docs.cerebras.ai/support/rate-limits
        "windowed": tuple(
            (f"x-ratelimit-{what}-{unit}-{window}", f"{what} {unit}/{window}{' seconds' if what == 'reset' else ''}")
            for what in ("limit", "remaining", "reset")
            for unit, window in (("requests", "day"), ("tokens", "minute"))
        ),
        # Mistral: without resets. https://github.com/mistralai/client-ts/issues/169
        "short": (
            ("x-ratelimit-limit-req-minute", "limit requests/minute"),
            ("x-ratelimit-remaining-req-minute", "remaining requests/minute"),
            ("x-ratelimit-limit-tokens-minute", "limit tokens/minute"),
            ("x-ratelimit-remaining-tokens-minute", "remaining tokens/minute"),
            ("x-ratelimit-tokens-query-cost", "cost tokens/minute"),
        ),
        # Moments instead of durations, as the API of Anthropic has them and its compatible one repeats.
        "moments": _usual("rfc3339"),
        # OpenRouter: https://openrouter.ai/docs/api/reference/limits
        "epoch": (
            ("x-ratelimit-limit", "limit requests/minute"),
            ("x-ratelimit-remaining", "remaining requests/minute"),
            ("x-ratelimit-reset", "reset requests/minute epoch_milliseconds"),
        ),
        "none": (),
    }
)
"""Header names and what they say, by family; see `parse_header`."""


class HeaderSpec(NamedTuple):
    """One header and what it says."""

    name: str
    what: str
    limit: str
    write: Callable[[int], str]


def parse_header(name: str, says: str) -> HeaderSpec:
    """Read `limit requests/minute`, `remaining tokens/day`, `cost tokens/minute` or `reset tokens/minute seconds`."""
    what, _, rest = says.partition(" ")
    limit, _, form = rest.partition(" ")
    write = _FORMATS.get(form or "duration")
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigurationError(f"a header's name must be small letters, digits and dashes, got {name!r}")
    if what not in ("limit", "remaining", "reset", "cost") or limit not in LIMITS or write is None:
        raise ConfigurationError(
            f"header {name!r} must say 'limit', 'remaining', 'reset' or 'cost' of {', '.join(LIMITS)}, a reset as one "
            f"of {', '.join(_FORMATS)}, got {says!r}: write e.g. 'reset tokens/minute seconds'"
        )
    return HeaderSpec(name, what, limit, write)


def header_specs(headers: str | Iterable[tuple[str, str]]) -> tuple[HeaderSpec, ...]:
    """Return what a family, or pairs of a name and what it says, come to. Raises ConfigurationError."""
    if isinstance(headers, str):
        if headers not in HEADER_FAMILIES:
            raise ConfigurationError(
                f"unknown headers {headers!r}: the known families are {', '.join(HEADER_FAMILIES)}; or give each "
                "header and what it says"
            )
        headers = HEADER_FAMILIES[headers]
    return tuple(parse_header(name, says) for name, says in headers)


def write_headers(
    specs: Sequence[HeaderSpec], states: Mapping[str, LimitState], costs: Mapping[str, float]
) -> tuple[tuple[str, str], ...]:
    """Return the headers of those limits that there are; `costs` is what the request took of each."""
    written: list[tuple[str, str]] = []
    for name, what, limit, write in specs:
        state = states.get(limit)
        if state is None:
            continue
        if what == "reset":
            value = write(state.reset_ns)
        else:
            number = costs.get(limit, 0) if what == "cost" else getattr(state, what)
            # What is a whole number but for the last bit of a sum is that number.
            value = str(int(number + 1e-6) if number > 0 else 0)
        written.append((name, value))
    return tuple(written)
