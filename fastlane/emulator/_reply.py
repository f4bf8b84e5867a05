"""What every endpoint's rendering of a generation has in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastlane.emulator._generation import GeneratedChoice

# The answers of one seed are equal byte for byte, so that they carry this moment instead of the present one.
CREATED = 1_780_000_000
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
MALFORMED = b'data: {"id": "broken", "choices": [{"index": 0, "delta": {"content": "hal\n\n'


def compact(value: object) -> str:
    """Return JSON without white space."""
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The tokens of one answer, all choices together; `output` includes `reasoning`, `prompt` includes `cached`."""

    prompt: int
    cached: int
    output: int
    reasoning: int
    cache_written: int = 0
    """Tokens that were not in the cache and are from now on; only responses tell them."""
    cached_path: str = "standard"
    """Where the cached tokens are counted: see `Dialect.cached_tokens_path`."""

    @classmethod
    def of(cls, choices: Sequence[GeneratedChoice], **counts: Any) -> TokenUsage:
        """Count the choices of an answer; the other counts are given."""
        reasoning = sum(len(choice.reasoning) for choice in choices)
        return cls(output=sum(choice.tokens for choice in choices), reasoning=reasoning, **counts)

    def chat(self) -> dict[str, Any]:
        """Return it as chat completions show it."""
        shown: dict[str, Any] = {
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
        return self._with_cached(shown, "prompt_tokens_details")

    def responses(self) -> dict[str, Any]:
        """Return it as responses show it."""
        shown: dict[str, Any] = {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": self.cache_written},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.output,
        }
        return self._with_cached(shown, "input_tokens_details")

    def _with_cached(self, shown: dict[str, Any], standard: str) -> dict[str, Any]:
        if self.cached_path == "standard":
            return shown
        del shown[standard]
        if self.cached_path != "none":
            *above, last = self.cached_path.split(".")[1:]
            inner = shown
            for name in above:
                inner = inner.setdefault(name, {})
            inner[last] = self.cached
        return shown


@dataclass(frozen=True, slots=True)
class Tick:
    """What the model sends at one moment: the bytes, and how many tokens they are."""

    data: bytes
    tokens: int
    reasoning_tokens: int


class GeneratedReply(Protocol):
    """One answer, streamed or whole; pure."""

    def opening(self) -> bytes:
        """Return what comes before the first token (the role chunk)."""

    def ticks(self) -> Iterator[Tick]:
        """Return the tokens, one tick per moment."""

    def closing(self, *, usage: bool, done: bool) -> bytes:
        """Return what comes after the last token."""

    def whole(self, *, usage: bool) -> bytes:
        """Return the answer that is not streamed."""
