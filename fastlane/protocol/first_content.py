"""Decide from the bytes of a stream whether the answer has begun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .answer_texts import verdict_of
from .content import MESSAGE_KINDS, RESPONSE_ENDS, error_of, error_status, is_cut_off, is_refused
from .endpoints import GENERATING, RESPONSES, is_response
from .events import INVALID_JSON, EventReader, parse_event
from .fields import listed

Verdict = Literal["content", "empty", "error", "unknown"]
"""How an answer begins.

- content: it has output that a user can show or use: text, reasoning, a tool call, a refusal, or output of another kind
- empty: it ended normally without any output
- error: the provider reported an error, or sent something that is not JSON, before any output
- unknown: pass the answer on. It is not an event stream, or compressed, or it ended at its limit or in a filter
  without output
"""

# Fields of a message or an item that are not output.
_FRAME_FIELDS = frozenset({"type", "index", "id", "role", "object"})
_DONE_FIELDS = ("text", "refusal", "arguments", "input", "code", "part")

# The most bytes to hold back. A response repeats all of its instructions and tools before its first output.
_MAX_HELD_BYTES = 16 * 1024 * 1024


class FirstContent:
    """Sans-IO: parses the event stream of an answer until its first output."""

    __slots__ = ("_bytes", "_is_cut_off", "_is_response", "_reader", "_verdict", "status_of_error")

    def __init__(self, endpoint: str) -> None:
        self._is_response = is_response(endpoint)
        self._reader = EventReader()
        self._bytes = 0
        self._is_cut_off = False
        """Whether the answer met its limit or a filter."""
        self._verdict: Verdict | None = None
        self.status_of_error: int | None = None
        """The status of the error without streaming; None if there is no error, or it is not JSON."""

    def feed(self, piece: bytes) -> Verdict | None:
        """Read the next piece of the body; return None until the answer begins."""
        if self._verdict is None:
            self._bytes += len(piece)
            for data in self._reader.feed(piece):
                self._verdict = self._verdict or self._read(data)
            if self._bytes > _MAX_HELD_BYTES:
                self._verdict = self._verdict or "unknown"
        return self._verdict

    def ended(self) -> Verdict:
        """Return the verdict at the end of the body."""
        if self._verdict is None:
            self._verdict = "unknown" if self._is_cut_off else "empty"
        return self._verdict

    def _read(self, data: bytes) -> Verdict | None:
        if data.startswith(b"[DONE]"):
            return self.ended()
        event = parse_event(data)
        if event is INVALID_JSON:
            return "error"
        if not isinstance(event, Mapping):
            return None
        error = event.get("error")
        if error or event.get("type") == "error" or event.get("object") == "error":
            return self._error(error_of(error) or event)
        return self._read_response(event) if self._is_response else self._read_chunk(event)

    def _error(self, error: Mapping[str, Any] | None) -> Verdict:
        self.status_of_error = error_status(error or {})
        return "error"

    def _read_chunk(self, event: Mapping[str, Any]) -> Verdict | None:
        for choice in listed(event.get("choices")):
            if not isinstance(choice, Mapping):
                continue
            if choice.get("error"):
                return self._error(error_of(choice["error"]))
            delta = choice.get("message") if choice.get("delta") is None else choice["delta"]  # an answer in one piece
            if choice.get("text") or _has_output(delta):
                return "content"
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and (is_cut_off(reason) or is_refused(reason)):
                self._is_cut_off = True
        return None

    def _read_response(self, event: Mapping[str, Any]) -> Verdict | None:
        kind = event.get("type")
        if not isinstance(kind, str):
            return None
        if kind in RESPONSE_ENDS:
            response = event.get("response")
            response = response if isinstance(response, Mapping) else {}
            if not is_empty_answer({**response, "status": "completed"}, RESPONSES):
                return "content"
            if kind == "response.failed":
                return self._error(error_of(response.get("error")))
            return "empty" if kind == "response.completed" else "unknown"
        if kind.endswith(".delta"):
            begun = bool(event.get("delta"))
        elif kind == "response.output_item.done":
            begun = _item_has_output(event.get("item"), reasoning=True)
        else:
            # A tool that the provider runs has begun, or a text without deltas has ended.
            begun = "_call." in kind or (
                kind.endswith(".done") and any(_has_value(event.get(name)) for name in _DONE_FIELDS)
            )
        return "content" if begun else None


def is_empty_answer(body: Mapping[str, Any], endpoint: str) -> bool:
    """Return whether the JSON of a whole answer has no output: no text, tool call, refusal or audio.

    Reasoning does not count. An answer that met its limit or a filter is not empty, nor is one that is not finished,
    or that has output of a kind that is unknown here.
    """
    if endpoint not in GENERATING or verdict_of(body, endpoint) is not None:
        return False
    if endpoint == RESPONSES:
        if body.get("status") in ("queued", "in_progress", "cancelled", "incomplete"):
            return False
        return not any(_item_has_output(item, reasoning=False) for item in listed(body.get("output")))
    return not any(
        isinstance(choice, Mapping) and (choice.get("text") or _has_output(choice.get("message"), reasoning=False))
        for choice in listed(body.get("choices"))
    )


def _has_output(message: Any, *, reasoning: bool = True) -> bool:
    return isinstance(message, Mapping) and any(
        _has_value(value)
        for name, value in message.items()
        if name not in _FRAME_FIELDS and (reasoning or MESSAGE_KINDS.get(name) != "reasoning")
    )


def _item_has_output(item: Any, *, reasoning: bool) -> bool:
    """Return whether an item of a response has output. Any other type of item is a tool call."""
    if not isinstance(item, Mapping):
        return False
    if item.get("type") == "reasoning":
        return reasoning and (_has_value(item.get("summary")) or _has_value(item.get("content")))
    return item.get("type") != "message" or _has_value(item.get("content"))


def _has_value(value: Any) -> bool:
    """Return whether a value, or a value inside of it, is not empty, apart from the frame's fields."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(inner for name, inner in one.items() if name not in _FRAME_FIELDS)
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif one:
            return True
    return False
