"""What the benchmarks of structured answers have in common: tickets to be sorted, and a model that does not reason."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import pydantic

from benchmarks._provider import MODEL, fact
from fastlane.emulator import Emulator, RequestLog
from fastlane.providers import ProviderFacts, registered
from fastlane.providers.facts import Reasoning

Category = Literal["billing", "shipping", "technical", "account", "other"]
CATEGORIES: tuple[str, ...] = ("billing", "shipping", "technical", "account", "other")
OUTPUT_LIMIT = 1_024
"""Where an answer that runs on is cut off, as in the talk's own runs: output tokens."""


class Ticket(pydantic.BaseModel):
    """The talk's answer. No answer can be longer than its schema says."""

    category: Category
    confidence: float = pydantic.Field(ge=0, le=1)


class Case(pydantic.BaseModel):
    """An answer that may be of any length, so that no ceiling can be derived."""

    category: Category
    confidence: float = pydantic.Field(ge=0, le=1)
    reason: str
    steps: list[str]


def ticket(number: int) -> list[Any]:
    """Return the messages that ask about one ticket."""
    return [
        {"role": "system", "content": "Sort the support ticket into a category, and say how sure you are."},
        {"role": "user", "content": f"Ticket {number}: it has happened again since {number % 28 + 1} May."},
    ]


def known(emulators: Sequence[Emulator]) -> AbstractContextManager[object]:
    """Register what is known of the provider: the model does not reason, and the limit's newer name is taken."""
    return registered(
        ProviderFacts(
            slug="emulated-writer",
            origins=tuple(emulator.base_url.removesuffix("/v1") for emulator in emulators),
            reasoning=Reasoning(never=fact((MODEL,))),
            parameters={"max_completion_tokens": fact(True)},
        )
    )


def by_tag(log: Sequence[RequestLog]) -> dict[str, list[RequestLog]]:
    """Return the provider's records of each tag, in the order in which they came."""
    found: dict[str, list[RequestLog]] = {}
    for request in log:
        found.setdefault(request.tag or "", []).append(request)
    return found
