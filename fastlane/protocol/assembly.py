"""Assemble the events of a stream into the answer that the API gives without streaming."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import BaseModel

from .content import (
    ITEM_TEXTS,
    PART_TEXTS,
    REASONING_FIELDS,
    RESPONSE_BEGINS,
    RESPONSE_DELTAS,
    RESPONSE_DONES,
    RESPONSE_ENDS,
    TOOL_INPUTS,
    Channel,
    Delta,
    ResponseText,
    error_of,
    response_channel,
)
from .endpoints import CHAT, COMPLETIONS, RESPONSES
from .fields import fields_of, listed, position_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCut:
    """The parts of an answer's texts that count after we closed its stream."""

    ends: Mapping[Channel, int] = field(default_factory=dict)
    """Characters to keep of each channel's text. Absent: all."""
    starts: Mapping[Channel, int] = field(default_factory=dict)
    """Characters to drop at the start of each channel's text (a code fence). Absent: none."""
    usage: Mapping[str, Any] | None = None
    """Estimated usage in the endpoint's own field names, for an answer whose provider sent none."""

    def span(self, channel: Channel, length: int) -> slice:
        """Return which characters of a text of this length to keep."""
        end = min(length, max(0, self.ends.get(channel, length)))
        return slice(min(end, max(0, self.starts.get(channel, 0))), end)

    def text(self, channel: Channel, text: str) -> str:
        """Return what to keep of a text."""
        return text[self.span(channel, len(text))]


def assembly_of(endpoint: str, *, choices: int = 1) -> Assembly | None:
    """Return an empty answer of this endpoint; None for an endpoint whose streams are unknown.

    `choices` is the request's `n`: the answer is unfinished until that many choices have a finish reason.
    """
    if endpoint == RESPONSES:
        return ResponseAssembly()
    return ChoicesAssembly(endpoint, choices) if endpoint in (CHAT, COMPLETIONS) else None


Assembly: TypeAlias = "ChoicesAssembly | ResponseAssembly"
"""One answer, assembled event by event. Never raises: invalid events are skipped."""


# Growing JSON values

# Texts that a provider always sends whole. All other texts of a delta are pieces.
_WHOLE = frozenset(("channel", "format", "id", "index", "model", "name", "object", "phase", "role", "type"))


class Text:
    """A text that grows; its pieces are joined when it is read."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = [*pieces]

    def __str__(self) -> str:
        return "".join(self.pieces)


def text_of(value: Any) -> str:
    """Return a text, or "" for anything else."""
    return str(value) if isinstance(value, str | Text) else ""


class ByIndex(dict[int, Any]):
    """A JSON list whose entries arrive by their index, with gaps and in any order."""


def plain(value: Any) -> Any:
    """Return a copy of a value as plain JSON; growing texts are joined."""
    if isinstance(value, str):
        return value
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, ByIndex):
        return [plain(value[index]) for index in sorted(value)]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, BaseModel):
        return value.to_dict(warnings=False) if hasattr(value, "to_dict") else value.model_dump(warnings=False)
    return value


def add_text(into: dict[str, Any], name: str, piece: str) -> None:
    """Append a piece to a text field."""
    held = into.get(name)
    if isinstance(held, Text):
        held.pieces.append(piece)
    else:
        into[name] = Text(held, piece) if isinstance(held, str) and held else piece


def merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta: texts and lists grow, objects are merged, anything else is replaced. A null changes nothing."""
    for name, value in delta.items():
        merge_field(into, name, value)


def merge_field(into: dict[str, Any], name: str, value: Any) -> None:
    """Add one field of a delta."""
    held = into.get(name)
    if held is None:
        if isinstance(value, list | tuple):
            # One event can bring several pieces of one entry.
            into[name] = []
            _merge_list(into[name], value)
        else:
            into[name] = plain(value)
    elif value is None:
        return
    elif isinstance(value, str) and isinstance(held, str | Text) and name not in _WHOLE:
        add_text(into, name, value)
    elif isinstance(held, dict) and (inner := fields_of(value)) is not None:
        merge(held, inner)
    elif isinstance(held, list) and isinstance(value, list | tuple):
        _merge_list(held, value)
    else:
        into[name] = plain(value)


def _merge_list(into: list[Any], delta: Iterable[Any]) -> None:
    """Merge entries that have an index into the entry of that index; append all others."""
    for entry in delta:
        fields = fields_of(entry)
        index = None if fields is None else fields.get("index")
        held = None if index is None else next((one for one in into if _index_of(one) == index), None)
        if held is None:
            into.append(plain(entry))
        else:
            merge(held, fields or {})


