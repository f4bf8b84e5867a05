"""Which calls must not be made twice, and what is taken out of a body that says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastlane.errors import CallRefusedError, ConfigurationError
from fastlane.protocol.endpoints import RESPONSES

MARK = "hedge"
"""The key by which a tool says that calls which offer it are not made twice."""

# What the application runs itself when it gets the answer, of which it gets one.
_OWN_TOOLS = frozenset({"function", "custom"})


class MarkError(ConfigurationError, CallRefusedError):
    """A mark that does not say whether the call may be made twice: it is not sent, as it might be."""


def check_marks(body: Mapping[str, Any]) -> None:
    """Raise MarkError where a tool of a body is marked with anything but a truth, or in the wrong place."""
    for tool in _listed(body.get("tools")):
        if MARK in tool and tool[MARK] is not True and tool[MARK] is not False:
            raise MarkError(
                f'"{MARK}" of a tool must be True or False, got {type(tool[MARK]).__name__}: write "{MARK}": False in '
                "a tool with side effects, so that a call which offers it is not made twice"
            )
        for name in ("function", "custom"):
            inner = tool.get(name)
            if isinstance(inner, Mapping) and MARK in inner:
                raise MarkError(
                    f'"{MARK}" stands inside of a tool\'s "{name}", where it says nothing: write it beside "type", as '
                    f'in {{"type": "{name}", "{MARK}": False, "{name}": {{...}}}}'
                )
    if any(MARK in function for function in _listed(body.get("functions"))):
        raise MarkError(f'"{MARK}" says nothing in "functions": give the names to Hedging(not_with_tools=(...,))')


def why_only_once(endpoint: str, body: Mapping[str, Any], not_with_tools: Collection[str]) -> str | None:
    """Return why a call is not made twice; None where it may be."""
    if body.get("background") is True:
        return "background work is done where nobody waits for it"
    if body.get("previous_response_id") is not None or body.get("conversation") is not None:
        return "the provider holds the conversation, and would hold both answers"
    kept = body.get("store")
    if kept is True or (endpoint == RESPONSES and kept is not False):
        return "the provider keeps the answer, and would keep both: store=False"
    if body.get("web_search_options") is not None:
        return "the provider runs a tool itself"
    if endpoint == RESPONSES and body.get("prompt") is not None:
        return "a prompt that the provider holds may have tools of its own"
    for tool in _listed(body.get("tools")):
        if tool.get("type", "function") not in _OWN_TOOLS:
            return "the provider runs a tool itself"
        if tool.get(MARK) is False or _name_of(tool) in not_with_tools:
            return "a tool has side effects"
    if any(_name_of(function) in not_with_tools for function in _listed(body.get("functions"))):
        return "a tool has side effects"
    return None


def without_marks(tools: Any) -> list[Any] | None:
    """Return a body's tools without the key that is meant for us; None where none has it."""
    if not isinstance(tools, list) or not any(isinstance(tool, Mapping) and MARK in tool for tool in tools):
        return None
    return [
        {name: value for name, value in tool.items() if name != MARK}
        if isinstance(tool, Mapping) and MARK in tool
        else tool
        for tool in tools
    ]


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def _name_of(tool: Mapping[str, Any]) -> str | None:
    for at in (tool, tool.get("function"), tool.get("custom")):
        name = at.get("name") if isinstance(at, Mapping) else None
        if isinstance(name, str):
            return name
    return None
