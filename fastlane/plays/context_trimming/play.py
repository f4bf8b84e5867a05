"""03 Reuse more: keep a conversation small, and cut it in batches, so that its beginning can be read from a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import CallOutcome, Session
from fastlane.engine.settings import settings
from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter, counter
from fastlane.protocol.endpoints import CHAT, RESPONSES

from .cut import Counting, Marks
from .replay import Memory, ReplaySettings, new_memory, trim
from .section import ContextTrimmingSection

# By endpoint, where its conversation is.
_LISTS = {CHAT: "messages", RESPONSES: "input"}
# What the model is shown beside the conversation and the tools.
_BESIDE = ("instructions", "response_format", "text")
# What is sent beside a conversation is rounded up to this, so that a clock in instructions moves no cut.
_BESIDE_TOKENS = 64
# With these the provider holds a part of the conversation that is not in the body.
_HELD_ELSEWHERE = ("previous_response_id", "conversation")


@settings
class ContextTrimming(Play):
    """Cut a conversation that has grown to the high-water mark down to the low-water mark, and let it grow again.

    In between, what it begins with stays as it is. First go the oldest results of tools (a line stands for each), then
    the oldest turns; never instructions, the last turns, or half of a tool call and its result. The caller sends its
    whole history with every call, and it is never changed. Raises ConfigurationError if the low-water mark is not below
    the high-water mark.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section = ContextTrimmingSection

    high_water_tokens: Annotated[int, Field(ge=1)] = 32_000
    """Tokens of the whole prompt, instructions and tools included, above which it is cut."""
    low_water_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens to which it is cut; None for half of the high-water mark."""
    keep_turns: Annotated[int, Field(ge=1)] = 2
    """The last turns, which are not touched. Where they come to more than the middle between the marks, so many last
    steps and the questions."""
    memory: Memory = field(init=False, repr=False, compare=False)
    """What conversations have come to: it is shared by all clients that this object is given to."""

    def __post_init__(self) -> None:
        if self.low_water >= self.high_water_tokens:
            raise ConfigurationError(
                "ContextTrimming(low_water_tokens=...) must be below the high-water mark, or every turn is a cut: half "
                f"of it is a good start, got {self.low_water} of {self.high_water_tokens}"
            )
        object.__setattr__(self, "memory", new_memory())

    @property
    def low_water(self) -> int:
        """Tokens to which a conversation is cut."""
        return self.high_water_tokens // 2 if self.low_water_tokens is None else self.low_water_tokens

    def open(self, call: Call) -> Session | None:
        """Take part in calls whose whole conversation is in the body."""
        messages = call.body.get(_LISTS.get(call.endpoint, ""))
        if not isinstance(messages, list) or not messages:
            return None
        if any(call.body.get(field) is not None for field in _HELD_ELSEWHERE):
            return None
        whole = all(type(message) is dict or isinstance(message, Mapping) for message in messages)
        return _Session(self) if whole else None


class _Session(Session):
    def __init__(self, play: ContextTrimming) -> None:
        self._play = play
        self._section: ContextTrimmingSection | None = None

    def plan(self, call: Call) -> Call:
        """Send the conversation as it was cut."""
        name, placements = _LISTS[call.endpoint], call.placements
        messages = call.body[name]
        if placements is None or len(placements) != len(messages):
            placements = ("session",) * len(messages)
        # What is volatile follows the conversation, and is no part of it: the next call has others.
        end = len(messages)
        while end and placements[end - 1] == "volatile":
            end -= 1
        stable = [index for index, placement in enumerate(placements) if placement == "stable"]
        trimmed = trim(name, messages[:end], self._settings(call), stable=stable)
        record = self._section = trimmed.record
        if trimmed.messages is None:
            return call
        change = (
            f"ContextTrimming cut {name} from {record.tokens_before:,} to {record.tokens_after:,} tokens: "
            f"{len(record.cuts)} messages shortened or left out, {record.new_cuts} of them now"
        )
        changed = call.with_body(change, **{name: [*trimmed.messages, *messages[end:]]})
        if call.placements is None:
            return changed
        return changed.replaced(placements=(*(placements[index] for index in trimmed.indexes), *placements[end:]))

    def close(self, outcome: CallOutcome) -> ContextTrimmingSection | None:
        """Say what was cut."""
        return self._section

    def _settings(self, call: Call) -> ReplaySettings:
        play, body = self._play, call.body
        tools = body.get("tools")

        def start(leading: Sequence[Mapping[str, Any]]) -> Counting:
            beside = [*leading, *(body[name] for name in _BESIDE if isinstance(body.get(name), str | Mapping))]
            return counted_with(counter(call.model, wait=False), beside, tools)

        marks = Marks(play.high_water_tokens, play.low_water, play.keep_turns)
        return ReplaySettings(marks, play.memory, start, (call.endpoint, len(tools) if isinstance(tools, list) else 0))


def counted_with(counts: Counter, leading: Sequence[Any], tools: Any) -> Counting:
    """Return what a conversation is counted with: what is sent beside it, and the frame of its answer, rounded up."""
    frame = counts.messages("") - counts.message("")
    exactly = frame + sum(map(counts.message, leading)) + counts.tools(tools if isinstance(tools, list | tuple) else ())
    return Counting(counts.message, -(-exactly // _BESIDE_TOKENS) * _BESIDE_TOKENS)
