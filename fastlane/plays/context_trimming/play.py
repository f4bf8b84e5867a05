"""03 Reuse more: keep a conversation small, and cut it in batches, so that its beginning can be read from a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.errors import ConfigurationError
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.records.record import CallRecord

from .section import CurationSection

if TYPE_CHECKING:
    from ._batch import Counting, Marks
    from ._conversation import Settings
    from ._replay import Memory

# By endpoint, where its conversation is.
_LISTS = {CHAT: "messages", RESPONSES: "input"}
# What the model is shown beside the conversation and the tools.
_BESIDE = ("instructions", "response_format", "text")
# With these the provider holds a part of the conversation that nobody sees here.
_HELD_ELSEWHERE = ("previous_response_id", "conversation")
# Of a shorter prompt the estimate says less, because what is sent beside the conversation is rounded to 64 tokens.
_LEAST_TELLING = 1_280


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation(Play):
    """Cut a conversation that has grown to the high-water mark down to the low-water mark, and let it grow again.

    In between, what it begins with stays as it is. First go outputs of tools that a later one makes redundant, then
    the oldest outputs (a line stands for each), then the oldest turns; never instructions, the last turns, or half of
    a tool call and its result. The application sends its whole history with every call, and it is never changed.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section = CurationSection

    high_water_tokens: int = 32_000
    """Tokens of the whole prompt, instructions and tools included, above which it is cut."""
    low_water_tokens: int | None = None
    """Tokens to which it is cut; None for half of the high-water mark."""
    keep_turns: int = 2
    """The last turns, which are not touched; where so many turns did not fit by themselves, so many last steps."""
    stub: str | None = None
    """The line in the place of an output, with any of {tool}, {arguments}, {lines}, {characters} and {reason}; None for
    `curate`'s own."""
    summarise: Callable[[list[Any]], str] | None = None
    """Called once for each cut with the messages that it leaves out; returns a text to stand for them. The call waits
    for it."""
    memory: Memory = field(init=False, repr=False, compare=False)
    """What conversations have come to: it is shared by all clients that this object is given to."""
    marks: Marks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # With the client and not with `import fastlane`.
        from ._curate import checked_marks, checked_summarise
        from ._replay import Memory
        from ._stub import STUB

        marks = checked_marks(
            "Curation(high_water_tokens=...)",
            self.high_water_tokens,
            "Curation(low_water_tokens=...)",
            self.low_water_tokens,
            "Curation",
            self.keep_turns,
            STUB if self.stub is None else self.stub,
        )
        if marks.low == marks.high:
            raise ConfigurationError(
                "Curation(low_water_tokens=...) must be below the high-water mark, or every turn is a cut: half of it "
                f"is a good start, got {marks.low!r} for both"
            )
        checked_summarise("Curation(summarise=...)", self.summarise)
        object.__setattr__(self, "marks", marks)
        object.__setattr__(self, "memory", Memory())

    def plan(self, call: Call) -> Call:
        """Send the conversation as it was cut, and say what that saves."""
        name = _LISTS.get(call.endpoint)
        messages = call.body.get(name) if name is not None else None
        if name is None or not isinstance(messages, list) or not messages:
            return call
        if any(call.body.get(field) is not None for field in _HELD_ELSEWHERE):
            return call
        if not all(type(message) is dict or isinstance(message, Mapping) for message in messages):
            return call
        from ._conversation import curated

        stable: list[int] = []
        volatile: list[int] = []
        placements = call.placements
        if placements is not None and len(placements) == len(messages):
            stable = [index for index, placement in enumerate(placements) if placement == "stable"]
            volatile = [index for index, placement in enumerate(placements) if placement == "volatile"]
        result = curated(name, messages, self._settings(call), stable=stable, volatile=volatile)
        if result.messages is None:
            return call.with_data(result.record)
        record = result.record
        said = (
            f"Curation cut {name} from {record.tokens_before:,} to {record.tokens_after:,} tokens: "
            f"{len(record.cuts)} messages shortened or left out, {record.new_cuts} of them now"
        )
        if result.failure is not None:
            said += f"; without a summary, because of {result.failure}"
        if placements is not None and len(placements) == len(messages):
            placements = tuple("session" if index is None else placements[index] for index in result.indexes)
        return call.with_body(said, **{name: result.messages}).replaced(placements=placements).with_data(record)

    def learn(self, record: CallRecord) -> None:
        """Correct the estimates of later conversations by what the provider counted of this one."""
        curation, counted = record.curation, record.usage.input_tokens
        if curation is None or curation.ratio is None or counted is None or curation.tokens_after < _LEAST_TELLING:
            return
        from fastlane.knowledge.tokens import learn

        learn(record.origin, record.model, estimated=curation.tokens_after / curation.ratio, input_tokens=counted)

    def _settings(self, call: Call) -> Settings:
        from fastlane.knowledge.tokens import counter

        from ._conversation import Settings
        from ._curate import counted_with

        body = call.body
        tools = body.get("tools")

        def start(leading: Sequence[Mapping[str, Any]]) -> Counting:
            beside = [*leading, *(body[name] for name in _BESIDE if isinstance(body.get(name), str | Mapping))]
            return counted_with(counter(call.model, origin=call.origin, wait=False), beside, tools)

        number_of_tools = len(tools) if isinstance(tools, list) else 0
        return Settings(self.marks, self.memory, self.summarise, start, (call.endpoint, number_of_tools))
