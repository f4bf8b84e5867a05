"""Put a streamed answer together for an application that does not stream, and judge nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..knowledge.tokens import counter
from ..protocol.assembly import Assembly, assembly_of
from ..protocol.usage import answer_tokens, estimated_usage, prompt_tokens
from .call import Call


class Collector:
    """The answer of one attempt while it arrives; where no play has a collector of its own."""

    stop_reason = None
    """Nothing in an answer makes us close its stream."""
    has_all = False
    """An answer has ended when it says so itself."""

    def __init__(self, call: Call) -> None:
        self._call = call
        body = call.body
        assembly = assembly_of(call.endpoint, choices=_count(body.get("n")) * _prompts(body))
        assert assembly is not None
        self.assembly: Assembly = assembly

    def take(self, event: Mapping[str, Any]) -> tuple[bool, list[Any]]:
        """Look at one event; whether the stream is to be closed, and what kinds of output it brought."""
        return False, [delta.kind for delta in self.assembly.take(event)]

    def assembled(self) -> dict[str, Any]:
        """The answer as the API gives it without streaming; its usage is estimated where the provider told none."""
        call, body = self._call, self.assembly.body()
        if "choices" in body and body.get("usage") is None:
            counting = counter(call.model, origin=call.origin, wait=False)
            body["usage"] = estimated_usage(
                call.endpoint,
                input_tokens=prompt_tokens(call.body, counting),
                output_tokens=answer_tokens(body, call.endpoint, counting),
            )
        return body

    def checked(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as it is."""
        return body


def _prompts(body: Mapping[str, Any]) -> int:
    """How many prompts a legacy completion has: texts, or lists of tokens. Each has its own choices."""
    prompt = body.get("prompt")
    return len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1


def _count(n: Any) -> int:
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1
