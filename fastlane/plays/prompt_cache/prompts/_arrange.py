"""Lay out messages by how long they stay as they are: what is always the same first, what differs every time last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastlane.protocol.prompt_marks import DIVISIBLE_ROLES, Declared, Placement

_ORDER: tuple[Placement, ...] = ("stable", "session", "volatile")
_LEADING_ROLES = ("system", "developer")
_RESULT_ROLES = ("tool", "function")


def arrange(messages: Sequence[Any], declared: Sequence[Declared]) -> tuple[list[Any], tuple[Placement, ...]]:
    """The messages in order (stable, session, volatile), and the place of each; within each place, in order as written.

    What nothing was declared of stays where it is: leading system and developer messages with what is stable, all
    others with the conversation. The result of a tool stays with its call, and an assistant's unmarked message that
    ends the list, which the model is to go on with, stays at its end. A message whose parts belong to different places
    is divided: the same role and the same parts, each once. Messages and parts are the caller's own objects; none is
    changed. `declared` says of each message what `unmarked` returns; said of another number of them, it says nothing.
    """
    laid: dict[Placement, list[Any]] = {place: [] for place in _ORDER}
    for message, place in zip(messages, placed(messages, declared), strict=True):
        if isinstance(place, str):
            laid[place].append(message)
            continue
        parts = message["content"]
        for name in _ORDER:
            if name in place:
                here = [part for part, its_place in zip(parts, place, strict=True) if its_place == name]
                laid[name].append({**message, "content": here})
    arranged = [message for place in _ORDER for message in laid[place]]
    return arranged, tuple(place for place in _ORDER for _ in laid[place])


def placed(messages: Sequence[Any], declared: Sequence[Declared]) -> list[Placement | tuple[Placement, ...]]:
    """Where each message belongs, in the order given; where its parts belong to different places, each of those."""
    # What was said of other messages says nothing of these.
    places = declared if len(declared) == len(messages) else (None,) * len(messages)
    found: list[Placement | tuple[Placement, ...]] = []
    for message, place, whole in zip(messages, places, _wholes(messages, places), strict=True):
        if isinstance(place, tuple) and _is_divisible(message, place):
            each = tuple(one or whole for one in place)
            found.append(each if len(set(each)) > 1 else each[0])
        else:
            found.append(whole)
    return found


def _wholes(messages: Sequence[Any], places: Sequence[Declared]) -> list[Placement]:
    """The place of each message as a whole."""
    wholes: list[Placement] = []
    leading = True
    calls: dict[str, Placement] = {}  # by the call's own name for itself, where those that it made belong
    last: Placement | None = None  # of the model's doings that are going on
    for number, (message, declared) in enumerate(zip(messages, places, strict=True)):
        own = declared if isinstance(declared, str) else None
        role, kind = _of(message, "role"), _of(message, "type")
        leading = leading and (own is not None or role in _LEADING_ROLES)
        if role in DIVISIBLE_ROLES:
            wholes.append(own or ("stable" if leading else "session"))
            if own is None:
                last = None
            continue
        made = _calls_of(message)
        if role in _RESULT_ROLES or (isinstance(kind, str) and kind.endswith("_output")):
            answered = _of(message, "tool_call_id") or _of(message, "call_id")
            place = calls.get(answered, last or own or "session") if isinstance(answered, str) else last or own
            wholes.append(place or "session")
            continue
        if made or _is_item(message):
            # Calls that were made at once, and the reasoning before them, are one.
            continues = last is not None and _is_item(message) and number > 0 and _is_item(messages[number - 1])
            place = last if continues else own
            last = place or "session"
            calls.update(dict.fromkeys(made, last))
            wholes.append(last)
            continue
        if number > 0 and _of(messages[number - 1], "type") == "reasoning" and role == "assistant":
            wholes.append(wholes[-1])  # which that reasoning led to
            continue
        wholes.append(own or ("stable" if leading else "session"))
        if own is None:
            last = None
    if messages and places[-1] is None and _of(messages[-1], "role") == "assistant" and not _calls_of(messages[-1]):
        # Also where a list without anything volatile ends so: whoever adds something volatile puts it before this.
        wholes[-1] = "volatile"
    return wholes


def _calls_of(message: Any) -> list[str]:
    """The identifiers of the calls that a message, or an item of `input`, makes; one without is an empty text."""
    made = _of(message, "tool_calls")
    if isinstance(made, list | tuple) and made:
        return [str(_of(call, "id") or "") for call in made]
    if _of(message, "function_call") is not None:
        return [""]
    kind = _of(message, "type")
    if isinstance(kind, str) and kind.endswith("_call"):
        return [str(_of(message, "call_id") or "")]
    return []


def _is_item(message: Any) -> bool:
    """Whether this is an item of `input` that is no message, such as a call or reasoning."""
    return _of(message, "role") is None and _of(message, "type") not in (None, "message")


def _of(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, dict) else getattr(message, name, None)


def _is_divisible(message: Any, place: tuple[Placement | None, ...]) -> bool:
    if not isinstance(message, dict) or message.get("role") not in DIVISIBLE_ROLES:
        return False
    content = message.get("content")
    return isinstance(content, list | tuple) and len(content) == len(place) > 0