def _index_of(entry: Any) -> Any:
    return entry.get("index") if isinstance(entry, dict) else None


# Chat and legacy completions

_CLOSING_HEAD = ("id", "object", "created", "model", "service_tier", "system_fingerprint")
# `obfuscation` pads the packets of a stream against observers of their sizes.
_STREAM_FIELDS = frozenset({"choices", "error", "event_id", "obfuscation"})
_HEAD_FIELDS = ("id", "created", "model", "object")


class ChoicesAssembly:
    """A chat completion or a legacy completion."""

    __slots__ = ("_expected", "_unfinished", "choices", "error", "head", "is_chat")

    def __init__(self, endpoint: str, expected: int = 1) -> None:
        self.is_chat = endpoint == CHAT
        self._expected = expected
        self._unfinished = 0
        self.head: dict[str, Any] = {}
        """The fields beside `choices`."""
        self.choices: dict[int, Choice] = {}
        self.error: Mapping[str, Any] | None = None
        """The provider's error in the stream: the object that openai's own error has as its body."""

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason, and the stream brought no error."""
        return len(self.choices) >= self._expected and not self._unfinished and self.error is None

    def take(self, event: Any) -> Sequence[Delta]:
        """Add one chunk, as parsed JSON or as openai's object, and return the pieces of text that it adds."""
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
                if value is not None or name not in head:
                    head[name] = plain(value)
            elif not head.get(name):  # a first event about the prompt has an empty id and model
                head[name] = head.get(name) if value is None else plain(value)
        if event.get("error"):
            self.error = plain(error_of(event["error"]))

    def body(self, cut: AnswerCut | None = None) -> dict[str, Any]:
        """Return a new copy of the completion. With `cut`, it gets a normal finish reason: "stop" or "tool_calls"."""
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

    def tool_call(self, channel: Channel) -> dict[str, Any]:
        """Return the tool call of a channel as far as it has come, as it is in a message."""
        return self.choices[channel[0]].tool_call(channel[1])

    def closing_events(self, cut: AnswerCut, *, include_usage: bool = False) -> list[dict[str, Any]]:
        """Return the chunks, as JSON, that end a stopped stream as its provider would have ended it.

        Empty for a stream that has not begun. `include_usage`: whether the request asks for usage at the end.
        """
        if not self.head:
            return []
        head = {name: value for name in _CLOSING_HEAD if (value := plain(self.head.get(name))) is not None}
        usage = plain(self.head.get("usage"))
        if usage is not None or include_usage:
            head["usage"] = usage  # a reader keeps the last chunk's
        reasons = {index: one.reason_after(cut) for index, one in self.choices.items() if one.finish_reason is None}
        if not self.choices:
            reasons = {0: "stop"}
        piece: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        chunks: list[dict[str, Any]] = [
            {**head, "choices": [{"index": index, **piece, "logprobs": None, "finish_reason": reason}]}
            for index, reason in sorted(reasons.items())
        ]
        if include_usage and usage is None and cut.usage is not None:
            chunks.append({**head, "choices": [], "usage": plain(cut.usage)})
        return chunks


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
                held = self._fields.get(name)
                if isinstance(held, list) and isinstance(value, list | tuple):
                    held.extend(plain(value))  # such as the ids of a choice's tokens
                elif value is not None or name not in self._fields:
                    self._fields[name] = plain(value)
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
            if name == "refusal":
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

    def _content_text(self) -> str:
        content = self._message["content"]
        return "".join(map(_part_text, content)) if isinstance(content, list) else text_of(content)

    def tool_call(self, position: int) -> dict[str, Any]:
        """Return one of its tool calls."""
        return {} if self._calls is None else self._calls.at(position)

    def body(self, cut: AnswerCut | None) -> dict[str, Any]:
        """Return the choice as it is in an answer."""
        message, found = plain(self._message), plain(self._fields)
        found |= {"index": self._index, "finish_reason": self.reason_after(cut)}
        if cut is not None:
            self._shorten(message, cut)
        if not self._is_chat:
            return {**found, "text": message["content"]}
        if message.get("refusal") == "":
            message["refusal"] = None
        if self._calls is not None:
            message["content"] = message["content"] or None
            message["tool_calls"] = self._calls.body(cut)
        return {**found, "message": message}

    def _shorten(self, message: dict[str, Any], cut: AnswerCut) -> None:
        span, at = cut.span(self._channel, len(self._content_text())), 0
        if isinstance(message["content"], str):
            message["content"] = message["content"][span]
        for part in listed(message["content"]):
            size = len(_part_text(part))
            if size:
                part["text"] = part["text"][max(0, span.start - at) : max(0, span.stop - at)]
                at += size

    def reason_after(self, cut: AnswerCut | None) -> Any:
        """Return the finish reason; a normal one if the cut ended the stream, or ends the text before its limit."""
        reason = self.finish_reason
        ran_on = reason == "length" and cut is not None and any(end[:1] == self._channel for end in cut.ends)
        if cut is None or not (reason is None or ran_on):
            return reason
        return "stop" if self._calls is None else "tool_calls"


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

    __slots__ = ("_by_index", "_calls", "_choice", "_last", "_next")

    def __init__(self, choice: int) -> None:
        self._choice = choice
        self._calls: dict[int, dict[str, Any]] = {}
        """By position."""
        self._next = 0
        """The position behind the last call."""
        self._by_index: dict[int, int] = {}
        """The position of the last call that began with an index."""
        self._last: int | None = None

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
            index = None
        position = self._last if index is None else self._by_index.get(index)
        if position is not None:
            call = self._calls[position]
            known = call.get("id")
            is_same = (id_ and id_ == known) or (index is not None and not (id_ and known))
            if is_same or not (_has_name(piece) and _has_name(call)):
                return position
        position = self._next if index is None or index in self._calls or index < 0 else index
        self._next = max(self._next, position + 1)
        self._calls[position] = {}
        if index is not None:
            self._by_index[index] = position
        return position

    def _add(self, position: int, piece: Mapping[str, Any], deltas: list[Delta]) -> None:
        call = self._calls[position]
        for kind, value in piece.items():
            arguments = TOOL_INPUTS.get(kind)
            inner = None if arguments is None else fields_of(value)
            if arguments is None or inner is None:
                if kind != "index" and value is not None:
                    merge_field(call, kind, value)
                continue
            held, name = call.setdefault(kind, {}), inner.get("name")
            if not isinstance(held, dict):
                continue
            known = held.get("name")
            if known and isinstance(known, str) and isinstance(name, str):
                # Some send the name again with every piece, some send it in pieces.
                inner = {**inner, "name": known if name in ("", known) else known + name}
            merge(held, inner)
            _append_call(deltas, (self._choice, position), None if known else name, inner.get(arguments))

    def at(self, position: int) -> dict[str, Any]:
        """Return a copy of one call."""
        call: dict[str, Any] = plain(self._calls[position])
        return call

    def body(self, cut: AnswerCut | None) -> list[dict[str, Any]]:
        """Return the calls as they are in a message."""
        found = []
        for position in sorted(self._calls):
            call = self.at(position)
            for kind, name in TOOL_INPUTS.items():
                inner = call.get(kind)
                if cut is not None and isinstance(inner, dict) and isinstance(inner.get(name), str):
                    inner[name] = cut.text((self._choice, position), inner[name])
            found.append(call)
        return found


