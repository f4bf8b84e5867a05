"""Which errors are about an upstream, so that another may do better, and which are about the call itself."""

from __future__ import annotations

from email.utils import mktime_tz, parsedate_tz
from typing import Any, Literal

import openai

from .._clock import wall_ns
from ..compat.clients import request_of_error
from ..errors import QueueFullError, QueueTimeoutError
from ..knowledge.sightings import Failure

Why = Failure | Literal["deadline"]
"""Why an attempt at an upstream has ended; "deadline": the time of the whole call is up."""

# No permission, no such model, no credit: for this key, there.
_DENIED = frozenset({401, 402, 403, 404})
# Beside 429: the tier that was asked for has no room (https://console.groq.com/docs/flex-processing).
_FULL = frozenset({429, 498})
_CONTEXT = frozenset({"context_length_exceeded", "string_above_max_length"})

# What a key or a model that is refused is left alone for: it takes somebody to put that right.
DENIED_REST_S = 60.0


class UpstreamFailed(openai.OpenAIError):
    """An attempt at an upstream has ended. It passes openai's retry loop, which retries no error of openai's."""

    def __init__(self, why: Why, error: Exception | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.error = error
        """What it failed with, as the HTTP library says it; None where it did not."""
        self.request: Any = request_of_error(error)
        """The HTTP library's request, which openai's errors name."""


def failure_of(error: BaseException) -> Failure | None:
    """What an error of openai's says of the upstream; None where another would answer with the same."""
    if isinstance(error, openai.APITimeoutError):
        return "timeout"
    if isinstance(error, openai.APIConnectionError):
        return "connection"
    if not isinstance(error, openai.APIStatusError):
        return None
    if error.status_code == 404 and error.param not in (None, "model"):
        return None  # something else that the call names is not there
    return failure_of_status(error.status_code, error.code)


def failure_of_status(status: int, code: Any = None) -> Failure | None:
    """What an answer's status says of the upstream; None where another would answer with the same."""
    if status in _FULL:
        return "rate_limit"
    if status in _DENIED:
        return "denied"
    if status == 408:
        return "timeout"
    if status == 409 or status >= 500:
        return "server"
    if isinstance(code, str) and code in _CONTEXT:
        return "too_long"
    return None


def rest_of(error: BaseException) -> float | None:
    """Seconds for which the provider asks to be left alone; None where it does not say, or says what cannot be meant.

    By `retry-after-ms`, or `retry-after` in seconds or as a date, as openai's own loop reads them.
    """
    response = getattr(error, "response", None)
    if response is None:
        return None
    for name, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        given = response.headers.get(name)
        if given is None:
            continue
        try:
            seconds = float(given) / unit
        except ValueError:
            seconds = _seconds_until(given)
        if 0 <= seconds < 1e6:
            return seconds
    return None


def _seconds_until(date: str) -> float:
    """Seconds until a date as HTTP writes it; below 0 where it is none, or past."""
    try:
        parsed = parsedate_tz(date)
        return -1.0 if parsed is None else mktime_tz(parsed) - wall_ns() / 1e9
    except (ArithmeticError, ValueError):
        return -1.0


def why_of(error: BaseException) -> Failure | Literal["queue"] | None:
    """Return what an error says of its upstream; None for nothing, and "queue" where our own had no slot for it."""
    return "queue" if isinstance(error, QueueFullError | QueueTimeoutError) else failure_of(error)


def rest_after(why: Failure, error: BaseException) -> float | None:
    """Return the seconds for which to leave an upstream alone that has failed; None where nobody says."""
    return DENIED_REST_S if why == "denied" else rest_of(error)


def as_openai_error(failed: UpstreamFailed) -> Exception:
    """Return what the caller gets for an attempt that has ended, when no other one follows."""
    if isinstance(failed.error, openai.APIStatusError):
        return failed.error
    request = failed.request
    if request is None:
        return openai.OpenAIError(f"the answer could not be had: {failed.why}")
    # One that gave way to another may have timed out by itself: of either HTTP library.
    is_late = any(kind.__name__ == "TimeoutException" for kind in type(failed.error).__mro__)
    if is_late or failed.why in ("timeout", "deadline"):
        return openai.APITimeoutError(request=request)
    if failed.why == "empty":
        return openai.APIConnectionError(
            message="The answer had no content, and no other model is left.", request=request
        )
    return openai.APIConnectionError(request=request)
