"""What ends one way of a call so that another can be taken."""

from __future__ import annotations

from typing import Any, Literal

import openai

from fastlane.compat.clients import request_of_error
from fastlane.knowledge.prediction._sighting import Failure

Why = Failure | Literal["lost", "deadline"]
"""Why a way was left: it failed; another attempt's first content came before; the time of the whole call is up."""


class Left(openai.OpenAIError):
    """An attempt at one upstream has ended. openai's retry loop does not retry errors of openai's."""

    def __init__(self, why: Why, error: Exception | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.error = error
        """What it failed with, as the HTTP library says it; None where it did not."""
        self.request: Any = request_of_error(error)
        """The HTTP library's request, which openai's errors name."""
