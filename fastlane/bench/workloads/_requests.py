"""Recorded requests as conversations of one turn: with their text where it is known, else with synthetic words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ._messages import Message
from ._text import shared_prompt, user_prompt
from ._workload import Conversation, Made, Turn, Workload

MOST_REQUESTS: Final = 100_000
"""Requests that are kept of recorded traffic without a limit: about 20 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request of recorded traffic."""

    name: str
    number: int
    """Its place in the file, from 1."""
    arrival_s: float
    input_tokens: int
    answer_tokens: int
    """The most output tokens that are asked for."""
    key: str
    """Only prompts with the same key share text."""
    blocks: tuple[int, ...] = ()
    """Hashes of its prompt's blocks from the start: equal hashes stand for equal text. None known: nothing shared."""
    text: tuple[tuple[Message, ...], tuple[Message, ...]] | None = None
    """Messages and tools where they were recorded."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""


def workload_of(
    name: str, requests: Sequence[RecordedRequest], *, block_tokens: int, source: str, notes: Sequence[str]
) -> Workload:
    """Return the workload of at least one request, in the order of arrival; prompts are made when they are used."""
    ordered = tuple(sorted(requests, key=lambda each: each.arrival_s))
    replay = _Replay(ordered, ordered[0].arrival_s, block_tokens)
    return Workload(
        name=name,
        conversations=Made(range(len(ordered)), replay),
        notes=tuple(notes),
        source=source,
        shares_prefixes=any(each.blocks for each in ordered),
    )


def notes_of(changes: Counter[str]) -> list[str]:
    """Return a sentence for each kind of change."""
    return [f"{change} ({count} times)" for change, count in sorted(changes.items())]


@dataclass(frozen=True, slots=True)
class _Replay:
    """Makes the conversation of each request."""

    requests: tuple[RecordedRequest, ...]
    began_s: float
    block_tokens: int

    def __call__(self, at: int) -> Conversation:
        request = self.requests[at]
        arrival_s = round(request.arrival_s - self.began_s, 6)
        known = (request.key, request.number, request.input_tokens)
        messages: Sequence[Message]
        tools: Sequence[Message] = ()
        if request.text is not None:
            messages, tools = request.text
        elif request.blocks:
            messages = Made([(*known, request.blocks, self.block_tokens)], _shared)
        else:
            messages = Made([known], user_prompt)
        turn = Turn(
            conversation=request.name,
            number=1,
            messages=messages,
            tools=tools,
            answer_tokens=max(2, request.answer_tokens),
            input_tokens=request.input_tokens,
            arrival_s=arrival_s,
            fields=request.fields,
        )
        return Conversation(name=request.name, arrival_s=arrival_s, made=(turn,))


def _shared(asked: tuple[str, int, int, Sequence[int], int]) -> Message:
    return {"role": "user", "content": shared_prompt(*asked)}
