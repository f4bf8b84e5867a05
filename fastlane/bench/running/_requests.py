"""What is sent: the body and the headers of one arm's request of one block."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..workloads import Turn, salted, salted_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Makes the requests of a run; `embedded` says whether the provider takes orders by headers."""

    model: str
    embedded: bool
    seed: int

    def body(self, turn: Turn, *, salt: str, tokens: int) -> dict[str, Any]:
        """Return the request's body but for `stream`, salted, asking for at most `tokens`."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": salted(turn.messages, salt),
            "max_completion_tokens": tokens,
            "stream_options": {"include_usage": True},
            **turn.fields,
        }
        if turn.tools:
            body["tools"] = salted_tools(turn.tools, salt)
        return body

    def headers(self, *, tag: str, tokens: int, draw: str) -> Mapping[str, str]:
        """Return what orders the embedded provider's answer; nothing for a real one.

        The same draw is the same luck: the arms of one block meet a provider in the same mood.
        """
        if not self.embedded:
            return {}
        luck = int.from_bytes(hashlib.blake2b(f"{self.seed}/{draw}".encode(), digest_size=6).digest(), "big")
        return {"x-emulator-tag": tag, "x-emulator-output-tokens": str(tokens), "x-emulator-draw": str(luck)}

    def salt(self, arm: str, what: str) -> str:
        """Return the first line of an arm's prompts in one conversation: as long for every arm, equal for every turn.

        A provider keeps prompts' prefixes. Without the salt the arm that sends a request first would pay for filling
        the cache, and the others would read from it. With it every arm has prefixes of its own, from turn to turn.
        """
        digest = hashlib.blake2b(f"{self.seed}/{arm}/{what}".encode(), digest_size=8).hexdigest()
        return f"Session {digest}."


def tokens_of(turn: Turn, most: int | None) -> int:
    """Return how many output tokens a turn asks for."""
    return turn.answer_tokens if most is None else min(turn.answer_tokens, most)
