"""What every endpoint's rendering of a generation has in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

# The answers of one seed are equal byte for byte, so that they carry this moment instead of the present one.
CREATED = 1_780_000_000
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
MALFORMED = b'data: {"id": "broken", "choices": [{"index": 0, "delta": {"content": "hal\n\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one answer, all choices together; `output` includes `reasoning`, `prompt` includes `cached`."""

    prompt: int
    cached: int
    output: int
    reasoning: int

    def chat(self) -> dict[str, object]:
        """Return it as chat completions show it."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def responses(self) -> dict[str, object]:
        """Return it as responses show it."""
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.output,
        }


@dataclass(frozen=True, slots=True)
class Tick:
    """What the model sends at one moment: the bytes, and how many tokens they are."""

    data: bytes
    tokens: int
    reasoning_tokens: int


class Reply(Protocol):
    """One answer, streamed or whole; pure."""

    def opening(self) -> bytes:
        """Return what comes before the first token (the role chunk)."""

    def ticks(self) -> Iterator[Tick]:
        """Return the tokens, one tick per moment."""

    def closing(self, *, usage: bool, done: bool) -> bytes:
        """Return what comes after the last token."""

    def whole(self, *, usage: bool) -> bytes:
        """Return the answer that is not streamed."""
