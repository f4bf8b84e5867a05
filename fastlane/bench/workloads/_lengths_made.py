"""Requests of given lengths: each a conversation of one turn, or of several for an agent, made when it is used."""

from __future__ import annotations

from dataclasses import dataclass

from fastlane.knowledge.tokens import counter

from ._lengths import TokenLengths
from ._messages import GeneratedMessages, Message
from ._text import prompt
from ._workload import Conversation, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLengths:
    """Makes conversations whose prompts and answers have lengths drawn by their number: always the same ones."""

    label: str
    seed: int
    input: TokenLengths
    output: TokenLengths
    calls: int = 1
    """Requests of each conversation, one after the other."""
    least_answer_tokens: int | None = None
    model: str | None = None
    """Whose tokenizer counts the prompts, where it lies on disk."""

    def __call__(self, number: int) -> Conversation:
        return Conversation(name=f"{self.label} {number}", make_turns=_TurnsOf(self, number))


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Writes one prompt."""

    key: str
    number: int
    tokens: int
    model: str | None

    def __call__(self) -> tuple[Message, ...]:
        counts = counter(self.model) if self.model is not None else None
        return ({"role": "user", "content": prompt(self.key, self.number, self.tokens, counts)},)


@dataclass(frozen=True, slots=True)
class _TurnsOf:
    made: OfLengths
    number: int

    def __call__(self) -> tuple[Turn, ...]:
        return tuple(self._turn(call) for call in range(self.made.calls))

    def _turn(self, call: int) -> Turn:
        made = self.made
        # Every call of an agent is a prompt of its own: neighbours differ in their first word.
        at = self.number * made.calls + call
        key = f"{made.label}/{made.seed}"
        tokens = made.input.drawn(f"{key}/input/{at}")
        return Turn(
            conversation=f"{made.label} {self.number}",
            number=call + 1,
            messages=GeneratedMessages(1, _Prompt(key, at, tokens, made.model)),
            tools=(),
            answer_tokens=made.output.drawn(f"{key}/output/{at}"),
            least_answer_tokens=made.least_answer_tokens,
            input_tokens=tokens,
        )
