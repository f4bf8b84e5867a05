"""Which errors are about an upstream, so that another may do better, and which are about the call itself."""

from __future__ import annotations

from email.utils import mktime_tz, parsedate_tz
from typing import Any, Literal

import openai

from fastlane._clock import wall_ns
from fastlane.errors import QueueFullError, QueueTimeoutError
from fastlane.knowledge.prediction._sighting import Failure

from ._left import Left

# No permission, no such model, no credit: for this key, there.
_DENIED = frozenset({401, 402, 403, 404})
# Beside 429: the tier that was asked for has no room (https://console.groq.com/docs/flex-processing).
_FULL = frozenset({429, 498})
_CONTEXT = frozenset({"context_length_exceeded", "string_above_max_length"})

# What a key or a model that is refused is left alone for: it takes somebody to put that right.
DENIED_REST_S = 60.0


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
    """What an error says of its upstream; None where it says nothing, and "queue" where our own had no place for it."""
    if isinstance(error, QueueFullError | QueueTimeoutError):
        return "queue"
    why = error.why if isinstance(error, Left) else failure_of(error)
    return None if why == "lost" or why == "deadline" else why  # noqa: PLR1714 - which types understand


def rest_after(why: Failure, error: BaseException) -> float | None:
    """Seconds for which an upstream is left alone that has failed so; None where nobody says."""
    cause = error.error if isinstance(error, Left) and error.error is not None else error
    return DENIED_REST_S if why == "denied" else rest_of(cause)


def as_openai_error(left: Left) -> Exception:
    """What the application gets for a way that was left, where no other could be taken."""
    if isinstance(left.error, openai.APIStatusError):
        return left.error
    request = left.request
    if request is None:
        return openai.OpenAIError(f"the answer could not be had: {left.why}")
    # A way that was left because another went on beside it may have timed out by itself: of either HTTP library.
    is_late = any(kind.__name__ == "TimeoutException" for kind in type(left.error).__mro__)
    if is_late or left.why in ("timeout", "deadline"):
        return openai.APITimeoutError(request=request)
    if left.why == "empty":
        return openai.APIConnectionError(
            message="The answer had no content, and no other model is left.", request=request
        )
    return openai.APIConnectionError(request=request)
