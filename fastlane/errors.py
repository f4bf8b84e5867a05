"""The errors that fastlane itself raises.

FastlaneError (openai.OpenAIError)
 ├── ConfigurationError (ValueError)   a setting, a play or an argument of fastlane's own that cannot work
 ├── MissingExtraError (ImportError)   a part was used whose optional dependencies are not installed
 ├── CallRefusedError (ValueError)     a play was asked to refuse such calls: nothing was sent
 │    ├── QueueFullError               too many calls wait for their place already
 │    └── QueueTimeoutError            (openai.APITimeoutError)  its place would come, or came, too late
 ├── InvalidOutputError (ValueError)   no answer to the call was valid for its schema; it carries all of them
 └── PlayError                         with raise_play_errors=True: a play or callback raised

Errors of a call (time-outs, status codes, broken connections) are always openai's own types.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import openai


class FastlaneError(openai.OpenAIError):
    """The base of every error that fastlane itself raises; `except openai.OpenAIError` catches it too."""


class ConfigurationError(FastlaneError, ValueError):
    """A setting that cannot work: the message says what was expected, what came and what to do."""


class MissingExtraError(FastlaneError, ImportError):
    """A part was used whose optional dependencies are not installed: the message names the extra to install."""

    def __init__(self, extra: str, missing: str) -> None:
        super().__init__(
            f"this part of fastlane needs {missing!r}, which is not installed: in a clone pip install '.[{extra}]', "
            f"elsewhere pip install 'fastlane-llm[{extra}]'"
        )
        self._given = extra, missing

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return type(self), self._given


class CallRefusedError(FastlaneError, ValueError):
    """A call that is not sent, because a play was asked to refuse it: the message says why and what to do."""


class QueueFullError(CallRefusedError):
    """A call that is not sent because as many as are allowed wait for their place already."""

    expected_wait_s: float | None
    """Seconds after which there should be a place for it; None where nothing is known of that."""
    queued: int
    """Calls that wait."""

    def __init__(self, message: str, *, expected_wait_s: float | None = None, queued: int = 0) -> None:
        super().__init__(message)
        self.expected_wait_s = expected_wait_s
        self.queued = queued

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), expected_wait_s=self.expected_wait_s, queued=self.queued), (str(self),)


class QueueTimeoutError(CallRefusedError, openai.APITimeoutError):
    """A call that is not sent because its place would come, or came, after its time-out. Nothing was sent."""

    expected_wait_s: float | None
    """Seconds after which there should have been a place for it; None where nothing is known of that."""
    queued: int
    """Calls that were ahead of it when it came."""

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
    """The answer as it came; up to where it was stopped, if it was."""
    problem: str
    """What was wrong, by place and rule: no text of the answer."""
    finish_reason: str | None = None
    """By the provider's own word; None where the stream was stopped."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    """Whether the counts are estimates, because the provider's were cut off."""


class InvalidOutputError(FastlaneError, ValueError):
    """No answer to a call was valid, however often it was asked again.

    The message says what was wrong by place and rule, and holds no text of the answers: `attempts` does. Where an error
    of pydantic's or jsonschema_rs' said so, it is the `__cause__`, and quotes the answer.
    """

    attempts: tuple[OutputAttempt, ...]
    """Every answer, the last one last."""

    def __init__(self, message: str, attempts: tuple[OutputAttempt, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, tuple[str, tuple[OutputAttempt, ...]]]:
        return type(self), (str(self), self.attempts)


class PlayError(FastlaneError):
    """Raised with `raise_play_errors=True` when a play or a callback raises; otherwise that is logged."""


# Tracebacks and logs name an error by where an application imports it from, as they do openai's own.
for _error in (
    FastlaneError, ConfigurationError, MissingExtraError, CallRefusedError, QueueFullError, QueueTimeoutError,
    InvalidOutputError, PlayError,
):  # fmt: skip
    _error.__module__ = "fastlane"
