"""Who reads an answer beside the application, and what that reader takes: openai's code, by classes of pydantic's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastlane.protocol.answer_texts import AnswerText
from fastlane.protocol.request_fields import Tool

from ..progress._lax import is_plain, lax_node
from ..progress._nodes import Node, compile_schema
from ..validation._problems import without_frames
from ..validation._validation import Problem, problem_of


@dataclass(frozen=True, slots=True)
class Reader:
    """What becomes of an answer's JSON. An answer that its reader takes is valid, whatever its schema says."""

    by: Literal["schema", "class", "unknown", "perhaps a class"] = "schema"
    """What says whether the content is valid; "unknown": something of the application's that cannot be asked."""
    content: Any = None
    """The class that the content is read by."""
    tools: Mapping[str, Any] = field(default_factory=dict)
    """The classes that arguments of tools are read by, by the tools' names."""

    def content_node(self, schema: Any) -> Node:
        """What to watch the content by: nothing that the reader takes is outside of it."""
        if self.by == "schema":
            return compile_schema(schema)
        plain = is_plain(self.content) if self.by == "class" else self.by != "unknown"
        return lax_node(schema) if plain else compile_schema(None)

    def tool_node(self, name: str | None, tool: Tool | None) -> Node:
        """What to watch the arguments of a tool by."""
        if tool is None or not tool.strict:
            return compile_schema(None)
        made = self.tools.get(name or "")
        if made is None:
            return compile_schema(tool.schema)
        return lax_node(tool.schema) if is_plain(made) else compile_schema(None)

    def problem(self, one: AnswerText, schema: Any) -> Problem | None:
        """What the class finds wrong with a text of an answer; None where nothing is, or no class reads it."""
        kind = self.content if one.kind == "content" else self.tools.get(one.name or "")
        if kind is None or one.kind == "refusal":
            return None
        from pydantic import TypeAdapter

        try:
            TypeAdapter(kind).validate_json(one.text)
        except ValueError as error:
            return problem_of(without_frames(error), schema)
        return None


BY_SCHEMA = Reader()
UNKNOWN = Reader("unknown")
PERHAPS_A_CLASS = Reader("perhaps a class")


def reader_in(parser: Any) -> Reader:
    """Return who reads an answer by a function that openai's `parse` methods make: its classes stand in its closure."""
    held = list(_held(parser))
    classes = [one for one in held if isinstance(one, type)]
    tools = {
        function["name"]: model
        for listed in held
        if isinstance(listed, list | tuple)
        for function in map(_function, listed)
        if isinstance(model := getattr(function, "model", None), type) and isinstance(function.get("name"), str)
    }
    if len(classes) == 1:
        return Reader("class", classes[0], tools)
    if classes or not held or any(isinstance(one, Callable) for one in held):  # type: ignore[arg-type]
        return Reader("unknown", None, tools)
    return Reader("schema", None, tools)


def _held(parser: Any) -> Iterator[Any]:
    for cell in getattr(parser, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            pass  # not filled


def _function(tool: Any) -> Any:
    """What is called: openai's own mark of a class stands on it, or on the tool."""
    if not isinstance(tool, Mapping):
        return {}
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool
