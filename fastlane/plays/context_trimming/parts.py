"""Read a conversation, of chat completions or of responses, as pieces that belong together.

A piece is what can be left out without breaking the rest: a question, or one step of the model with the results of all
tool calls that it made. A turn begins with a question and goes on to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

PartKind = Literal["system", "user", "answer", "waiting", "result", "other"]
"""Whose a message is: the application's instructions, the user's, the model's, a tool's, or what is not known here. A
step of the model is "waiting" as long as one of its calls has no result."""

_ROLES: Mapping[str, PartKind] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "answer", "tool": "result",
}  # fmt: skip
# Items of the model's that have no call of a tool of the application's in them.
_ANSWERS = frozenset(
    ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
)
# Of these the output is a text, and so may be another text.
_TEXT_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output"))


class CalledTool(NamedTuple):
    """One call of a tool, as the model wrote it."""

    call_id: str
    name: str


class MessageRole(NamedTuple):
    """What one message is to the conversation."""

    kind: PartKind
    calls: tuple[CalledTool, ...] = ()
    result_of: str | None = None
    """The id of the call whose result it is."""
    text_field: str | None = None
    """Where the text of a result stands, if it is one: "content" or "output"."""


class Piece(NamedTuple):
    """Messages from `start` to before `end` that are left out together or not at all."""

    start: int
    end: int
    kind: PartKind


def read_role(message: Mapping[str, Any]) -> MessageRole:
    """Say what one message or input item is. Raises nothing, whatever it is."""
    role, kind = message.get("role"), message.get("type")
    if isinstance(role, str) and kind in (None, "message"):
        return _of_role(_ROLES.get(role, "other"), message)
    if not isinstance(kind, str):
        return MessageRole("other")
    call_id = message.get("call_id")
    if isinstance(call_id, str) and kind.endswith("_call"):
        return MessageRole("answer", (CalledTool(call_id, _string(message.get("name")) or kind),))
    if isinstance(call_id, str) and kind.endswith("_output"):
        return MessageRole("result", (), call_id, "output" if kind in _TEXT_OUTPUTS else None)
    return MessageRole("answer" if kind in _ANSWERS else "other")


def _of_role(kind: PartKind, message: Mapping[str, Any]) -> MessageRole:
    if kind == "result":
        return MessageRole("result", (), _string(message.get("tool_call_id")), "content")
    if kind != "answer":
        return MessageRole(kind)
    if message.get("function_call") is not None:  # older than `tool_calls`: its result has no id
        return MessageRole("other")
    calls = []
    given = message.get("tool_calls")
    for call in given if isinstance(given, list | tuple) else ():
        inner = call.get("function", call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(call.get("id"), str):
            calls.append(CalledTool(call["id"], _string(inner.get("name")) or "tool"))
    return MessageRole("answer", tuple(calls))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def pieces_of(parts: Sequence[MessageRole]) -> list[Piece]:
    """Return the pieces of a conversation, in order; together they are all of it.

    A result without its call is "other": what belongs to it may be elsewhere.
    """
    starts: list[int] = []
    kinds: list[PartKind] = []
    piece_of_call: dict[str, int] = {}
    waiting: set[str] = set()
    for index, part in enumerate(parts):
        inside = False
        if part.kind == "answer":
            inside = bool(kinds) and kinds[-1] == "answer" and parts[index - 1].kind == "answer"
        elif part.kind == "result":
            owner = piece_of_call.get(part.result_of or "")
            inside = owner is not None
            waiting.discard(part.result_of or "")
            if owner is not None and owner < len(starts) - 1:
                # A result that comes late holds all together that lies between.
                del starts[owner + 1 :], kinds[owner + 1 :]
                piece_of_call = {call: min(piece, owner) for call, piece in piece_of_call.items()}
        if not inside:
            starts.append(index)
            kinds.append("other" if part.kind == "result" else part.kind)
        for call in part.calls:
            piece_of_call[call.call_id] = len(starts) - 1
            waiting.add(call.call_id)
    for call_id in waiting:
        kinds[piece_of_call[call_id]] = "waiting"
    ends = [*starts[1:], len(parts)]
    return [Piece(start, end, kind) for start, end, kind in zip(starts, ends, kinds, strict=True)]


def turns_of(pieces: Sequence[Piece]) -> list[int]:
    """Return for each piece the number of its turn, from 0; -1 for what comes before any but instructions."""
    numbers: list[int] = []
    turn = -1
    before: PartKind | None = None
    for piece in pieces:
        if piece.kind != "system":
            if turn < 0 or (piece.kind == "user" and before != "user"):
                turn += 1
            before = piece.kind
        numbers.append(turn)
    return numbers


def text_of(value: Any) -> str:
    """Return the text of a message's content or an output, without pictures and files."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        texts = [
            part if isinstance(part, str) else part.get("text") for part in value if isinstance(part, Mapping | str)
        ]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""
