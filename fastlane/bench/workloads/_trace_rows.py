"""Requests of which only the shape is known: when, how long, and which blocks of their prompts are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ._messages import GeneratedMessages, Message
from ._text import lead, prompt, words
from ._workload import Conversation, Turn

_LEAD_WORDS = 3


class TraceRow(NamedTuple):
    """One request of a trace."""

    number: int
    """Its line in the file, from 1."""
    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Hashes of its prompt's blocks from the start: equal hashes stand for equal text. None known: nothing shared."""


def block(key: str, number: int, tokens: int) -> str:
    """Return the text of a block: the same for the same number, other words from the start on for another."""
    begin = " ".join(lead(key, number)[:tokens])
    rest = words(f"{key}/block/{number}", max(tokens - _LEAD_WORDS, 0))
    return f"{begin} {rest}" if rest else begin


def shared_prompt(key: str, blocks: Sequence[int], tokens: int, block_tokens: int, number: int) -> str:
    """Return a prompt of so many tokens that has the text of its blocks, and after them text of its own."""
    pieces = [
        block(key, each, min(block_tokens, tokens - at * block_tokens))
        for at, each in enumerate(blocks)
        if at * block_tokens < tokens
    ]
    if (rest := tokens - len(blocks) * block_tokens) > 0:
        pieces.append(block(f"{key}/own", number, rest))
    return " ".join(pieces)


@dataclass(frozen=True, slots=True)
class Turns:
    """The one turn of a trace's request, with text made for it."""

    key: str
    row: TraceRow
    block_tokens: int
    name: str

    def messages(self) -> tuple[Message, ...]:
        """Write the prompt."""
        row = self.row
        if row.blocks:
            text = shared_prompt(self.key, row.blocks, row.input_tokens, self.block_tokens, row.number)
        else:
            text = prompt(self.key, row.number, row.input_tokens)
        return ({"role": "user", "content": text},)

    def __call__(self) -> tuple[Turn, ...]:
        row = self.row
        turn = Turn(
            conversation=self.name,
            number=1,
            messages=GeneratedMessages(1, self.messages),
            tools=(),
            answer_tokens=max(2, row.output_tokens),
            input_tokens=row.input_tokens,
            arrival_s=row.arrival_s,
        )
        return (turn,)


@dataclass(frozen=True, slots=True)
class TraceConversations:
    """Makes the conversation of each row."""

    key: str
    rows: tuple[TraceRow, ...]
    block_tokens: int = 512

    def __call__(self, at: int) -> Conversation:
        row = self.rows[at]
        name = f"request {row.number}"
        turns = Turns(self.key, row, self.block_tokens, name)
        return Conversation(name=name, arrival_s=row.arrival_s, make_turns=turns)
