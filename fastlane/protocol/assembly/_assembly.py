"""Put the events of a stream together into the answer that the API would have given at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ._chat_assembly import ChatAssembly
from ._completions_assembly import CompletionsAssembly
from ._cut import Cut as Cut
from ._deltas import Channel, Delta
from ._responses_assembly import ResponsesAssembly
from ._typed_deltas import deltas_of as deltas_of


class Assembly(Protocol):
    """One answer, put together event by event. Nothing raises, whatever the events are: what is odd is passed over."""

    error: Mapping[str, Any] | None
    """What the provider said instead of the rest of its answer: the object that openai's own error has as its body."""

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason and nothing failed, or the event that ends a response has come."""

    def take(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        """Add one event of the stream, as parsed JSON, and return what it adds to which text."""

    def body(self, cut: Cut | None = None) -> dict[str, Any]:
        """Return the answer as the API gives it when it is not streamed; a new one each time.

        With `cut` the answer counts as one that the model has ended: "stop", "tool_calls" or "completed".
        """

    def text(self, channel: Channel) -> str:
        """Return what a channel's deltas of content, of a refusal or of a tool's arguments have come to."""


_ASSEMBLIES: Mapping[str, Callable[[int], Assembly]] = {
    "/chat/completions": ChatAssembly,
    "/completions": CompletionsAssembly,
    "/responses": lambda _choices: ResponsesAssembly(),
}


def assembly_of(endpoint: str, *, choices: int = 1) -> Assembly | None:
    """Return an empty answer of this endpoint; None where its streams are unknown here.

    `choices` is the request's `n`: the answer is not finished before so many have a finish reason.
    """
    make = _ASSEMBLIES.get(endpoint)
    return None if make is None else make(choices)
