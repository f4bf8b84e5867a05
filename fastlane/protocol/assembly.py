"""Assemble the events of a stream into the answer that the API gives without streaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .accumulation import add_text, merge, merge_field, plain, replace, text_of
from .content import FUNCTION_CALL, REASONING_FIELDS, TOOL_INPUTS, Channel, Delta, error_of
from .cut import AnswerCut
from .endpoints import CHAT, COMPLETIONS, RESPONSES
from .fields import fields_of, listed, position_of
from .response_assembly import ResponseAssembly


class Assembly(Protocol):
    """One answer, assembled event by event. Nothing raises, whatever the events are: odd ones are skipped."""

    error: Mapping[str, Any] | None
    """The provider's error in the stream: the object that openai's own error has as its body."""

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason and nothing failed, or a response's last event has come."""

    def take(self, event: Any) -> Sequence[Delta]:
        """Add an event, as parsed JSON or as one of openai's objects, and return the pieces of text that it adds."""

    def body(self, cut: AnswerCut | None = None) -> dict[str, Any]:
        """Return a new copy of the answer as the API gives it without streaming.

        With `cut` the answer counts as one that the model has ended: "stop", "tool_calls" or "completed".
        """

    def text(self, channel: Channel) -> str:
        """Return the text of a channel: content, or else a refusal, or a tool's arguments."""


def assembly_of(endpoint: str, *, choices: int = 1) -> Assembly | None:
    """Return an empty answer of this endpoint; None for an endpoint whose streams are unknown.

    `choices` is the request's `n`: the answer is unfinished until that many choices have a finish reason.
    """
    if endpoint == RESPONSES:
        return ResponseAssembly()
    return ChoicesAssembly(endpoint, choices) if endpoint in (CHAT, COMPLETIONS) else None


# `obfuscation` pads the packets of a stream against observers of their sizes.
_STREAM_FIELDS = frozenset({"choices", "error", "event_id", "obfuscation"})
_HEAD_FIELDS = ("id", "created", "model", "object")


