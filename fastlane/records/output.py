"""What a call's record says of its output: how long it could be, why it was stopped, whether it was valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .section import RecordSection

StopReason = Literal["complete", "whitespace", "prose", "fence", "stop_sequence", "stop_when"]
"""Why a stream was closed before the model had ended it.

- complete: the JSON value has its last brace
- whitespace: a run of white space, behind the value or inside of it
- prose: text before or behind the value, or another value
- fence: something behind the Markdown fence that stands behind the value
- stop_sequence, stop_when: what `BoundedOutput(stop=...)` or `(stop_when=...)` asked for
"""

OutputVerdict = Literal["valid", "invalid", "truncated", "refused"]
"""What became of a structured answer: valid for its schema, not valid, cut off at the limit of tokens, or refused
by the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedAnswer:
    """One answer that was paid for, was not valid, and was asked for again."""

    verdict: OutputVerdict
    problem: str
    """What was wrong with it, by place and rule: no text of the answer."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated: bool = False
    """The provider's count was cut off with the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedOutputRecord(RecordSection):
    """How a call's output was bounded, and how it ended."""

    name: ClassVar[str] = "output"

    bound_characters: int | None = None
    """Of the longest answer that the schema allows, indented; None where it allows any length, or there is none."""
    bound_tokens: int | None = None
    """The same in tokens of the model, at worst."""
    likely_tokens: int | None = None
    """What an answer of usual texts comes to, estimated."""
    unbounded: tuple[str, ...] = ()
    """Fields without a bound: "Ticket.notes: string without maxLength or pattern"."""
    ceiling_field: str | None = None
    """The request's field in which the bound was sent; None where none was."""
    ceiling_tokens: int | None = None
    headroom_tokens: int = 0
    """Tokens of the ceiling that are there for reasoning."""
    refused_fields: tuple[str, ...] = ()
    """Fields that this play added and the provider refused: the call was sent again without them."""
    dropped_keywords: tuple[str, ...] = ()
    """Keywords of the schema that the provider refuses: not sent, and still enforced here."""
    notes: tuple[str, ...] = ()
    """What was left as it was, and why."""
    stop_reason: StopReason | None = None
    """Why the stream was closed before its end; None where it was not."""
    effort: str | None = None
    """The reasoning effort that was asked for."""
    visible_tokens: int | None = None
    """Of the answer without its reasoning, estimated."""
    received_tokens: int | None = None
    """Tokens that had come when the stream was stopped, reasoning included, estimated; None where it was not."""
    tokens_not_generated: int | None = None
    """Tokens between those and the request's limit, which a model that runs on would have generated; None where the
    request has no limit."""
    verdict: OutputVerdict | None = None
    """None where nothing says what would be valid."""
    problem: str | None = None
    """What was wrong, by place and rule: no text of the answer."""
    checked_at_ns: tuple[int, int] | None = None
    """When the answer was checked, from and until: monotonic nanoseconds; None where it was not."""
    rejected: tuple[RejectedAnswer, ...] = ()
    """The answers before the last, each of which was asked for again: what else was paid for."""

    @property
    def checked_ns(self) -> tuple[int, int] | None:
        """When the answer was checked."""
        return self.checked_at_ns
