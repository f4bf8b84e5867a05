"""Read the texts of a whole answer, and how it ended, out of its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .content import is_cut_off, is_refused
from .endpoints import CHAT, COMPLETIONS, RESPONSES
from .fields import listed, string

TextKind = Literal["content", "tool_call", "refusal"]

CallForm = Literal["function", "custom", "older"]
"""How a tool was called: with JSON; with free text; or with JSON in chat's older `function_call`."""


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
    """Return the texts of a whole answer, in order. Raises nothing, whatever it is given.

    A choice that says nothing, neither text nor call nor refusal, has an empty content. Reasoning is not in it, nor
    what the Responses API calls commentary. Calls of tools come behind the content of their choice.
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
    """Return "truncated" or "refused" for an answer that ended so by its own word, and None for any other.

    One choice that was cut off or refused counts for the answer. An answer that is complete and ran on to the limit in
    white space is "truncated" here, too. Raises nothing.
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
    if content or not (refusal or calls):
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
    older = message.get("function_call")
    if isinstance(older, Mapping) and string(older.get("name")):
        yield AnswerText(
            "tool_call", _text(older.get("arguments")), (index, 0), finish, string(older.get("name")), None, "older"
        )


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
        # What is neither text nor thought does something of its own: a call of a tool of the provider's.
        silent = silent and not texts and kind in ("message", "reasoning")
    if silent:
        yield AnswerText("content", "", (len(output), 0), status)


def _message(item: Mapping[str, Any], at: int, status: str | None) -> Iterator[AnswerText]:
    # What a model says on the way to its answer is not in the form that was asked of the answer.
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
    # Without a reason it is still no whole answer.
    return reason or "max_output_tokens"


def _text(value: object) -> str:
    """A text, or the texts of the parts that some providers make of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        texts = [part.get("text") for part in value if isinstance(part, Mapping)]
        return "".join(text for text in texts if isinstance(text, str))
    return ""
