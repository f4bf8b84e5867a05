"""What the play was told, checked, and what it has learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ._reasoning import Reasoning


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the play, checked."""

    schema: Mapping[str, Any] | None
    name: str
    unbounded: Literal["error"] | int | None
    max_output_tokens: int | None
    reasoning_tokens: int | None
    early_stop: bool
    at_once: bool
    stop: tuple[str, ...]
    stop_when: Callable[[str], bool] | None
    validate: bool
    repairs: int
    repair_temperature: float | None
    repair_tokens: int | None
    compact: bool
    limits: Literal["error", "note"]
    effort: str | None
    verbosity: str | None


@dataclass(slots=True)
class Memory:
    """What the play has learned, shared by all clients that it is given to."""

    reasoning: Reasoning = field(default_factory=Reasoning)
