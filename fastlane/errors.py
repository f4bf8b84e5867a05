"""The errors that fastlane itself raises.

FastlaneError (openai.OpenAIError)
 ├── ConfigurationError (ValueError)   an invalid setting, play or argument of fastlane
 ├── MissingExtraError (ImportError)   an optional dependency is not installed
 ├── CallRefusedError (ValueError)     a play refused the call, as configured: nothing was sent
 │    ├── QueueFullError               too many calls are waiting for a slot
 │    └── QueueTimeoutError            (openai.APITimeoutError)  no slot was free in time
 ├── InvalidOutputError (ValueError)   no answer was valid for its schema; holds all answers
 ├── BrokenStreamError                 (openai.APIConnectionError)  a stream broke; holds what was received
 │    └── StalledStreamError           (openai.APITimeoutError)  a stream stalled
 └── PlayError                         with raise_play_errors=True: a play or callback raised

Errors of a call (timeouts, status codes, broken connections) are always openai's own types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import openai


class FastlaneError(openai.OpenAIError):
    """The base of every error that fastlane itself raises; `except openai.OpenAIError` catches it too."""


class ConfigurationError(FastlaneError, ValueError):
    """An invalid setting: the message names the accepted values, the given one and the remedy."""


class MissingExtraError(FastlaneError, ImportError):
    """An optional dependency is not installed: the message names the extra to install."""

    def __init__(self, extra: str, missing: str) -> None:
        super().__init__(
            f"this part of fastlane needs {missing!r}, which is not installed: in a clone pip install '.[{extra}]', "
            f"elsewhere pip install 'fastlane-llm[{extra}]'"
        )
        self._given = extra, missing

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return type(self), self._given


class CallRefusedError(FastlaneError, ValueError):
    """A play refused the call, as configured, and nothing was sent: the message names reason and remedy."""


class QueueFullError(CallRefusedError):
    """The queue is full: as many calls as allowed are waiting for a slot. Nothing was sent."""

    expected_wait_s: float | None
    """The least seconds until a slot can be free, as the provider's limit says; None if no limit does."""
    queued: int
    """The number of waiting calls."""

    def __init__(self, message: str, *, expected_wait_s: float | None = None, queued: int = 0) -> None:
        super().__init__(message)
        self.expected_wait_s = expected_wait_s
        self.queued = queued

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), expected_wait_s=self.expected_wait_s, queued=self.queued), (str(self),)


class QueueTimeoutError(CallRefusedError, openai.APITimeoutError):
    """No slot was free within the call's timeout, or none would be. Nothing was sent."""

    expected_wait_s: float | None
    """The least seconds until a slot can be free, as the provider's limit says; None if no limit does."""
    queued: int
    """The number of calls ahead of it when it joined the queue."""

    def __init__(
        self, message: str, *, request: Any = None, expected_wait_s: float | None = None, queued: int = 0
    ) -> None:
        openai.APITimeoutError.__init__(self, request)
        self.message = message
        self.args = (message,)
        self.expected_wait_s = expected_wait_s
        self.queued = queued

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), expected_wait_s=self.expected_wait_s, queued=self.queued), (str(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAttempt:
    """One answer that was not valid."""

    text: str
    """The text of the answer, up to where the stream was stopped if it was."""
    problem: str
    """What was wrong, by path and rule, without text of the answer."""
    finish_reason: str | None = None
    """The finish reason that the provider sent; None if the stream was stopped."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    """Whether the counts are estimates, because the stream was stopped before the provider's arrived."""


class InvalidOutputError(FastlaneError, ValueError):
    """No answer to a call was valid, re-asks included.

    The message names what was wrong by path and rule, without text of the answers, which is in `attempts`. The
    `__cause__` is the error of pydantic or jsonschema_rs if there was one, and quotes the answer.
    """

    attempts: tuple[OutputAttempt, ...]
    """Every answer, in order."""

    def __init__(self, message: str, attempts: tuple[OutputAttempt, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, tuple[str, tuple[OutputAttempt, ...]]]:
        return type(self), (str(self), self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAnswer:
    """What was received of a stream before it broke."""

    text: str = field(repr=False)
    """The text of the answer, without reasoning, refusals and tool calls."""
    response_id: str | None = None
    """The id of the response, or of its chunks."""
    model: str | None = None
    """The model that the provider named."""
    sequence_number: int | None = None
    """Of a response: the number of its last event, for `responses.retrieve(..., starting_after=...)`."""


class BrokenStreamError(FastlaneError, openai.APIConnectionError):
    """A stream broke, and did not go on. Raised with the play `Unbroken`; the message has no text of the answer."""

    received: ReceivedAnswer

    def __init__(self, message: str, *, request: Any = None, received: ReceivedAnswer) -> None:
        openai.APIConnectionError.__init__(self, message=message, request=request)
        self.received = received

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), received=self.received), (str(self),)


class StalledStreamError(BrokenStreamError, openai.APITimeoutError):
    """A stream brought nothing for so long that it counts as broken."""

    silent_s: float
    """Seconds without any event."""
    usual_gap_s: float | None
    """The longest gap that streams of this model usually have, in seconds; None if it is not known yet."""

    def __init__(
        self,
        message: str,
        *,
        request: Any = None,
        received: ReceivedAnswer,
        silent_s: float,
        usual_gap_s: float | None = None,
    ) -> None:
        super().__init__(message, request=request, received=received)
        self.silent_s = silent_s
        self.usual_gap_s = usual_gap_s

    def __reduce__(self) -> tuple[Any, ...]:
        known: dict[str, Any] = {"received": self.received, "silent_s": self.silent_s, "usual_gap_s": self.usual_gap_s}
        return partial(type(self), **known), (str(self),)


class PlayError(FastlaneError):
    """Raised with `raise_play_errors=True` when a play or a callback raises; otherwise the error is logged."""


# Tracebacks and logs name an error by where an application imports it from, as they do openai's own.
for _error in (
    FastlaneError, ConfigurationError, MissingExtraError, CallRefusedError, QueueFullError, QueueTimeoutError,
    InvalidOutputError, ReceivedAnswer, BrokenStreamError, StalledStreamError, PlayError,
):  # fmt: skip
    _error.__module__ = "fastlane"
