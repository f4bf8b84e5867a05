"""The errors that fastlane itself raises.

FastlaneError (openai.OpenAIError)
 ├── ConfigurationError (ValueError)   a setting, a play or an argument of fastlane's own that cannot work
 ├── MissingExtraError (ImportError)   a part was used whose optional dependencies are not installed
 └── PlayError                         with strict=True only: a play or a hook raised

Errors of a call (time-outs, status codes, broken connections) are always openai's own types.
"""

from __future__ import annotations

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
            f"this part of fastlane needs {missing!r}, which is not installed: pip install 'fastlane-llm[{extra}]', "
            f"or in a clone pip install '.[{extra}]'"
        )
        self._given = extra, missing

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return type(self), self._given


class PlayError(FastlaneError):
    """Raised with `strict=True` when a play or a hook raises, where a client without `strict` logs it and goes on."""