class ChoicesAssembly:
    """A chat completion or a legacy completion; an `Assembly`."""

    __slots__ = ("_expected", "_unfinished", "choices", "error", "head", "is_chat")

    def __init__(self, endpoint: str, expected: int = 1) -> None:
        self.is_chat = endpoint == CHAT
        self._expected = expected
        self._unfinished = 0
        self.head: dict[str, Any] = {}
        """The fields beside `choices`."""
        self.choices: dict[int, Choice] = {}
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason, and the stream brought no error."""
        return len(self.choices) >= self._expected and not self._unfinished and self.error is None

    def take(self, event: Any) -> Sequence[Delta]:
        """Add one chunk."""
        event = fields_of(event)
        if event is None:
            return ()
        self._take_head(event)
        deltas: list[Delta] = []
        for piece in listed(event.get("choices")):
            fields = fields_of(piece)
            if fields is not None:
                index = position_of(fields.get("index"))
                choice = self.choices.get(index)
                if choice is None:
                    choice = self.choices[index] = Choice(index, is_chat=self.is_chat)
                    self._unfinished += 1
                was_unfinished = choice.finish_reason is None
                choice.take(fields, deltas)
                if was_unfinished and choice.finish_reason is not None:
                    self._unfinished -= 1
        return deltas

    def _take_head(self, event: Mapping[str, Any]) -> None:
        head = self.head
        for name, value in event.items():
            if name in _STREAM_FIELDS or (name in head and head[name] == value):
                continue
            if name not in _HEAD_FIELDS:
                replace(head, name, value, extend_lists=False)
            elif not head.get(name):  # a first event about the prompt has an empty id and model
                head[name] = head.get(name) if value is None else plain(value)
        if event.get("error"):
            self.error = plain(error_of(event["error"]))

    def text(self, channel: Channel) -> str:
        """Return the content of a choice, its refusal if it has no content, or the arguments of a tool call."""
        choice = self.choices.get(channel[0]) if channel else None
        return "" if choice is None else choice.text(channel)

    def body(self, cut: AnswerCut | None = None) -> dict[str, Any]:
        """Return the completion."""
        found: dict[str, Any] = plain(self.head)
        usage = found.pop("usage", None)
        for value in found.values():
            # Some providers send usage in a field of their own (x_groq), alone or too.
            if isinstance(value, dict) and isinstance(value.get("usage"), dict) and usage in (None, value["usage"]):
                usage = value.pop("usage")
        if usage is None and cut is not None:
            usage = plain(cut.usage)
        if usage is not None:
            found["usage"] = usage
        choices = [self.choices[index].body(cut) for index in sorted(self.choices)]
        return {**found, "object": "chat.completion" if self.is_chat else "text_completion", "choices": choices}


class Choice:
    """One choice of a completion."""

    __slots__ = ("_begun", "_calls", "_channel", "_fields", "_index", "_is_chat", "_message", "finish_reason")

    def __init__(self, index: int, *, is_chat: bool) -> None:
        self._index = index
        self._is_chat = is_chat
        self._channel: Channel = (index,)
        self._begun = False
        self._calls: ToolCalls | None = None
        self._message: dict[str, Any] = {"role": "assistant", "content": None} if is_chat else {"content": ""}
        self._fields: dict[str, Any] = {"logprobs": None}
        self.finish_reason: Any = None

    def take(self, piece: Mapping[str, Any], deltas: list[Delta]) -> None:
        """Add the choice of one chunk."""
        delta: Mapping[str, Any] | None = None
        for name, value in piece.items():
            if name == "delta" and self._is_chat:
                delta = fields_of(value)
            elif name == "text" and not self._is_chat:
                delta = {"content": value} if isinstance(value, str) else None
            elif name == "finish_reason":
                self.finish_reason = value or self.finish_reason  # some send "" until there is one
            elif name == "logprobs":
                if fields_of(value) is not None:
                    merge_field(self._fields, "logprobs", value)
            elif name not in ("index", "message"):
                replace(self._fields, name, value, extend_lists=True)
        if delta is None and not self._begun:
            delta = fields_of(piece.get("message"))  # an answer in one piece; after deltas it repeats them
        if delta is not None:
            self._begun = True
            self._take_delta(delta, deltas)

    def _take_delta(self, delta: Mapping[str, Any], deltas: list[Delta]) -> None:
        message = self._message
        for name, value in delta.items():
            if name == "content":
                if isinstance(value, str) and not isinstance(message[name], list):
                    if value or message[name] is None:
                        add_text(message, name, value)
                    if value:
                        deltas.append(Delta(self._channel, "content", value))
                elif value and isinstance(value, str | list | tuple):
                    self._take_parts(value, deltas)
                continue
            if name == "tool_calls":
                if value and isinstance(value, list | tuple):
                    self._calls = self._calls or ToolCalls(self._index)
                    self._calls.take(value, deltas)
                continue
            if name == "role":
                message[name] = value or message.get(name)
                continue
            if name == "function_call":
                self._take_function_call(fields_of(value) or {}, deltas)
            elif name == "refusal":
                # A provider that streams refusals leaves an empty list of annotations out of the stream.
                message.setdefault("annotations", [])
                if value and isinstance(value, str):
                    deltas.append(Delta(self._channel, "refusal", value))
            elif (
                name in REASONING_FIELDS
                and isinstance(value, str)
                and name == next(filter(delta.get, REASONING_FIELDS), None)  # some send it under both names
            ):
                deltas.append(Delta(self._channel, "reasoning", value))
            merge_field(message, name, value)

    def _take_parts(self, value: Any, deltas: list[Delta]) -> None:
        """Add content that is a list of parts, or text after such a list."""
        parts = [{"type": "text", "text": value}] if isinstance(value, str) else value
        for part in filter(None, map(fields_of, parts)):
            held = self._message["content"]
            if not isinstance(held, list):
                held = self._message["content"] = [{"type": "text", "text": str(held)}] if held else []
            text = part.get("text")
            if part.get("type") in ("text", None) and isinstance(text, str):
                if text:
                    deltas.append(Delta(self._channel, "content", text))
            elif thought := _thinking_of(part):
                deltas.append(Delta(self._channel, "reasoning", thought))
            _append_part(held, part)

    def _take_function_call(self, call: Mapping[str, Any], deltas: list[Delta]) -> None:
        name = None if self._message.get("function_call") else call.get("name")
        _append_call(deltas, (self._index, FUNCTION_CALL), name, call.get("arguments"))

    def text(self, channel: Channel) -> str:
        """Return the content, or else the refusal, or the arguments of one of the tool calls."""
        if len(channel) == 1:
            return self._content_text() or text_of(self._message.get("refusal"))
        if channel[1] == FUNCTION_CALL:
            call = self._message.get("function_call")
            return text_of(call.get("arguments")) if isinstance(call, dict) else ""
        return "" if self._calls is None else self._calls.text(channel[1])

    def _content_text(self) -> str:
        content = self._message["content"]
        return "".join(map(_part_text, content)) if isinstance(content, list) else text_of(content)

    def body(self, cut: AnswerCut | None) -> dict[str, Any]:
        """Return the choice as it is in an answer."""
        message, found = plain(self._message), plain(self._fields)
        found |= {"index": self._index, "finish_reason": self.reason_after(cut)}
        if cut is not None:
            self._shorten(message, found["logprobs"], cut)
        if not self._is_chat:
            return {**found, "text": message["content"]}
        if message.get("refusal") == "":
            message["refusal"] = None
        if self._calls is not None:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._calls.body(cut)
        return {**found, "message": message}

    def _shorten(self, message: dict[str, Any], logprobs: Any, cut: AnswerCut) -> None:
        channel, text = self._channel, self._content_text()
        span, at = cut.span(channel, len(text)), 0
        if isinstance(message["content"], str):
            message["content"] = message["content"][span]
        for part in listed(message["content"]):
            size = len(_part_text(part))
            if size:
                part["text"] = part["text"][max(0, span.start - at) : max(0, span.stop - at)]
                at += size
        call = message.get("function_call")
        if isinstance(call, dict) and isinstance(call.get("arguments"), str):
            call["arguments"] = cut.text((self._index, FUNCTION_CALL), call["arguments"])
        if isinstance(logprobs, dict) and cut.changes(channel):
            tokens = logprobs.get("content" if self._is_chat else "tokens")
            if isinstance(tokens, list):
                kept = cut.tokens(channel, text, tokens)
                for name in ("content",) if self._is_chat else logprobs:
                    if isinstance(logprobs[name], list):
                        logprobs[name] = logprobs[name][kept]

    def reason_after(self, cut: AnswerCut | None) -> Any:
        """Return the finish reason; a normal one if the cut ended the stream, or ends the text before its limit."""
        reason = self.finish_reason
        ran_on = reason == "length" and cut is not None and any(end[:1] == self._channel for end in cut.ends)
        if cut is None or not (reason is None or ran_on):
            return reason
        if self._calls is not None:
            return "tool_calls"
        return "function_call" if isinstance(self._message.get("function_call"), dict) else "stop"


def _append_part(parts: list[Any], part: Mapping[str, Any]) -> None:
    """Append a part of content, or continue the last one if that has the same type."""
    last = parts[-1] if parts else None
    continues = isinstance(part.get("text"), str) or isinstance(part.get("thinking"), str | list)
    if not isinstance(last, dict) or last.get("type") != part.get("type") or not continues:
        parts.append(plain(part))
        return
    if isinstance(last.get("thinking"), list) and isinstance(part.get("thinking"), list):
        for inner in part["thinking"]:
            _append_part(last["thinking"], fields_of(inner) or {})
        part = {name: value for name, value in part.items() if name != "thinking"}
    merge(last, part)


def _thinking_of(part: Mapping[str, Any]) -> str:
    thinking = part.get("thinking")
    if isinstance(thinking, str):
        return thinking
    texts = [fields.get("text") for fields in filter(None, map(fields_of, listed(thinking)))]
    return "".join(text for text in texts if isinstance(text, str))


def _part_text(part: Any) -> str:
    return text_of(part.get("text")) if isinstance(part, dict) and part.get("type") in ("text", None) else ""


def _append_call(deltas: list[Delta], channel: Channel, name: Any, text: Any) -> None:
    name = name if isinstance(name, str) and name else None
    text = text if isinstance(text, str) else ""
    if text or name is not None:
        deltas.append(Delta(channel, "tool_call", text, name))


class ToolCalls:
    """The tool calls of one choice, in the order in which they began."""

    __slots__ = ("_by_id", "_by_index", "_calls", "_choice", "_last", "_next", "_sent_as")

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: dict[int, dict[str, Any]] = {}
        """By position."""
        self._by_index: dict[int, int] = {}
        """The position of the last call that began with an index."""
        self._by_id: dict[str, int] = {}
        self._sent_as: dict[int, int | None] = {}
        """The index that each call began with, by position."""
        self._last: int | None = None
        self._next = 0
        """The position after all others."""

    def take(self, pieces: Sequence[Any], deltas: list[Delta]) -> None:
        """Add the tool calls of one chunk."""
        for piece in pieces:
            fields = fields_of(piece)
            if fields is not None:
                self._last = self._position_of(fields)
                self._add(self._last, fields, deltas)

    def _position_of(self, piece: Mapping[str, Any]) -> int:
        """Return the position of the call that a piece belongs to.

        Its index says it; but some providers leave the index out, or send 0 with every call. There a new id together
        with a name begins another call.
        """
        index, id_ = piece.get("index"), piece.get("id")
        if not isinstance(index, int) or isinstance(index, bool):
            same = self._known_by(id_)
            if same is None and not _has_name(piece):
                same = self._last
            return self._begin(None) if same is None else same
        position = self._by_index.get(index)
        if position is None:
            return self._begin(index)
        call = self._calls[position]
        if id_ and id_ != (call.get("id") or id_) and _has_name(piece) and _has_name(call):
            same = self._known_by(id_)
            return same if same is not None and self._sent_as[same] == index else self._begin(index)
        return position

    def _known_by(self, id_: Any) -> int | None:
        position = self._by_id.get(id_) if isinstance(id_, str) and id_ else None
        # A provider can send an id in pieces, or replace it.
        return position if position is not None and self._calls[position].get("id") == id_ else None

    def _begin(self, index: int | None) -> int:
        position = self._next if index is None or index in self._calls or index < 0 else index
        self._next = max(self._next, position + 1)
        self._calls[position] = {}
        self._sent_as[position] = index
        if index is not None:
            self._by_index[index] = position
        return position

    def _add(self, position: int, piece: Mapping[str, Any], deltas: list[Delta]) -> None:
        call = self._calls[position]
        for field, value in piece.items():
            arguments = TOOL_INPUTS.get(field)
            inner = None if arguments is None else fields_of(value)
            if arguments is None or inner is None:
                if field != "index" and value is not None:
                    merge_field(call, field, value)
                continue
            held, name = call.setdefault(field, {}), inner.get("name")
            if not isinstance(held, dict):
                continue
            known = held.get("name")
            if known and isinstance(known, str) and isinstance(name, str):
                # Some send the name again with every piece, some send it in pieces.
                inner = {**inner, "name": known if name in ("", known) else known + name}
            merge(held, inner)
            _append_call(deltas, (self._choice, position), None if known else name, inner.get(arguments))
        if isinstance(call.get("id"), str) and self._known_by(call["id"]) is None:
            self._by_id[call["id"]] = position

    def text(self, position: int) -> str:
        """Return the arguments of one call."""
        call = self._calls.get(position, {})
        texts = (call[kind].get(name) for kind, name in TOOL_INPUTS.items() if isinstance(call.get(kind), dict))
        return "".join(map(text_of, texts))

    def body(self, cut: AnswerCut | None) -> list[dict[str, Any]]:
        """Return the calls as they are in a message."""
        found = []
        for position in sorted(self._calls):
            call = plain(self._calls[position])
            for kind, name in TOOL_INPUTS.items():
                inner = call.get(kind)
                if cut is not None and isinstance(inner, dict) and isinstance(inner.get(name), str):
                    inner[name] = cut.text((self._choice, position), inner[name])
            found.append(call)
        return found


def _has_name(call: Mapping[str, Any]) -> bool:
    return any((fields_of(call.get(kind)) or {}).get("name") for kind in TOOL_INPUTS)
