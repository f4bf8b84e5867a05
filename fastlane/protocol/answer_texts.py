"""Read the texts and the ending of a whole answer from its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .content import is_cut_off, is_refused
from .endpoints import CHAT, COMPLETIONS, RESPONSES
from .fields import listed, string

TextKind = Literal["content", "tool_call", "refusal"]

CallForm = Literal["function", "custom"]
"""How a tool was called: with JSON, or with free text."""


class AnswerText(NamedTuple):
    """One text of an answer: its content, the arguments of one call of a tool, or a refusal."""

    kind: TextKind
    text: str
    where: tuple[int, ...]
    """Chat and completions: (choice,), or (choice, position) for a call of a tool; Responses: (output_index,
    content_index), or (output_index,) for a call. For chat the choice's own index, as in a stream."""
    finish_reason: str | None = None
    """The choice's finish reason, or the status of a Responses answer."""
    name: str | None = None
    """The tool that is called."""
    call_id: str | None = None
    form: CallForm = "function"


def answer_texts(body: Any, endpoint: str) -> list[AnswerText]:
    """Return the texts of a whole answer, in order. Never raises.

    A choice without text, tool call and refusal has an empty content. Reasoning and what the Responses API calls
    commentary are left out. Tool calls follow the content of their choice.
    """
    if not isinstance(body, Mapping):
        return []
    if endpoint == RESPONSES:
        return list(_responses(body))
    if endpoint == CHAT:
        return [text for choice, index in _choices(body) for text in _chat(choice, index)]
    if endpoint == COMPLETIONS:
        return [
            AnswerText("content", _text(choice.get("text")), (index,), string(choice.get("finish_reason")))
            for choice, index in _choices(body)
        ]
    return []


def verdict_of(body: Any, endpoint: str) -> Literal["truncated", "refused"] | None:
    """Return "truncated" or "refused" if the finish reason or status of an answer says so, else None.

    One truncated or refused choice decides for the answer. An answer that is complete but ran on to the token limit in
    white space also counts as "truncated". Never raises.
    """
    if not isinstance(body, Mapping):
        return None
    if endpoint == RESPONSES:
        reasons = [_incomplete(body)]
    else:
        reasons = [string(each.get("finish_reason")) for each, _ in _choices(body)]
    if any(map(is_cut_off, reasons)):
        return "truncated"
    if any(map(is_refused, reasons)):
        return "refused"
    return "refused" if any(text.kind == "refusal" for text in answer_texts(body, endpoint)) else None


def _choices(body: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    for position, choice in enumerate(listed(body.get("choices"))):
        if isinstance(choice, Mapping):
            yield choice, _index(choice, position)


def _index(choice: Mapping[str, Any], position: int) -> int:
    index = choice.get("index")
    return index if type(index) is int else position


def _chat(choice: Mapping[str, Any], index: int) -> Iterator[AnswerText]:
    finish = string(choice.get("finish_reason"))
    message = choice.get("message")
    if not isinstance(message, Mapping):
        message = {}
    content, refusal = _text(message.get("content")), _text(message.get("refusal"))
    calls = list(_calls(message, index, finish))
    if content or not (refusal or calls or message.get("function_call")):
        yield AnswerText("content", content, (index,), finish)
    if refusal:
        yield AnswerText("refusal", refusal, (index,), finish)
    yield from calls


def _calls(message: Mapping[str, Any], index: int, finish: str | None) -> Iterator[AnswerText]:
    for position, call in enumerate(listed(message.get("tool_calls"))):
        if not isinstance(call, Mapping):
            continue
        form: CallForm = "custom" if isinstance(call.get("custom"), Mapping) else "function"
        inner = call.get(form)
        if isinstance(inner, Mapping):
            text = _text(inner.get("input" if form == "custom" else "arguments"))
            where = (index, position)
            yield AnswerText("tool_call", text, where, finish, string(inner.get("name")), string(call.get("id")), form)


def _responses(body: Mapping[str, Any]) -> Iterator[AnswerText]:
    status = string(body.get("status"))
    silent = True
    output = listed(body.get("output"))
    for at, item in enumerate(output):
        if not isinstance(item, Mapping):
            continue
        kind, name, call_id = item.get("type"), string(item.get("name")), string(item.get("call_id"))
        texts: list[AnswerText] = []
        if kind == "function_call":
            texts = [AnswerText("tool_call", _text(item.get("arguments")), (at,), status, name, call_id)]
        elif kind == "custom_tool_call":
            texts = [AnswerText("tool_call", _text(item.get("input")), (at,), status, name, call_id, "custom")]
        elif kind == "message":
            texts = list(_message(item, at, status))
        yield from texts
        # Any other item is output as well: a call of a tool that the provider runs.
        silent = silent and not texts and kind in ("message", "reasoning")
    if silent:
        yield AnswerText("content", "", (len(output), 0), status)


def _message(item: Mapping[str, Any], at: int, status: str | None) -> Iterator[AnswerText]:
    # Commentary before the final answer does not have the requested format.
    if item.get("phase") not in (None, "final_answer"):
        return
    content = item.get("content")
    parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
    for position, part in enumerate(listed(parts)):
        if not isinstance(part, Mapping):
            continue
        if part.get("type") == "output_text":
            yield AnswerText("content", _text(part.get("text")), (at, position), status)
        elif part.get("type") == "refusal":
            yield AnswerText("refusal", _text(part.get("refusal")), (at, position), status)


def _incomplete(body: Mapping[str, Any]) -> str | None:
    if body.get("status") != "incomplete":
        return None
    details = body.get("incomplete_details")
    reason = string(details.get("reason")) if isinstance(details, Mapping) else None
    # Incomplete without a reason: treat it as cut off.
    return reason or "max_output_tokens"


def _text(value: object) -> str:
    """Return a text, or the joined texts of its parts, which some providers send."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        texts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    return ""
