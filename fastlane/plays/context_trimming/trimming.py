"""`trim_context()`: keep a conversation within a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter, counter
from fastlane.records.plays import ContextTrimmingRecord

from .cut import Count, Counting, Marks
from .replay import ReplaySettings, new_memory, trim

# What is sent beside a conversation is rounded up to this, so that a clock in instructions moves no cut.
_TOKENS = 64

_memory = new_memory()


class TrimmedContext(list[Any]):
    """The messages to send: a list as any other, with what was cut on `record`."""

    __slots__ = ("record",)

    record: ContextTrimmingRecord
    """What was cut, and what that saves."""

    def __init__(self, messages: Iterable[Any], record: ContextTrimmingRecord) -> None:
        super().__init__(messages)
        self.record = record


def trim_context(
    messages: Sequence[Any],
    budget: int,
    *,
    low: int | None = None,
    keep_turns: int = 2,
    model: str | None = None,
    tools: Sequence[Any] | None = None,
    count: Count | None = None,
) -> TrimmedContext:
    """Return a conversation that fits into `budget` tokens: messages or input items, as they came in.

    Call it with the whole conversation each time. Once that is longer than `budget` it is cut down to `low` tokens
    (half of the budget unless given), and then only grows until it is longer than the budget again: in between, what
    it begins with stays as it is, and the provider can read it from its cache. First go the oldest results of tools,
    then the oldest turns. System and developer messages and the last `keep_turns` turns are not touched. Where these
    turns come to more than the middle between `low` and `budget`, their older steps go too, except for the last
    `keep_turns` steps. A call of a tool and its result stay or go together. What has to stay may be more than the
    budget.

    Tokens are those of `model`, `tools` included, counted exactly where the tokenizer is on disk and else estimated;
    or what `count` returns for one message.

    The messages given are never changed; those that are not cut are returned as they are. Raises ConfigurationError for
    arguments that cannot work, and for messages that are none.
    """
    for name, value in (("budget", budget), ("low", low), ("keep_turns", keep_turns)):
        if (value is not None or name != "low") and (type(value) is not int or value < 1):
            raise ConfigurationError(f"trim_context({name}=...) takes a whole number from 1, got {value!r:.80}")
    if low is not None and low > budget:
        raise ConfigurationError(f"trim_context(low=...) takes at most the budget of {budget} tokens, got {low}")
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise ConfigurationError(f"trim_context() takes a list of messages, got {type(messages).__name__}")

    def start(leading: Sequence[Mapping[str, Any]]) -> Counting:
        if count is not None:
            return Counting(count, sum(map(count, leading)))
        return counted_with(counter(model), leading, tools)

    marks = Marks(budget, max(1, budget // 2) if low is None else low, keep_turns)
    given = [_plain(at, message) for at, message in enumerate(messages)]
    seed = (marks, model, count, len(tools) if tools is not None else 0)
    trimmed = trim("messages", given, ReplaySettings(marks, _memory, start, seed))
    if trimmed.messages is None:
        return TrimmedContext(messages, trimmed.record)
    # What was read as a plain message may have been one of openai's objects: that goes back.
    own = {id(plain): message for plain, message in zip(given, messages, strict=True)}
    return TrimmedContext([own.get(id(message), message) for message in trimmed.messages], trimmed.record)


def counted_with(counts: Counter, leading: Sequence[Any], tools: Any) -> Counting:
    """Return what a conversation is counted with: what is sent beside it, and the frame of its answer, rounded up."""
    frame = counts.messages("") - counts.message("")
    exactly = frame + sum(map(counts.message, leading)) + counts.tools(tools if isinstance(tools, list | tuple) else ())
    return Counting(counts.message, -(-exactly // _TOKENS) * _TOKENS)


def _plain(at: int, message: Any) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return message
    # openai's own objects are messages too: an answer's message is often sent back as it came.
    dump = getattr(message, "model_dump", None)
    plain = dump(exclude_unset=True) if callable(dump) else None
    if not isinstance(plain, Mapping):
        raise ConfigurationError(
            f"messages[{at}] must be a mapping such as {{'role': 'user', 'content': '...'}}, got "
            f"{type(message).__name__}"
        )
    return plain
