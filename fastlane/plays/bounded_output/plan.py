"""What one call's output is bound to, and how its answer is watched and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlane.protocol.request_fields import Tool
from fastlane.schemas.given import Schema

from .section import BoundedOutputSection


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """The plan of one call's output at one upstream."""

    endpoint: str
    origin: str
    model: str | None
    body: Mapping[str, Any]
    """The body as planned, for estimates."""
    record: BoundedOutputSection
    """What is known before the call."""
    is_json: bool = False
    """Whether the content is to be one JSON value."""
    schema: Schema | None = None
    """What the content is to be valid for; None for free text, and for JSON of any kind."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    choices: int = 1
    content_is_all: bool = True
    """Nothing comes behind the content: the model was given no tools."""
    one_tool_call: bool = False
    """The answer is one call of a tool, and nothing comes behind its arguments."""
    early_stop: bool = False
    """Whether a stream that brings nothing more is closed."""
    at_once: bool = False
    """Whether it is closed at the last brace."""
    stop: tuple[str, ...] = ()
    stop_when: Callable[[str], bool] | None = None
    validate: bool = True
    reasks: int = 0
    limit: int | None = None
    """Tokens after which the provider cuts the answer off: the caller's own limit, or ours."""
    ceiling_field: str | None = None
    """Where our own limit stands in the body."""
