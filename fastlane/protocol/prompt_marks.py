"""Marks on messages and on parts of their content, which say how long these stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from fastlane.errors import ConfigurationError

Placement = Literal["stable", "session", "volatile"]
"""How long a part of a prompt stays as it is: for all calls, for one conversation, or for one call."""

Declared: TypeAlias = Placement | tuple[Placement | None, ...] | None
"""What was declared of a message: of it as a whole, of each part of its content, or nothing."""

# A message of these is the same said in two: an assistant's is what the model wrote, and a tool's answers one call.
DIVISIBLE_ROLES = ("system", "developer", "user")

# Messages of these at the beginning are the same in all calls, if nothing else is declared.
LEADING_ROLES = ("system", "developer")

# The system's word for what the application says, also behind the conversation: a volatile text of its own there is not
# taken for the user's.
_ROLES: Mapping[Placement, str] = {"stable": "system", "session": "user", "volatile": "system"}

# Where messages, and items of `input`, hold parts.
_HOLDING_PARTS = ("content", "output")


class Marked(dict[str, Any]):
    """A message or content part that knows how long it stays as it is; to everybody else, the dictionary that it is."""

    __slots__ = ("placement",)

    placement: Placement
    """For all calls, for one conversation, or for one call."""

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

    It belongs behind all others: a prompt can be read from the cache up to the first token that differs. See `stable`.
    """
    return marked(part, "volatile")


def marked(part: Any, placement: Placement) -> Marked:
    """A message or part with a mark, instead of the one that it may have. Raises ConfigurationError for other types."""
    if isinstance(part, str):
        return Marked({"role": _ROLES[placement], "content": part}, placement)
    if isinstance(part, Mapping):
        return Marked(part, placement)
    raise ConfigurationError(
        f"fastlane.prompts.{placement}() takes a text, a message or a part of a message's content as a dictionary, got "
        f"{type(part).__name__}: convert it first, such as by its model_dump(exclude_unset=True)"
    )


def unmarked(messages: Iterable[Any]) -> tuple[list[Any], tuple[Declared, ...] | None]:
    """The messages as plain dictionaries, and what was declared of each; None where nothing was of any.

    Of a system, developer or user message with marked parts, what was declared of each part; marks on parts of others
    say nothing. What is not marked is the caller's own object, and nothing of it is changed.
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
