"""Say by the bytes of an event stream whether it has begun to answer, as far as anybody can see who waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastlane.plays.bounded_output.outputs._answer_texts import is_cut_off, is_refused, verdict_of
from fastlane.protocol.content import error_of
from fastlane.protocol.event_data import EventData

from ..collecting import NO_JSON, event_of, status_of

Verdict = Literal["content", "empty", "error", "unknown"]
"""How an answer has begun.

- content: something of it has come that an application can show or use: text, reasoning, a call of a tool, a refusal
- empty: it is over, by its own word, and nothing of that kind was in it
- error: the provider says in the stream that it failed, or says what is no JSON, before anything of that kind
- unknown: nothing can be said, and the answer is to be taken as it is: it is no event stream, or compressed, or it
  ended at its limit or in a filter without any content, or there is something in it that is unknown here
"""

# Fields of a chat message that are output wherever they are not empty. Those of `_tokens_seen`, and OpenRouter's list
# of what was thought.
_OUTPUT = (
    "reasoning_content", "reasoning", "reasoning_details", "tool_calls", "function_call", "refusal", "audio",
)  # fmt: skip
_REASONING = frozenset(_OUTPUT[:3])
# What stands around something that is said.
_FRAME = frozenset({"type", "index", "id", "role", "object"})
_TEXTS = ("text", "refusal", "arguments", "input", "code", "part")

# The most of an answer that is held back. A response says all of its instructions and tools again before it begins.
_MOST_HELD_BYTES = 16 * 1024 * 1024


class FirstContent:
    """Sans-IO: one answer's event stream, until it is known how it begins."""

    __slots__ = ("_bytes", "_data", "_is_odd", "_is_response", "_verdict", "status_of_error")

    def __init__(self, endpoint: str) -> None:
        self._is_response = endpoint == "/responses"
        self._data = EventData()
        self._bytes = 0
        self._is_odd = False
        """Without content, nothing is to be said against this answer."""
        self._verdict: Verdict | None = None
        self.status_of_error: int | None = None
        """The status that the error would have had without a stream; None where there was none, or it is no JSON."""

    def feed(self, piece: bytes) -> Verdict | None:
        """Look at the next piece of the body; None while nothing has come but comments, roles and announcements."""
        if self._verdict is not None:
            return self._verdict
        self._bytes += len(piece)
        for data in self._data.feed(piece):
            self._verdict = self._look(data)
            if self._verdict is not None:
                return self._verdict
        if self._bytes > _MOST_HELD_BYTES:
            self._verdict = "unknown"
        return self._verdict

    def ended(self) -> Verdict:
        """The body has ended. An event that its end cuts off is none, as for openai's own code."""
        if self._verdict is None:
            self._verdict = "unknown" if self._is_odd else "empty"
        return self._verdict

    def _look(self, data: bytes) -> Verdict | None:
        if data.startswith(b"[DONE]"):
            return self.ended()
        event = event_of(data)
        if event is NO_JSON:
            return "error"
        if not isinstance(event, Mapping):
            return None
        error = event.get("error")
        if error or event.get("type") == "error" or event.get("object") == "error":
            self.status_of_error = status_of(error_of(error) or event)
            return "error"
        return self._of_response(event) if self._is_response else self._of_chunk(event)

    def _of_chunk(self, event: Mapping[str, Any]) -> Verdict | None:
        for choice in _list(event.get("choices")):
            if not isinstance(choice, Mapping):
                continue
            if choice.get("error"):
                self.status_of_error = status_of(error_of(choice["error"]) or {})
                return "error"
            if choice.get("text"):
                return "content"
            delta = choice.get("delta")
            if delta is None:
                delta = choice.get("message")  # an answer in one piece
            if isinstance(delta, Mapping):
                if _says(delta.get("content")) or any(map(delta.get, _OUTPUT)):
                    return "content"
                self._is_odd = self._is_odd or _says_more(delta)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and (is_cut_off(reason) or is_refused(reason)):
                self._is_odd = True
        return None

    def _of_response(self, event: Mapping[str, Any]) -> Verdict | None:
        kind = event.get("type")
        if not isinstance(kind, str):
            return None
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            return self._of_whole(kind, response if isinstance(response, Mapping) else {})
        said = False
        if kind.endswith(".delta"):
            said = bool(event.get("delta"))
        elif "_call." in kind:
            said = True  # a tool of the provider's own is at work
        elif kind == "response.output_item.done":
            said = _item_says(event.get("item"), reasoning=True)
        elif kind.endswith(".done"):
            said = any(_says(event.get(name)) for name in _TEXTS)
        return "content" if said else None

    def _of_whole(self, kind: str, response: Mapping[str, Any]) -> Verdict:
        """Whether the whole response, at the end of its stream, says something that no event before it said."""
        if not is_empty_answer({**response, "status": "completed"}, "/responses"):
            return "content"
        if kind == "response.failed":
            self.status_of_error = status_of(error_of(response.get("error")) or {})
            return "error"
        return "empty" if kind == "response.completed" else "unknown"


def is_empty_answer(body: Mapping[str, Any], endpoint: str) -> bool:
    """Whether there is nothing to use in a whole answer, given as JSON: no text, call of a tool, refusal or audio.

    What was thought is no answer. One that met its limit or a filter is not empty, by its own word, and neither is one
    that is still being made, or in which there is something that is unknown here.
    """
    if verdict_of(body, endpoint) is not None:
        return False
    if endpoint == "/responses":
        if body.get("status") in ("queued", "in_progress", "cancelled", "incomplete"):
            return False
        return not any(_item_says(item, reasoning=False) for item in _list(body.get("output")))
    if endpoint not in ("/chat/completions", "/completions"):
        return False
    return not any(_choice_says(choice) for choice in _list(body.get("choices")))


def _choice_says(choice: Any) -> bool:
    if not isinstance(choice, Mapping):
        return False
    if choice.get("text"):
        return True
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return False
    said = any(message.get(name) for name in _OUTPUT if name not in _REASONING)
    return said or _says(message.get("content")) or _says_more(message)


def _says_more(message: Mapping[str, Any]) -> bool:
    """Whether there is something in a message that is unknown here: pictures, or whatever comes to providers' minds."""
    return any(
        name not in _OUTPUT and name not in _FRAME and name != "content" and _says(value)
        for name, value in message.items()
    )


def _item_says(item: Any, *, reasoning: bool) -> bool:
    """Whether an item of a response says something. What is neither text nor thought does something of its own."""
    if not isinstance(item, Mapping):
        return False
    kind = item.get("type")
    if kind == "message":
        return _says(item.get("content"))
    if kind == "reasoning":
        return reasoning and (_says(item.get("summary")) or _says(item.get("content")))
    return True


def _says(value: Any) -> bool:
    """Whether something is in a value that is not empty, and no frame of something else."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(inner for name, inner in one.items() if name not in _FRAME)
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif one:
            return True
    return False


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()
