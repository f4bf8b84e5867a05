"""Marks on messages and content parts, which declare how long they stay unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from fastlane.errors import ConfigurationError

Placement = Literal["stable", "session", "volatile"]
"""For how long a part of a prompt is unchanged: for all calls, for one conversation, or for one call."""

Declared: TypeAlias = Placement | tuple[Placement | None, ...] | None
"""The placement of a message as a whole, or of each part of its content; None if nothing was declared."""

# Messages of these roles may be split. An assistant's message is the model's output, and a tool's answers one call.
DIVISIBLE_ROLES = ("system", "developer", "user")

# Leading messages of these roles count as stable by default.
LEADING_ROLES = ("system", "developer")

# Texts of the application are system messages, also after the conversation, so that the model does not take a volatile
# text for the user's.
_ROLES: Mapping[Placement, str] = {"stable": "system", "session": "user", "volatile": "system"}

# Fields of messages and of `input` items that hold parts.
_HOLDING_PARTS = ("content", "output")


class Marked(dict[str, Any]):
    """A message or content part with a placement; for all other code it is a plain dictionary."""

    __slots__ = ("placement",)

    placement: Placement
    """For how long it is unchanged."""

    def __init__(self, part: Mapping[str, Any], placement: Placement) -> None:
        super().__init__(part)
        self.placement = placement

    def copy(self) -> Marked:
        """A shallow copy with the same mark."""
        return Marked(self, self.placement)

    def __copy__(self) -> Marked:
        return self.copy()


def stable(part: str | Mapping[str, Any]) -> Any:
    """Declare that a message or content part is the same in all calls; a text becomes a system message.

    Returns a `Marked`, typed as anything because openai's own types of messages cannot be derived from. Raises
    ConfigurationError for what is neither a text nor a mapping.
    """
    return marked(part, "stable")


def session(part: str | Mapping[str, Any]) -> Any:
    """Declare that a message or content part is the same in all calls of one conversation; a text becomes a user's.

    See `stable`.
    """
    return marked(part, "session")


def volatile(part: str | Mapping[str, Any]) -> Any:
    """Declare that a message or content part may differ in every call; a text becomes a system message.

    Put it after all others: a prompt is read from the cache up to the first token that differs. See `stable`.
    """
    return marked(part, "volatile")


def marked(part: Any, placement: Placement) -> Marked:
    """Return a message or part with this mark, replacing any other. Raises ConfigurationError for other types."""
    if isinstance(part, str):
        return Marked({"role": _ROLES[placement], "content": part}, placement)
    if isinstance(part, Mapping):
        return Marked(part, placement)
    raise ConfigurationError(
        f"fastlane.prompts.{placement}() takes a text, a message or a part of a message's content as a dictionary, got "
        f"{type(part).__name__}: convert it first, for example with model_dump(exclude_unset=True)"
    )


def unmarked(messages: Iterable[Any]) -> tuple[list[Any], tuple[Declared, ...] | None]:
    """Return the messages as plain dictionaries, and their declared placements; None if nothing was declared.

    A system, developer or user message with marked parts has a placement for each part; marks on parts of other
    messages are ignored. Unmarked messages are the caller's own objects, unchanged.
    """
    plain: list[Any] = []
    declared: list[Declared] = []
    for message in messages:
        own = message.placement if isinstance(message, Marked) else None
        taken = dict(message) if own is not None else message
        of_parts: Declared = own
        if type(taken) is dict:
            for name in _HOLDING_PARTS:
                parts = taken.get(name)
                if isinstance(parts, list | tuple) and any(isinstance(part, Marked) for part in parts):
                    if taken is message:
                        taken = dict(message)
                    taken[name] = [dict(part) if isinstance(part, Marked) else part for part in parts]
                    if name == "content" and taken.get("role") in DIVISIBLE_ROLES:
                        of_parts = tuple(part.placement if isinstance(part, Marked) else own for part in parts)
        plain.append(taken)
        declared.append(of_parts)
    return plain, tuple(declared) if any(one is not None for one in declared) else None
