"""Whether the input of a request begins with what a provider has seen, so that only the rest of it need be sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import orjson
from openai.types.responses import responses_client_event_param

from fastlane.compat.requests import stock_bytes

# Fields by which the context is more, or less, than the input, or by which the answer comes in another way.
_OTHER_CONTEXT = ("background", "context_management", "conversation", "previous_response_id", "prompt")
_events: Any = responses_client_event_param
# Older versions of openai have only one event.
_create: Any = getattr(_events, "ResponseCreate", _events.ResponsesClientEventParam)
_FIELDS = frozenset(_create.__annotations__) - {"generate", "stream_id", "type"}
_MOST_BYTES = 16 * 1024 * 1024
"""Above, HTTP is used: a provider may refuse messages that a request may have."""


class SocketTurn(NamedTuple):
    """A request for a response, as it is sent on a socket.

    It is written once: the application may change its lists meanwhile.
    """

    model: Any
    fields: bytes
    """The command without the input."""
    items: list[bytes]
    digests: list[bytes]
    """Of the first items, for each number of items: equal digests mean equal bytes."""


def turn_of(body: Mapping[str, Any]) -> SocketTurn | str:
    """Read the body of a request. Returns why it can only go over HTTP, if so."""
    for name in _OTHER_CONTEXT:
        if body.get(name):
            return f"it has the field {name}"
    if body.get("truncation") == "auto":
        return "it has truncation=auto"
    fields = {name: value for name, value in body.items() if name not in ("input", "stream", "background")}
    unknown = fields.keys() - _FIELDS
    if unknown:
        return f"it has the field {min(unknown)}"
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if type(items) is not list or not items:
        return "it has no input"
    written = [text for item in items if (text := stock_bytes(item)) is not None]
    command = stock_bytes({"type": "response.create", **fields})
    if len(written) < len(items) or command is None:
        return "its body is not plain JSON"
    if sum(map(len, written)) > _MOST_BYTES:
        return "its input is too large"
    start = blake2b(digest_size=16)
    digests = [state.digest() for state in accumulate(written, _with, initial=start)]
    return SocketTurn(body.get("model"), command, written, digests)


def _with(state: Any, item: Any) -> Any:
    longer = state.copy()
    longer.update(b"%d:" % len(item))
    longer.update(item)
    return longer


class Seen(NamedTuple):
    """What a provider has of a conversation after an answer: its input, and the output of the answer."""

    response_id: str
    model: Any
    inputs: int
    """Items of the input."""
    digest: bytes
    """Of these items."""
    output: tuple[bytes, ...]
    """The items of the answer, by `meaning`."""

    def new_from(self, turn: SocketTurn) -> int | None:
        """Return the index of the first item of a request that is not seen; None if it is another conversation."""
        count, end = self.inputs, self.inputs + len(self.output)
        if end >= len(turn.items) or turn.model != self.model or turn.digests[count] != self.digest:
            return None
        sent_back = turn.items[count:end]
        return end if all(map(_is_same, sent_back, self.output)) else None


def seen_after(turn: SocketTurn, response: Mapping[str, Any]) -> Seen | None:
    """Return what a provider has seen once it has completed a response; None if that is not certain."""
    response_id, output = response.get("id"), response.get("output")
    if not isinstance(response_id, str) or not isinstance(output, list):
        return None
    if not all(isinstance(item, dict) for item in output):
        return None
    return Seen(response_id, turn.model, len(turn.items), turn.digests[-1], tuple(map(meaning, output)))


def _is_same(written: bytes, output: bytes) -> bool:
    item = orjson.loads(written)
    return isinstance(item, dict) and meaning(item) == output


def meaning(item: Mapping[str, Any]) -> bytes:
    """Return a digest of an item of an answer without what applications leave out or add when they send it back.

    These are the order of its fields, fields without a value, its status, and its id, by which only the encrypted
    content of reasoning is found.
    """
    left_out = {"status"} if item.get("type") == "reasoning" else {"status", "id"}
    kept = {name: each for name, each in item.items() if name not in left_out}
    return blake2b(json.dumps(_valued(kept), sort_keys=True).encode(), digest_size=16).digest()


def _valued(value: Any) -> Any:
    """Return a value without the fields of its objects that have none: null, and empty lists of annotations."""
    if isinstance(value, list):
        return [_valued(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _valued(each)
        for name, each in value.items()
        if each is not None and not (name in ("annotations", "logprobs") and each == [])
    }
