"""What messages, tools and formats may be: what openai could not send as one is refused where it is handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastlane.errors import ConfigurationError


def messages_of(taker: str, messages: Any) -> Iterable[Any]:
    """The messages that `taker` was given, each a mapping or an object that openai makes one of.

    Of an iterator, the list of what it gave. Raises ConfigurationError, which quotes nothing, for anything else.
    """
    if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(messages, Iterable):
        raise ConfigurationError(f"{taker} takes a list of messages, got {type(messages).__name__}: put it into a list")
    listed = messages if isinstance(messages, list | tuple) else list(messages)
    for number, message in enumerate(listed):
        if not _is_object(message):
            raise ConfigurationError(
                f"{taker} takes a list of messages, each a dictionary or an answer's own message, got "
                f"{type(message).__name__} for messages[{number}]: write a text as "
                '{"role": "user", "content": text}'
            )
    return listed


def tools_of(taker: str, tools: Any) -> list[Any] | None:
    """The tools that `taker` was given; raises ConfigurationError as `messages_of` does."""
    if tools is None:
        return None
    if isinstance(tools, str | bytes | bytearray | Mapping) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"{taker} takes a list of tools, got {type(tools).__name__}: put it into a list")
    listed = list(tools)
    for number, tool in enumerate(listed):
        if not _is_object(tool):
            raise ConfigurationError(
                f"{taker} takes a list of tools, each a dictionary, got {type(tool).__name__} for tools[{number}]: "
                'write it as {"type": "function", "function": {...}}, such as with openai.pydantic_function_tool()'
            )
    return listed


def format_of(taker: str, form: Any) -> Any:
    """The response format that `taker` was given; raises ConfigurationError for what cannot be one."""
    # openai's own words for "not given" are classes of its own.
    is_openai = type(form).__module__.partition(".")[0] == "openai"
    if form is None or isinstance(form, type) or is_openai or _is_object(form):
        return form
    raise ConfigurationError(
        f"{taker} takes a dictionary, or a class for parse(), got {type(form).__name__}: write it as "
        '{"type": "json_schema", "json_schema": {...}}, or leave it out'
    )


def _is_object(value: Any) -> bool:
    """Whether openai sends it as a JSON object: it does so with mappings and with what pydantic, old or new, made."""
    return isinstance(value, Mapping) or hasattr(value, "model_dump") or hasattr(value, "__fields__")
