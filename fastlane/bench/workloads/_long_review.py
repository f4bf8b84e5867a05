"""A review of about 30,000 tokens of real source code, and two prompts of its size that compress far more and less."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter, counter

from ._code_review import MODULES, source_of
from ._made import GeneratedMessages
from ._messages import Message
from ._text import cut_to, lead
from ._workload import Conversation, Turn

Payload = Literal["code", "repeat", "random"]

TOKENS = 30_000
_MOST_CHARACTERS = TOKENS * 8
_REPEATED_CHARACTERS = 1_800
# Tokens of each random character, with o200k_base (0.76 with cl100k_base): estimates are made for text.
_RANDOM_TOKENS = 0.747
_ASK = "\n\nReview this code. Name the three worst errors, each with its line and the smallest change that repairs it."
# Printable ASCII but for what JSON escapes.
_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\')


@dataclass(frozen=True, slots=True, kw_only=True)
class LongReviews:
    """Makes reviews: each begins with words of its own, and with another module."""

    seed: int
    payload: Payload = "code"
    model: str | None = None

    def __call__(self, number: int) -> Conversation:
        return Conversation(name=f"long review {number}", make_turns=_TurnOf(self, number))


@dataclass(frozen=True, slots=True)
class _TurnOf:
    made: LongReviews
    number: int

    def messages(self) -> tuple[Message, ...]:
        """Write the review's prompt."""
        made = self.made
        counts = counter(made.model)
        begin = " ".join(lead(f"long review/{made.seed}", self.number)) + "\n\n"
        room = TOKENS - counts.text(begin) - counts.text(_ASK)
        text = f"{begin}{_cut(_payload(made.payload, self.number, made.seed), room, counts, made.payload)}{_ASK}"
        return ({"role": "user", "content": text},)

    def __call__(self) -> tuple[Turn, ...]:
        turn = Turn(
            conversation=f"long review {self.number}",
            number=1,
            messages=GeneratedMessages(1, self.messages),
            tools=(),
            answer_tokens=1_024,
            input_tokens=TOKENS,
        )
        return (turn,)


def _cut(text: str, tokens: int, counts: Counter, payload: Payload) -> str:
    if payload == "random" and not counts.exact:
        return text[: round(tokens / _RANDOM_TOKENS)]
    return cut_to(text, tokens, counts)


@lru_cache(maxsize=64)
def _code(first: int) -> str:
    """Modules of the running Python's standard library, one after the other, from the `first` on."""
    pieces: list[str] = []
    for step in range(len(MODULES)):
        module = MODULES[(first + step) % len(MODULES)]
        source = source_of(module)
        if source is not None:
            pieces.append(f"# {module}\n{source}")
        if sum(map(len, pieces)) >= _MOST_CHARACTERS:
            break
    text = "\n".join(pieces)
    if len(text) < _MOST_CHARACTERS // 2:
        raise ConfigurationError(
            "code-review-30k needs the source text of Python's standard library, and this Python has none: use another "
            "installation, or code-review-30k-random"
        )
    return text[:_MOST_CHARACTERS]


def _payload(payload: Payload, number: int, seed: int) -> str:
    if payload == "random":
        drawn = hashlib.shake_128(f"long review/{seed}/{number}".encode()).digest(_MOST_CHARACTERS)
        return "".join([_CHARACTERS[byte % len(_CHARACTERS)] for byte in drawn])
    code = _code(number % len(MODULES))
    if payload == "code":
        return code
    # Whole lines from somewhere within, so that a piece is code and no licence.
    start = code.index("\n", len(code) // 3) + 1
    piece = code[start : code.rindex("\n", start, start + _REPEATED_CHARACTERS) + 1]
    return piece * (_MOST_CHARACTERS // len(piece))
