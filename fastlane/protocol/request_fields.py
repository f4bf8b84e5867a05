"""Read and write the fields of a request that determine the format of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .endpoints import CHAT, RESPONSES


class Tool(NamedTuple):
    """The arguments of one tool."""

    schema: Mapping[str, Any] | bool
    strict: bool
    """Whether the provider has to enforce the schema (`strict`)."""


class Wanted(NamedTuple):
    """The requested format of an answer's content."""

    is_json: bool
    name: str | None = None
    schema: Mapping[str, Any] | None = None
    strict: bool = False


FREE_TEXT = Wanted(is_json=False)
_ANY_JSON = Wanted(is_json=True)
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""The schema for `json_object`, which has none of its own."""


def wanted_of(body: Mapping[str, Any], endpoint: str) -> Wanted:
    """Return the format that a body requests; `FREE_TEXT` if it requests none."""
    if endpoint == CHAT:
        form = body.get("response_format")
        described = form.get("json_schema") if isinstance(form, Mapping) else None
    elif endpoint == RESPONSES:
        text = body.get("text")
        form = described = text.get("format") if isinstance(text, Mapping) else None
    else:
        return FREE_TEXT
    if not isinstance(form, Mapping):
        return FREE_TEXT
    if form.get("type") == "json_object":
        return _ANY_JSON
    if form.get("type") != "json_schema" or not isinstance(described, Mapping):
        return FREE_TEXT
    name, schema = described.get("name"), described.get("schema")
    return Wanted(
        is_json=True,
        name=name if isinstance(name, str) else None,
        schema=schema if isinstance(schema, Mapping) else None,
        strict=described.get("strict") is True,
    )


def with_schema(body: Mapping[str, Any], endpoint: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field of a body that requests a schema, with another schema in it."""
    if endpoint == CHAT:
        form = body["response_format"]
        return {"response_format": {**form, "json_schema": {**form["json_schema"], "schema": schema}}}
    text = body["text"]
    return {"text": {**text, "format": {**text["format"], "schema": schema}}}


def tools_of(body: Mapping[str, Any], endpoint: str) -> dict[str, Tool]:
    """Return the functions that the model may call, by name."""
    listed = body.get("tools")
    found: dict[str, Tool] = {}
    for tool in listed if isinstance(listed, list) else ():
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            continue
        function = tool.get("function") if endpoint == CHAT else tool
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters: Any = function.get("parameters")
            schema = parameters if isinstance(parameters, Mapping) else True
            found[function["name"]] = Tool(schema=schema, strict=function.get("strict") is True)
    return found


def may_call_tools(body: Mapping[str, Any]) -> bool:
    """Return whether the model may call tools."""
    listed = body.get("tools") or body.get("functions")
    return bool(listed) and "none" not in (body.get("tool_choice"), body.get("function_call"))


def is_kept(body: Mapping[str, Any]) -> bool:
    """Return whether the application needs the provider to store the answer, which a stopped stream prevents.

    Responses are stored by default. The default alone does not count: most applications never fetch them.
    """
    chained = body.get("previous_response_id") is not None or body.get("conversation") is not None
    return chained or body.get("store") is True


def only_tool(body: Mapping[str, Any], endpoint: str) -> str | None:
    """Return the name of the function that the answer must call exactly once; None if it may be anything else."""
    choice = body.get("tool_choice")
    if (
        not isinstance(choice, Mapping)
        or choice.get("type") != "function"
        or body.get("parallel_tool_calls") is not False
    ):
        return None
    inner = choice.get("function") if endpoint == CHAT else choice
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) else None


def effort_in(body: Mapping[str, Any]) -> str | None:
    """Return the reasoning effort that a body requests; None if it sets none."""
    inner = body.get("reasoning")
    effort = body.get("reasoning_effort", inner.get("effort") if isinstance(inner, Mapping) else None)
    return effort if isinstance(effort, str) else None
