"""`curate()`: keep a conversation within a budget of tokens, cut in batches so that its beginning stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter, counter
from fastlane.records.prompt import CurationRecord

from ._batch import Count, Counting, Marks
from ._conversation import Settings, curated
from ._replay import Memory, Summarise
from ._stub import STUB, checked_template

# What is sent beside a conversation is rounded up to this, so that a clock in instructions moves no cut.
_TOKENS = 64

# What calls of `curate` came to: the next one, with more of the same conversation, goes on from there.
_memory = Memory()


class Curated(list[Any]):
    """The messages that are to be sent: a list as any, with what was cut on `record`."""

    __slots__ = ("record", "summary_failure")

    record: CurationRecord
    """What was cut, and what that saves."""
    summary_failure: str | None
    """Why the last cut has no summary although `summarise` was given: the class name of the error that it raised,
    "NoText" where it returned none, "TooLong" where its text would save nothing or not fit; else None."""

    def __init__(self, messages: Iterable[Any], record: CurationRecord, summary_failure: str | None = None) -> None:
        super().__init__(messages)
        self.record = record
        self.summary_failure = summary_failure

    @property
    def messages(self) -> list[Any]:
        """The messages as a plain list."""
        return list(self)


def curate(
    messages: Sequence[Any],
    budget: int,
    *,
    low: int | None = None,
    keep_turns: int = 2,
    model: str | None = None,
    origin: str = "",
    tools: Sequence[Any] | None = None,
    count: Count | None = None,
    stub: str = STUB,
    summarise: Summarise | None = None,
) -> Curated:
    """Return a conversation that fits into `budget` tokens: messages or input items, as they came in.

    Call it with the whole conversation each time. Once that is longer than `budget` it is cut down to `low` tokens
    (half of the budget unless given), and then only grows until it is longer than the budget again: in between, what
    it begins with stays as it is, and the provider can read it from its cache. First go outputs of tools that a later
    one makes redundant, then the oldest outputs, then the oldest turns. System and developer messages and the last
    `keep_turns` turns are not touched; once so many turns did not fit by themselves, older steps go of the last ones
    too, except for the last `keep_turns` steps. A call of a tool and its result stay or go together. What has to stay
    may be more than the budget.

    Tokens are those of `model`, `tools` included, counted exactly where the tokenizer is on disk and else estimated;
    or what `count` returns for one message. What the `Curation` play has learnt at `origin` corrects the estimate: as
    records have it, "https://api.example.com:443". `stub` is the line in the place of an output. `summarise` is called
    once for each cut with the messages that it leaves out (behind the summary before, if there is one), and returns a
    text to stand for them; if it raises, they are left out without.

    The messages given are never changed; those that are not cut are returned as they are. Raises ConfigurationError for
    settings that cannot work, for a `count` that returns no whole number from 0, and for messages that are none.
    """
    marks = checked_marks("curate(budget=...)", budget, "curate(low=...)", low, "curate", keep_turns, stub)
    if count is not None and not callable(count):
        raise ConfigurationError(
            f"curate(count=...) takes a function that returns the tokens of one message, got {type(count).__name__}"
        )
    if model is not None and not isinstance(model, str):
        raise ConfigurationError(f"curate(model=...) takes the model's name, got {type(model).__name__}")
    checked_summarise("curate(summarise=...)", summarise)
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise ConfigurationError(f"curate() takes a list of messages, got {type(messages).__name__}")

    def start(leading: Sequence[Mapping[str, Any]]) -> Counting:
        if count is not None:
            counts = _checked_count(count)
            return Counting(counts, sum(map(counts, leading)))
        return counted_with(counter(model, origin=origin), leading, tools)

    given = [_plain(at, message) for at, message in enumerate(messages)]
    number_of_tools = len(tools) if tools is not None else 0
    seed = (marks, summarise, model, origin, count, number_of_tools)
    settings = Settings(marks, _memory, summarise, start, seed)
    result = curated("messages", given, settings)
    if result.messages is None:
        return Curated(messages, result.record)
    # What was read as a plain message may have been one of openai's objects: that goes back.
    own = {id(plain): message for plain, message in zip(given, messages, strict=True)}
    return Curated([own.get(id(message), message) for message in result.messages], result.record, result.failure)


def counted_with(counts: Counter, leading: Sequence[Any], tools: Any) -> Counting:
    """Return what a conversation is counted with: what is sent beside it, and the frame of its answer, rounded up."""
    frame = counts.messages("") - counts.message("")
    exactly = frame + sum(map(counts.message, leading)) + counts.tools(tools if isinstance(tools, list | tuple) else ())
    return Counting(counts.message, -(-exactly // _TOKENS) * _TOKENS, None if counts.exact else counts.ratio)


def checked_marks(
    high_name: str, high: Any, low_name: str, low: Any, keep_name: str, keep_turns: Any, template: Any
) -> Marks:
    """Return how a conversation is cut. Raises ConfigurationError, naming what cannot work."""
    if not _is_whole(high) or high < 1:
        raise ConfigurationError(f"{high_name} takes a whole number of tokens from 1, got {high!r:.80}")
    if low is None:
        low = max(1, high // 2)
    if not _is_whole(low) or not 1 <= low <= high:
        raise ConfigurationError(
            f"{low_name} takes a whole number of tokens from 1 to the {high} above which a conversation is cut, got "
            f"{low!r:.80}"
        )
    if not _is_whole(keep_turns) or keep_turns < 1:
        raise ConfigurationError(
            f"{keep_name}(keep_turns=...) takes a whole number from 1 (the last turn is what is to be answered), got "
            f"{keep_turns!r:.80}"
        )
    return Marks(high, low, keep_turns, checked_template(f"{keep_name}(stub=...)", template))


def checked_summarise(name: str, summarise: Any) -> None:
    """Raise ConfigurationError for what is no function that returns a text."""
    from inspect import iscoroutinefunction

    if summarise is None:
        return
    if not callable(summarise) or iscoroutinefunction(summarise):
        got = "a coroutine function" if iscoroutinefunction(summarise) else type(summarise).__name__
        raise ConfigurationError(
            f"{name} takes a function that returns a text for the messages that it is given, and is called, not "
            f"awaited, got {got}"
        )
    try:
        hash(summarise)
    except TypeError:
        raise ConfigurationError(f"{name} takes a function that can be told from others: it has no hash") from None


def _checked_count(count: Count) -> Count:
    def counted(message: Mapping[str, Any]) -> int:
        tokens: Any = count(message)
        try:
            whole = index(tokens)
        except TypeError:
            whole = -1
        if whole < 0 or isinstance(tokens, bool):
            got = tokens if _is_whole(tokens) else type(tokens).__name__
            raise ConfigurationError(
                "curate(count=...) takes a function that returns the tokens of one message as a whole number from 0, "
                f"and it returned {got}: round an estimate with math.ceil()"
            )
        return whole

    return counted


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
