"""What one call's output is bound to, and how its answer is watched and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastlane.engine.call import Call
from fastlane.engine.collector import streamed
from fastlane.protocol.request_fields import (
    Tool,
    Wanted,
    effort_in,
    is_kept,
    may_call_tools,
    only_tool,
    tools_of,
    wanted_of,
    with_schema,
)
from fastlane.providers import ProviderFacts
from fastlane.providers.output_facts import ceiling_fields, efforts_of, limit_in, most_tokens, reasons
from fastlane.schemas.bound import Bound, schema_bound
from fastlane.schemas.dialect import WireSchema, wire_schema
from fastlane.schemas.given import Schema

from .section import BoundedOutputSection

if TYPE_CHECKING:
    from .play import BoundedOutput


# OpenAI's Responses API takes no limit below this (https://platform.openai.com/docs/api-reference/responses/create).
_LEAST_CEILING = 16
# What frames an answer beside its text: the tokens that end it, or that call a tool.
_FRAME_TOKENS = 8
# Tokens that are left for reasoning, as OpenAI's guide to reasoning models advises
# (https://platform.openai.com/docs/guides/reasoning).
_REASONING_TOKENS = 25_000
# Beyond this a ceiling stops nothing that one would wait for, and is more than many models take.
_MAX_CEILING = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """The plan of one call's output at one upstream."""

    endpoint: str
    model: str | None
    body: Mapping[str, Any]
    """The body as planned, for estimates."""
    play: BoundedOutput
    """The settings."""
    record: BoundedOutputSection
    """What is known before the call."""
    is_json: bool = False
    """Whether the content is to be one JSON value."""
    schema: Schema | None = None
    """What the content is to be valid for; None for free text, and for JSON of any kind."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    choices: int = 1
    content_is_all: bool = True
    """Nothing comes behind the content: the model was given no tools."""
    one_tool_call: bool = False
    """The answer is one call of a tool, and nothing comes behind its arguments."""
    early_stop: bool = False
    """Whether a stream that brings nothing more is closed."""
    reasks: int = 0
    limit: int | None = None
    """Tokens after which the provider cuts the answer off: the caller's own limit, or ours."""
    ceiling_field: str | None = None
    """Where our own limit stands in the body."""


class OutputPlanner:
    """Plans the output of one call: its schema, its limit, and how its answer is watched."""

    def __init__(self, call: Call, play: BoundedOutput) -> None:
        self._call = call
        self._play = play
        self._facts = call.facts
        self._structured = call.facts.structured if call.facts is not None else None
        self._fields: dict[str, Any] = {}
        self._changes: list[str] = []
        self._optional: list[str] = []

    def run(self) -> tuple[Call, OutputPlan | None]:
        """Return the call with its output bounded; as it is and None if there is nothing to do."""
        call, play = self._call, self._play
        body, endpoint = call.body, call.endpoint
        wanted = wanted_of(body, endpoint)
        tools = tools_of(body, endpoint) if may_call_tools(body) else {}
        wire = None if wanted.schema is None else self._write_schema(wanted.schema, strict=wanted.strict)
        tool = only_tool(body, endpoint)
        found = self._bound(wanted, tools, tool)
        ceiling_field, limit, headroom = self._set_limit(found)
        watches = wanted.is_json or bool(tools)
        early = bool(play.early_stop) and watches and not call.unread and not is_kept(body)
        is_whole = not (call.stream or call.unread or body.get("stream")) and body.get("background") is not True
        n = body.get("n")
        choices = n if isinstance(n, int) and n > 0 else 1
        call = call.with_fields(self._fields, self._changes, self._optional)
        if early:
            call = streamed(call.replaced(streams_for="BoundedOutput")).replaced(streams_for=None, collector=None)
        if not (self._fields or watches):
            return self._call, None
        record = BoundedOutputSection(
            bound_tokens=found.tokens if found is not None else None,
            unbounded=tuple(map(str, found.unbounded)) if found is not None else (),
            ceiling_field=ceiling_field,
            ceiling_tokens=limit if ceiling_field is not None else None,
            headroom_tokens=headroom,
            dropped_keywords=wire.dropped if wire is not None else (),
        )
        plan = OutputPlan(
            endpoint=endpoint,
            model=call.model,
            body=call.body,
            play=play,
            record=record,
            is_json=wanted.is_json,
            schema=wanted.schema,
            tools=tools,
            choices=choices,
            content_is_all=not may_call_tools(body),
            one_tool_call=tool is not None,
            early_stop=early,
            reasks=play.reasks if is_whole and choices == 1 else 0,
            limit=limit,
            ceiling_field=ceiling_field,
        )
        return call, plan

    # The schema

    def _write_schema(self, schema: Mapping[str, Any], *, strict: bool) -> WireSchema:
        """Put the schema as the provider takes it into the body."""
        wire = wire_schema(schema, self._structured, strict=strict)
        self._changes += [f"BoundedOutput: {change}" for change in wire.changes]
        if wire.schema is not schema:
            self._fields.update(with_schema(self._call.body, self._call.endpoint, wire.schema))
        return wire

    def _bound(self, wanted: Wanted, tools: Mapping[str, Tool], only: str | None) -> Bound | None:
        """Return how long the answer can be; None if it has no form."""
        schema: Any = wanted.schema
        name, strict = wanted.name, wanted.strict
        if only is not None and only in tools:
            name, (schema, strict) = only, tools[only]
        elif tools or not wanted.is_json:
            return None  # a model that may call tools may call them as often as it likes
        elif schema is None:
            schema, strict = True, False  # JSON of any kind
        known = self._structured.strict if self._structured is not None else None
        return schema_bound(
            schema,
            closed=strict and (known is None or known.value is not False),
            name=name,
            unbounded=self._play.unbounded,
        )

    # The limit

    def _set_limit(self, found: Bound | None) -> tuple[str | None, int | None, int]:
        """Return the field in which a limit goes out, the limit that holds, and how much of it is for reasoning."""
        call = self._call
        own = limit_in(call.body, call.endpoint)
        needed = found.tokens if found is not None else None
        wanted = self._play.max_output_tokens
        tokens = needed if wanted is None else wanted if needed is None else min(needed, wanted)
        if own is not None or tokens is None:
            return None, own, 0
        headroom = self._play.reasoning_tokens
        if headroom is None:
            headroom = _reasoning_room(self._facts, call.model, effort_in(call.body))
        ceiling = max(_LEAST_CEILING, tokens + _FRAME_TOKENS)
        most = most_tokens(self._facts, call.model)
        if (wanted is None and ceiling > _MAX_CEILING) or (most is not None and ceiling + headroom > most):
            return None, None, 0  # it would bound nothing
        (name, *_) = ceiling_fields(call.endpoint, self._facts, call.model)
        if name in call.refused:
            return None, None, 0
        self._fields[name] = ceiling + headroom
        self._optional.append(name)
        self._changes.append(f"BoundedOutput set {name} to {ceiling + headroom}")
        return name, ceiling + headroom, headroom


def _reasoning_room(facts: ProviderFacts | None, model: str | None, effort: str | None) -> int:
    """Return the tokens that a limit of the output has to leave beside the visible answer.

    None if facts say that the model does not reason, that it takes an effort of "none", or that limits do not count
    reasoning.
    """
    if facts is not None and facts.reasoning.counted is not None and facts.reasoning.counted.value is False:
        return 0
    is_off = reasons(facts, model) is False or (effort == "none" and "none" in (efforts_of(facts, model) or ()))
    return 0 if is_off else _REASONING_TOKENS
