"""What a call cannot do without, and which model cannot give it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastlane.protocol.endpoints import COMPLETIONS, RESPONSES
from fastlane.protocol.request_fields import Wanted, wanted_of
from fastlane.providers.output_facts import limit_in
from fastlane.schemas.dialect import wire_schema

from .model_rules import ModelRules

# Kinds of parts, by what a model needs to read them.
_PARTS = {"image_url": "vision", "input_image": "vision", "computer_call_output": "vision", "input_audio": "audio"}
_FILES = frozenset({"file", "input_file"})
# What a provider does beside answering: it may keep an answer from being seen, and is never left out silently.
HOSTED = ("access_programs", "context_management", "image", "moderation", "web_search_options")
# Tools that the application runs. All others are run by the provider, which another does not have.
_OWN_TOOLS = frozenset({"function", "custom"})

FIELDS: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "best_of": (1,),
    "conversation": (),
    "echo": (False,),
    "function_call": ("auto",),
    "functions": ([], ()),
    "include": ([], ()),
    "logit_bias": ({},),
    "logprobs": (False,),
    "max_tool_calls": (),
    "modalities": (["text"], ("text",)),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "previous_response_id": (),
    "response_format": ({"type": "text"},),
    "stop": ([], (), ""),
    "suffix": ("",),
    "tool_choice": ("auto",),
    "tools": ([], ()),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields that change what comes back, and the values with which each of them asks for nothing."""


class Demands(NamedTuple):
    """What one call asks for that is no matter of taste: without it, something else comes back."""

    endpoint: str
    needs: frozenset[str]
    """Capabilities of the catalog."""
    fields: tuple[tuple[str, Any], ...]
    """Fields that change what comes back, with their values."""
    hosted: tuple[str, ...]
    """What not every provider does: fields, and kinds of tools that it runs ("tools.web_search")."""
    refers: bool
    """It refers to what the client's own provider keeps: files, items, encrypted reasoning."""
    is_limited: bool
    """The caller bounds the length of the answer."""
    wanted: Wanted
    """The form of the answer."""

    def unmet_by(self, rules: ModelRules, *, is_checked: bool = False) -> str | None:
        """Return why a model cannot answer this call as it is meant; None where it can, as far as is known.

        Capabilities, endpoints and sizes of the catalog are not looked at. `is_checked`: the answer is validated, so
        that the provider need not keep to the whole schema.
        """
        for path, value in self.fields:
            rule = rules.rules.get(path)
            if rule is False or rule == "ignored":
                return f"takes no {path}"
            if isinstance(rule, tuple) and isinstance(value, bool | int | str) and value not in rule:
                return f"does not take this {path}"
        if self.is_limited and rules.limits.get(self.endpoint, "") is None:
            return "takes no limit of the answer's length"
        if not rules.is_own:
            if self.refers:
                return "what the call refers to is kept elsewhere"
            for path in self.hosted:
                if not rules.knows(path):
                    return f"is not known to take {path}"
        return self._why_unbound(rules, is_checked) if self.wanted.is_json and rules.facts is not None else None

    def _why_unbound(self, rules: ModelRules, is_checked: bool) -> str | None:
        """Return why the provider does not bind an answer to its form."""
        assert rules.facts is not None
        structured, wanted = rules.facts.structured, self.wanted
        form = "json_object" if wanted.schema is None else "json_schema"
        if structured.formats is not None and structured.formats.value and form not in structured.formats.value:
            return f"takes no {form}"
        if wanted.schema is None or not wanted.strict:
            return None
        if structured.strict is not None and structured.strict.value is False:
            return "binds no answer to a schema"
        if is_checked or structured.refused_keywords is None or not structured.refused_keywords.value:
            return None
        dropped = wire_schema(wanted.schema, structured, strict=True).dropped
        return "does not keep to all of the schema" if dropped else None


def demands_of(body: Mapping[str, Any], endpoint: str) -> Demands:
    """Return what a body demands."""
    needs: set[str] = set()
    hosted = [name for name in HOSTED if body.get(name) is not None]
    # What is to be kept is looked for where the application keeps it.
    refers = isinstance(body.get("prompt"), Mapping) or body.get("background") is True or body.get("store") is True
    tools = body.get("tools")
    if tools or body.get("functions"):
        needs.add("tools")
        for tool in tools if isinstance(tools, list | tuple) else ():
            kind = tool.get("type") if isinstance(tool, Mapping) else None
            if isinstance(kind, str) and kind not in _OWN_TOOLS:
                # What is no word of the API may be the caller's own text.
                hosted.append(f"tools.{kind}" if kind.isidentifier() else "tools of a kind of its own")
    for part in _parts(body, endpoint):
        kind = part.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind in _PARTS:
            needs.add(_PARTS[kind])
        elif kind in _FILES:
            hosted.append("file")
        refers = refers or _is_kept_elsewhere(part, kind)
    modalities = body.get("modalities")
    if body.get("audio") is not None or (isinstance(modalities, list | tuple) and "audio" in modalities):
        needs.add("audio")
    wanted = wanted_of(body, endpoint)
    if wanted.is_json:
        needs.add("json_strict" if wanted.schema is not None and wanted.strict else "json")
    if _shows_reasoning(body):
        needs.add("reasoning")
    return Demands(
        endpoint=endpoint,
        needs=frozenset(needs),
        # In the order of the table, so that the same call is always refused for the same reason.
        fields=tuple([(path, body[path]) for path in FIELDS if path in body and not is_idle(path, body)]),
        hosted=tuple(hosted),
        refers=refers,
        is_limited=limit_in(body, endpoint) is not None,
        wanted=wanted,
    )


def is_idle(path: str, body: Mapping[str, Any]) -> bool:
    """Whether a field of a body asks for nothing that would not come without it."""
    value = body[path]
    if value is None or value in FIELDS.get(path, ()):
        return True
    return path == "parallel_tool_calls" and not body.get("tools")


def _parts(body: Mapping[str, Any], endpoint: str) -> Iterator[Mapping[str, Any]]:
    """Yield whatever a prompt is made of that may be more than text."""
    listed = body.get("input" if endpoint == RESPONSES else "messages")
    if endpoint == COMPLETIONS or not isinstance(listed, list | tuple):
        return
    for message in listed:
        # An exact class is looked up at a fraction of what `Mapping` costs: a conversation may be long.
        if message.__class__ is not dict and not isinstance(message, Mapping):
            continue
        if endpoint == RESPONSES or "audio" in message:
            yield message
        content = message.get("content")
        if content.__class__ is not str and isinstance(content, list | tuple):
            yield from (part for part in content if isinstance(part, Mapping))


def _is_kept_elsewhere(part: Mapping[str, Any], kind: str) -> bool:
    """Whether a part stands for something that only the client's own provider has."""
    if kind == "item_reference" or part.get("file_id") is not None or part.get("encrypted_content") is not None:
        return True
    for name in ("file", "audio", "output"):
        inner = part.get(name)
        if isinstance(inner, Mapping) and (inner.get("file_id") is not None or (name == "audio" and "id" in inner)):
            return True
    return False


def _shows_reasoning(body: Mapping[str, Any]) -> bool:
    """Whether the caller wants to see the reasoning."""
    reasoning, include = body.get("reasoning"), body.get("include")
    summary = reasoning.get("summary") or reasoning.get("generate_summary") if isinstance(reasoning, Mapping) else None
    return summary is not None or (isinstance(include, list | tuple) and "reasoning.encrypted_content" in include)
