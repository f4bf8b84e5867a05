"""Read out of the typed events of a stream what each adds to its answer's texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._contents import Content
from ._deltas import REASONING_FIELDS, Delta
from ._merge import as_position
from ._response_places import DELTAS, channel_of
from ._responses_assembly import tool_begun

_NOTHING: Sequence[Delta] = ()


def deltas_of(event: Any, endpoint: str) -> Sequence[Delta]:
    """Return what one of openai's stream events adds to its answer; the same deltas as those of an `Assembly`.

    Knows nothing of the events before: a tool's name comes as often as the provider sends it, and a tool call without
    an index counts as the first. Raises nothing, whatever the event is.
    """
    read = _READERS.get(endpoint)
    if read is None:
        return _NOTHING
    try:
        return read(event)
    except (AttributeError, LookupError, TypeError):
        return _NOTHING


def _chat(event: Any) -> Sequence[Delta]:
    choices = event.choices
    if not choices:
        return _NOTHING
    if len(choices) == 1:
        choice = choices[0]
        delta = choice.delta
        text, index = delta.content, choice.index
        # The path of nearly every event of a stream: more content of the only choice, and nothing else.
        if (
            text.__class__ is str
            and text
            and index.__class__ is int
            and delta.tool_calls is None
            and not delta.__pydantic_extra__
        ):
            return (Delta((index,), "content", text),)
    deltas: list[Delta] = []
    for choice in choices:
        if choice is not None and choice.delta is not None:
            _chat_choice(as_position(choice.index), choice.delta, deltas)
    return deltas


def _chat_choice(index: int, delta: Any, deltas: list[Delta]) -> None:
    extra = delta.__pydantic_extra__ or {}
    thought = next((extra[name] for name in REASONING_FIELDS if extra.get(name)), None)
    if isinstance(thought, str):
        deltas.append(Delta((index,), "reasoning", thought))
    content = delta.content
    if isinstance(content, str):
        if content:
            deltas.append(Delta((index,), "content", content))
    elif content:
        Content().take(content, (index,), deltas)
    if isinstance(delta.refusal, str) and delta.refusal:
        deltas.append(Delta((index,), "refusal", delta.refusal))
    if delta.function_call is not None:
        _called((index, -1), delta.function_call, "arguments", deltas)
    for call in delta.tool_calls or ():
        channel = (index, as_position(call.index))
        custom = (call.__pydantic_extra__ or {}).get("custom")
        if call.function is not None:
            _called(channel, call.function, "arguments", deltas)
        elif isinstance(custom, Mapping):
            _append_call(channel, custom.get("name"), custom.get("input"), deltas)


def _called(channel: tuple[int, int], function: Any, field: str, deltas: list[Delta]) -> None:
    _append_call(channel, function.name, getattr(function, field), deltas)


def _append_call(channel: tuple[int, int], name: Any, text: Any, deltas: list[Delta]) -> None:
    name = name if isinstance(name, str) and name else None
    text = text if isinstance(text, str) else ""
    if text or name is not None:
        deltas.append(Delta(channel, "tool_call", text, name))


def _completions(event: Any) -> Sequence[Delta]:
    return [
        Delta((as_position(choice.index),), "content", choice.text)
        for choice in event.choices or ()
        if isinstance(choice.text, str) and choice.text
    ]


def _responses(event: Any) -> Sequence[Delta]:
    kind = event.type
    place = DELTAS.get(kind)
    if place is not None:
        text = event.delta
        if text.__class__ is not str or not text:
            return _NOTHING
        index = as_position(getattr(event, place.numbered_by)) if place.numbered_by else 0
        return (Delta(channel_of(place.parts, as_position(event.output_index), index), place.kind, text),)
    if kind == "response.output_item.added":
        item = event.item
        text = getattr(item, "arguments", None) or getattr(item, "input", None)
        return tool_begun(as_position(event.output_index), getattr(item, "name", None), text)
    return _NOTHING


_READERS: Mapping[str, Callable[[Any], Sequence[Delta]]] = {
    "/chat/completions": _chat,
    "/completions": _completions,
    "/responses": _responses,
}
