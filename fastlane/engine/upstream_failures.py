"""Classify errors: those of an upstream, for which another upstream may be tried, and those of the call itself."""

from __future__ import annotations

from typing import Any, Literal

import openai

from ..compat.clients import request_of_error
from ..errors import QueueFullError, QueueTimeoutError
from ..knowledge.sightings import Failure
from ..protocol.header_times import retry_after_s, wall_of

Why = Failure | Literal["deadline"]
"""Why an attempt at an upstream has ended; "deadline": the deadline of the whole call has passed."""

# No permission, unknown model, no credit: for this key at this upstream.
_DENIED = frozenset({401, 402, 403, 404})
# 498: the requested tier has no capacity (https://console.groq.com/docs/flex-processing).
_FULL = frozenset({429, 498})
_CONTEXT = frozenset({"context_length_exceeded", "string_above_max_length"})

# Seconds for which a refused key or model is not tried again: only an operator can fix it.
DENIED_REST_S = 60.0


class UpstreamFailed(openai.OpenAIError):
    """An attempt at an upstream has ended. openai's retry loop does not retry it, because it is an OpenAIError."""

    def __init__(self, why: Why, error: Exception | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.error = error
        """The error of the HTTP library or of openai; None if there was none."""
        self.request: Any = request_of_error(error)
        """The HTTP library's request, which openai's errors name."""


def failure_of(error: BaseException) -> Failure | None:
    """Return why an upstream failed, by openai's error; None if another upstream would respond with the same error."""
    if isinstance(error, openai.APITimeoutError):
        return "timeout"
    if isinstance(error, openai.APIConnectionError):
        return "connection"
    if not isinstance(error, openai.APIStatusError):
        return None
    if error.status_code == 404 and error.param not in (None, "model"):
        return None  # another object that the call names does not exist
    return failure_of_status(error.status_code, error.code)


def failure_of_status(status: int, code: Any = None) -> Failure | None:
    """Return why an upstream failed, by a response's status; None if another one would respond with the same."""
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
    """Return the seconds of a retry-after header; None if there is none, or none that is plausible and above 0."""
    response = getattr(error, "response", None)
    if response is None:
        return None
    return retry_after_s(("retry-after-ms", "retry-after"), response.headers, wall_of(response.headers)) or None


def why_of(error: BaseException) -> Failure | Literal["queue"] | None:
    """Return why an upstream failed: "queue" if fastlane's own queue had no slot, None for errors of the call."""
    return "queue" if isinstance(error, QueueFullError | QueueTimeoutError) else failure_of(error)


def rest_after(why: Failure, error: BaseException) -> float | None:
    """Return the seconds for which not to try a failed upstream again; None if the error does not tell."""
    return DENIED_REST_S if why == "denied" else rest_of(error)


def as_openai_error(failed: UpstreamFailed) -> Exception:
    """Return the error for the caller, when no further attempt follows."""
    if isinstance(failed.error, openai.APIStatusError):
        return failed.error
    request = failed.request
    if request is None:
        return openai.OpenAIError(f"no upstream answered the call: {failed.why}")
    # By name, because the error may be of httpx or of httpx2.
    is_late = any(kind.__name__ == "TimeoutException" for kind in type(failed.error).__mro__)
    if is_late or failed.why in ("timeout", "deadline"):
        return openai.APITimeoutError(request=request)
    if failed.why == "empty":
        return openai.APIConnectionError(
            message="The answer had no content, and no other model is left.", request=request
        )
    return openai.APIConnectionError(request=request)
