"""What is to be done with the answer to one call: how it is watched, checked and asked for again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastlane.protocol.request_fields import Tool
from fastlane.records.output import BoundedOutputRecord
from fastlane.schemas.references import Schema

if TYPE_CHECKING:
    from fastlane.schemas.compact import Compacted


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """The plan of one call's output."""

    endpoint: str
    origin: str
    model: str | None
    body: Mapping[str, Any]
    """The body as planned, for estimates."""
    record: BoundedOutputRecord
    """What is known before the call."""
    is_json: bool = False
    """Whether the content is to be one JSON value."""
    schema: Schema | None = None
    """What the content is to be valid for; None for free text, and for JSON of any kind."""
    watched_schema: Schema | None = None
    """The same as it stands on the wire, where names are shorter there."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    choices: int = 1
    content_is_all: bool = True
    """Nothing comes behind the content: the model was given no tools."""
    one_tool_call: bool = False
    """The answer is one call of a tool, and nothing comes behind its arguments."""
    collects: bool = False
    """The answer is streamed to us, though the application does not stream."""
    early_stop: bool = False
    at_once: bool = False
    """Close the stream at the last brace, without a look at what comes next."""
    stop: tuple[str, ...] = ()
    stop_when: Callable[[str], bool] | None = None
    validates: bool = True
    repairs: int = 0
    repair_temperature: float | None = None
    repair_tokens: int | None = None
    """Output tokens that all repairs of a call may come to together."""
    compacted: Compacted | None = None
    limit: int | None = None
    """Tokens after which the provider cuts the answer off: the caller's own limit, or ours."""
    ceiling_fields: tuple[str, ...] = ()
    """Where our own limit stands in the body."""
    optional: tuple[str, ...] = ()
    """Fields of the body that a provider may refuse, and that the call can go without."""