def _has_name(call: Mapping[str, Any]) -> bool:
    return any((fields_of(call.get(kind)) or {}).get("name") for kind in TOOL_INPUTS)


# Responses

_PART_LISTS = ("content", "summary")


class ResponseAssembly:
    """A response. Its last event carries all of it; the events before serve an answer that is cut."""

    __slots__ = ("_final", "base", "done", "error", "items", "open_parts", "sequence")

    def __init__(self) -> None:
        self.base: dict[str, Any] = {}
        """The response as the stream's first events gave it."""
        self._final: dict[str, Any] | None = None
        self.items: dict[int, dict[str, Any]] = {}
        """The items of the output, by index; their lists of parts are `ByIndex`."""
        self.done: set[Channel] = set()
        """The texts and, by `item_key`, the items that ended."""
        self.open_parts: set[Channel] = set()
        """The parts that an event announced and none has ended."""
        self.sequence = -1
        """The highest sequence number so far."""
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether the event that ends a response has come."""
        return self._final is not None

    def take(self, event: Any) -> Sequence[Delta]:
        """Add one event, as parsed JSON or as openai's object, and return the pieces of text that it adds."""
        event = fields_of(event) or {}
        kind, number = event.get("type"), event.get("sequence_number")
        if number.__class__ is int and number > self.sequence:
            self.sequence = number
        if not isinstance(kind, str):
            self.error = plain(error_of(event.get("error"))) or self.error
        elif kind in RESPONSE_DELTAS:
            return self._take_delta(RESPONSE_DELTAS[kind], event)
        elif kind in RESPONSE_DONES:
            return self._take_text(RESPONSE_DONES[kind], event)
        elif kind in RESPONSE_BEGINS or kind in RESPONSE_ENDS:
            self._take_response(kind, event.get("response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            return self._take_item(event, is_done=kind.endswith("done"))
        elif kind.endswith(("_part.added", "_part.done")):
            self._take_part(event, is_done=kind.endswith("done"))
        elif kind == "response.output_text.annotation.added":
            self._take_annotation(event)
        elif kind == "error":
            said = {name: value for name, value in event.items() if name not in ("sequence_number", "error")}
            self.error = plain(error_of(event.get("error")) or said)
        return ()

    def _take_delta(self, where: ResponseText, event: Mapping[str, Any]) -> Sequence[Delta]:
        text, logprobs = event.get("delta"), event.get("logprobs")
        if not isinstance(text, str) or not (text or logprobs):
            return ()
        channel, holder, field = self._holder(where, event)
        add_text(holder, field, text)
        if isinstance(logprobs, list):
            held = holder.get("logprobs")
            if not isinstance(held, list):
                held = holder["logprobs"] = []
            if logprobs:
                held += plain(logprobs)
        return (Delta(channel, where.kind, text),) if text else ()

    def _take_text(self, where: ResponseText, event: Mapping[str, Any]) -> Sequence[Delta]:
        text = event.get(where.field)
        channel, holder, field = self._holder(where, event)
        self.done.add(channel)
        if not isinstance(text, str):
            return ()
        missed = not holder.get(field)
        holder[field] = text
        return (Delta(channel, where.kind, text),) if missed and text else ()

    def _holder(self, where: ResponseText, event: Mapping[str, Any]) -> tuple[Channel, dict[str, Any], str]:
        """Return the channel of an event's text, the item or part that holds it, and its field; create the part."""
        at = position_of(event.get("output_index"))
        item = self._item_at(at)
        if where.parts is None:
            return (at,), item, where.field
        index = position_of(event.get(where.index_field))
        parts = _parts_in(item, where.parts)
        if not isinstance(parts.get(index), dict):
            parts[index] = plain(where.part)
        part: dict[str, Any] = parts[index]
        return response_channel(where.parts, at, index), part, part_field(part)

    def _item_at(self, index: int) -> dict[str, Any]:
        return self.items.setdefault(index, {"type": "message", "role": "assistant", "status": "in_progress"})

    def _take_response(self, kind: str, response: Any) -> None:
        fields = fields_of(response)
        if kind in RESPONSE_BEGINS:
            self.base.update(plain(response) if fields else {})
            return
        said = {"status": kind.removeprefix("response.")} if fields is None else plain(response)
        self._final = {**self.base, **said}
        if kind == "response.failed":
            error = error_of(said.get("error"))
            self.error = plain(error) or {"message": "the response failed, and its provider gave no reason"}

    def _take_item(self, event: Mapping[str, Any], *, is_done: bool) -> Sequence[Delta]:
        if fields_of(event.get("item")) is None:
            return ()
        index, item = position_of(event.get("output_index")), plain(event["item"])
        self.items[index] = item
        self.done = {channel for channel in self.done if channel[0] != index}
        self.open_parts = {channel for channel in self.open_parts if channel[0] != index}
        for name in _PART_LISTS:
            if isinstance(item.get(name), list):
                item[name] = ByIndex(enumerate(item[name]))
                self.open_parts.update(response_channel(name, index, number) for number in item[name])
        if is_done:
            self.done.add(item_key(index))
            return ()
        name, text = item.get("name"), item.get("arguments") or item.get("input")
        if not isinstance(name, str) or not name:
            return ()
        return (Delta((index,), "tool_call", text if isinstance(text, str) else "", name),)

    def _take_part(self, event: Mapping[str, Any], *, is_done: bool) -> None:
        if fields_of(event.get("part")) is None:
            return
        name = "summary" if "summary_index" in event else "content"
        at, index = position_of(event.get("output_index")), position_of(event.get(f"{name}_index"))
        _parts_in(self._item_at(at), name)[index] = plain(event["part"])
        channel = response_channel(name, at, index)
        (self.done.add if is_done else self.done.discard)(channel)
        (self.open_parts.discard if is_done else self.open_parts.add)(channel)

    def _take_annotation(self, event: Mapping[str, Any]) -> None:
        parts = self._item_at(position_of(event.get("output_index"))).get("content")
        part = parts.get(position_of(event.get("content_index"))) if isinstance(parts, ByIndex) else None
        if isinstance(part, dict) and event.get("annotation") is not None:
            part["annotations"] = [*listed(part.get("annotations")), plain(event["annotation"])]

    def body(self, cut: AnswerCut | None = None) -> dict[str, Any]:
        """Return a new copy of the response. With `cut`, its status is "completed"."""
        found: dict[str, Any] = plain(self.base if self._final is None else self._final)
        found.setdefault("object", "response")
        indexes = sorted(self.items)
        if self._final is not None and listed(found.get("output")):
            # The events can have numbered the items with gaps.
            by_id = {str(item["id"]): index for index, item in self.items.items() if item.get("id")}
            ids = [item.get("id") if isinstance(item, dict) else None for item in found["output"]]
            indexes = [by_id.get(str(id_), position) for position, id_ in enumerate(ids)]
        else:
            found["output"] = [plain(self.items[index]) for index in indexes]
        if cut is not None:
            self._cut(found, indexes, cut)
        return found

    def tool_call(self, channel: Channel) -> dict[str, Any]:
        """Return the item of a channel as far as it has come."""
        item: dict[str, Any] = plain(self.items[channel[0]])
        return item

    def _cut(self, response: dict[str, Any], indexes: Sequence[int], cut: AnswerCut) -> None:
        ended = self._final is not None and not (response.get("status") == "incomplete" and cut.ends)
        for item, index in zip(response["output"], indexes, strict=True):
            if isinstance(item, dict):
                _shorten(item, index, cut)
                if not ended and item.get("status") in ("in_progress", "incomplete"):
                    item["status"] = "completed"
        if not ended:
            response["status"] = "completed"
            if response.get("incomplete_details") is not None:
                response["incomplete_details"] = None
        if cut.usage is not None and response.get("usage") is None:
            response["usage"] = plain(cut.usage)

    def closing_events(self, cut: AnswerCut, *, include_usage: bool = False) -> list[dict[str, Any]]:
        """Return the events, as JSON, that end a stopped stream; empty if it has not begun, or has ended by itself."""
        if self.finished or not self.base:
            return []
        response = self.body(cut)
        events: list[dict[str, Any]] = []
        for index, whole in zip(sorted(self.items), response["output"], strict=True):
            if item_key(index) not in self.done:
                events += self._closing_events_of_item(index, whole)
        events.append({"type": "response.completed", "response": response})
        return [{**event, "sequence_number": number} for number, event in enumerate(events, self.sequence + 1)]

    def _closing_events_of_item(self, index: int, whole: Mapping[str, Any]) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        where, type_ = {"item_id": whole.get("id"), "output_index": index}, str(whole.get("type"))
        if type_ in ITEM_TEXTS and (index,) not in self.done:
            field, kind = ITEM_TEXTS[type_]
            name = {"name": whole.get("name")} if type_ == "function_call" else {}
            events.append({"type": kind, **where, field: whole.get(field) or "", **name})
        for list_name in ("summary", "content"):
            parts = self.items[index].get(list_name)
            for number, part in zip(sorted(parts), whole[list_name], strict=True) if isinstance(parts, ByIndex) else ():
                if not isinstance(part, dict):
                    continue
                channel, at = response_channel(list_name, index, number), {**where, f"{list_name}_index": number}
                type_ = str(part.get("type"))
                if type_ in PART_TEXTS and channel not in self.done:
                    field, kind = PART_TEXTS[type_]
                    logprobs = {"logprobs": plain(part.get("logprobs") or [])} if type_ == "output_text" else {}
                    events.append({"type": kind, **at, field: part.get(field) or "", **logprobs})
                if channel in self.open_parts:
                    part_name = "content_part" if list_name == "content" else "reasoning_summary_part"
                    events.append({"type": f"response.{part_name}.done", **at, "part": plain(part)})
        events.append({"type": "response.output_item.done", "output_index": index, "item": plain(whole)})
        return events


def item_key(output_index: int) -> Channel:
    """Return the key of a whole item in `ResponseAssembly.done`."""
    return (output_index, 0, 0)


def part_field(part: Mapping[str, Any]) -> str:
    """Return the field that holds a part's text."""
    return PART_TEXTS.get(str(part.get("type")), ("text", ""))[0]


def _parts_in(item: dict[str, Any], name: str) -> ByIndex:
    if not isinstance(item.get(name), ByIndex):
        item[name] = ByIndex()
    parts: ByIndex = item[name]
    return parts


def _shorten(item: dict[str, Any], index: int, cut: AnswerCut) -> None:
    """Drop the parts of an item's texts that the cut drops."""
    own_field = ITEM_TEXTS.get(str(item.get("type")), ("", ""))[0]
    if isinstance(item.get(own_field), str):
        item[own_field] = cut.text((index,), item[own_field])
    for number, part in enumerate(listed(item.get("content"))):
        text = part.get(part_field(part)) if isinstance(part, dict) else None
        if isinstance(text, str):
            part[part_field(part)] = cut.text(response_channel("content", index, number), text)
