"""Which calls must not be made twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fastlane.protocol.endpoints import RESPONSES

# What the application runs itself when it gets the answer, of which it gets one.
_OWN_TOOLS = frozenset({"function", "custom"})


def why_only_once(endpoint: str, body: Mapping[str, Any], not_with_tools: Collection[str]) -> str | None:
    """Return why a call is not made twice; None if it may be."""
    if body.get("background") is True:
        return "no user waits for background work"
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
        if _name_of(tool) in not_with_tools:
            return "a tool has side effects"
    if any(_name_of(function) in not_with_tools for function in _listed(body.get("functions"))):
        return "a tool has side effects"
    return None


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def _name_of(tool: Mapping[str, Any]) -> str | None:
    for at in (tool, tool.get("function"), tool.get("custom")):
        name = at.get("name") if isinstance(at, Mapping) else None
        if isinstance(name, str):
            return name
    return None
