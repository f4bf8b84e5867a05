"""Read and write the fields of a request that say what form its answer has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .endpoints import CHAT, RESPONSES


class Tool(NamedTuple):
    """What the arguments of one tool are."""

    schema: Mapping[str, Any] | bool
    strict: bool
    """Whether the provider was told to keep to it, so that anything else is a fault."""


class Wanted(NamedTuple):
    """The form of an answer's content."""

    is_json: bool
    name: str | None = None
    schema: Mapping[str, Any] | None = None
    strict: bool = False


FREE_TEXT = Wanted(is_json=False)
_ANY_JSON = Wanted(is_json=True)
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""What `json_object` promises, which has no schema."""


def wanted_of(body: Mapping[str, Any], endpoint: str) -> Wanted:
    """Return what form the body asks for; `FREE_TEXT` where it asks for none."""
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


def says_form(body: Mapping[str, Any], endpoint: str) -> bool:
    """Whether a body says what form its answer is to have, be it plain text, or cannot say so."""
    if endpoint == CHAT:
        return body.get("response_format") is not None
    text = body.get("text")
    return endpoint != RESPONSES or (isinstance(text, Mapping) and text.get("format") is not None)


def with_schema(body: Mapping[str, Any], endpoint: str, schema: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return the fields of the body that ask for a schema, with this one in the place of the one there, or of none."""
    if endpoint == CHAT:
        form = body.get("response_format")
        described = form["json_schema"] if isinstance(form, Mapping) and "json_schema" in form else None
        inner = {**described, "schema": schema} if described is not None else _described(name, schema)
        return {"response_format": {"type": "json_schema", "json_schema": inner}}
    text = body.get("text")
    text = dict(text) if isinstance(text, Mapping) else {}
    form = text.get("format")
    form = form if isinstance(form, Mapping) and form.get("type") == "json_schema" else _described(name, schema)
    return {"text": {**text, "format": {**form, "type": "json_schema", "schema": schema}}}


def _described(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "schema": schema, "strict": True}


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
    """Whether the model was given tools that it may call."""
    listed = body.get("tools") or body.get("functions")
    return bool(listed) and "none" not in (body.get("tool_choice"), body.get("function_call"))


def is_kept(body: Mapping[str, Any]) -> bool:
    """Whether the application counts on the provider's own copy of the answer, which it has none of if it is stopped.

    Responses are kept by default. That alone says nothing: most applications never come back to them.
    """
    chained = body.get("previous_response_id") is not None or body.get("conversation") is not None
    return chained or body.get("store") is True


def only_tool(body: Mapping[str, Any], endpoint: str) -> str | None:
    """Return the name of the function that the answer is one call of; None where it may be anything else."""
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
    """Return the reasoning effort that a body asks for."""
    inner = body.get("reasoning")
    effort = body.get("reasoning_effort", inner.get("effort") if isinstance(inner, Mapping) else None)
    return effort if isinstance(effort, str) else None
