"""Plan one call's output: what it is bound to, what goes out of that, and how the answer is watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastlane.engine.call import Call
from fastlane.errors import CallRefusedError
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import (
    FREE_TEXT,
    Tool,
    Wanted,
    effort_in,
    is_kept,
    may_call_tools,
    only_tool,
    says_form,
    tools_of,
    wanted_of,
    with_schema,
)
from fastlane.providers.output_facts import ceiling_fields, limit_in, most_tokens
from fastlane.schemas.bound import Bound, schema_bound
from fastlane.schemas.dialect import WireSchema, wire_schema
from fastlane.schemas.given import Schema

from .section import BoundedOutputSection

if TYPE_CHECKING:
    from .play import BoundedOutput

# OpenAI's Responses API takes no limit below this (https://platform.openai.com/docs/api-reference/responses/create).
_LEAST_CEILING = 16
# As many as OpenAI's API takes (https://platform.openai.com/docs/api-reference/chat/create).
_MAX_STOPS = 4
# What frames an answer beside its text: the tokens that end it, or that call a tool.
_FRAME_TOKENS = 8
# Beyond this a ceiling stops nothing that one would wait for, and is more than many models take.
_MAX_CEILING = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """How one call's answer is watched, checked and asked for again."""

    play: BoundedOutput
    endpoint: str
    origin: str
    model: str | None
    body: Mapping[str, Any]
    """The body as planned, for estimates."""
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
    reasks: int = 0
    limit: int | None = None
    """Tokens after which the provider cuts the answer off: the caller's own limit, or ours."""
    ceiling_field: str | None = None
    """Where our own limit stands in the body."""


def planned(call: Call, play: BoundedOutput) -> Call:
    """Return the call with its output bounded, or as it is where there is nothing to do.

    Raises CallRefusedError for a schema without a bound, where the settings say so.
    """
    return _Planning(call, play).call()


class _Planning:
    def __init__(self, call: Call, play: BoundedOutput) -> None:
        self._call = call
        self._play = play
        self._facts = call.facts
        self._structured = call.facts.structured if call.facts is not None else None
        self._fields: dict[str, Any] = {}
        self._changes: list[str] = []
        self._notes: list[str] = []
        self._optional: list[str] = []

    def call(self) -> Call:
        call, play = self._call, self._play
        body, endpoint = call.body, call.endpoint
        wanted = wanted_of(body, endpoint)
        if wanted is FREE_TEXT and play.json_schema is not None and not says_form(body, endpoint):
            wanted = Wanted(is_json=True, name=play.schema_name, schema=play.json_schema, strict=True)
            self._ask_for(wanted)
        tools = tools_of(body, endpoint) if may_call_tools(body) else {}
        is_whole = not (call.stream or call.unread or body.get("stream")) and body.get("background") is not True
        wire = None if wanted.schema is None else self._write_schema(wanted.schema, wanted)
        tool = only_tool(body, endpoint)
        found = self._bound(wanted, tools, tool)
        ceiling, limit, headroom = self._ceiling(found)
        if not wanted.is_json and tool is None:
            self._stop_sequences()
        watches = wanted.is_json or bool(tools) or bool(play.stop) or play.stop_when is not None
        early = bool(play.early_stop) and watches and not call.unread
        if early and is_kept(body):
            early = False
            self._notes.append("the provider is to keep the answer: its stream is not closed")
        collects = early and is_whole and not self._was_refused("stream")
        if collects:
            self._stream_underneath()
        if not (self._fields or watches or self._notes):
            return call
        new_body = {**body, **self._fields} if self._fields else body
        record = BoundedOutputSection(
            bound_characters=found.characters if found is not None else None,
            bound_tokens=found.tokens if found is not None else None,
            likely_tokens=found.likely_tokens if found is not None else None,
            unbounded=tuple(map(str, found.unbounded)) if found is not None else (),
            ceiling_field=ceiling,
            ceiling_tokens=limit if ceiling is not None else None,
            headroom_tokens=headroom,
            dropped_keywords=wire.dropped if wire is not None else (),
            notes=tuple(self._notes),
            effort=effort_in(new_body),
        )
        n = body.get("n")
        plan = OutputPlan(
            play=play,
            endpoint=endpoint,
            origin=call.origin,
            model=call.model,
            body=new_body,
            record=record,
            is_json=wanted.is_json,
            schema=wanted.schema,
            tools=tools,
            choices=n if isinstance(n, int) and n > 0 else 1,
            content_is_all=not may_call_tools(body),
            one_tool_call=tool is not None,
            early_stop=early,
            reasks=play.reasks if is_whole else 0,
            limit=limit,
            ceiling_field=ceiling,
        )
        return call.replaced(
            body=new_body,
            changes=(*call.changes, *self._changes),
            optional=(*call.optional, *self._optional),
        ).with_data(plan)

    # The schema

    def _ask_for(self, wanted: Wanted) -> None:
        """Ask for the play's own schema."""
        formats = self._structured.formats if self._structured is not None else None
        if formats is not None and "json_schema" not in (formats.value or ()):
            self._notes.append("the provider takes no schema: the answer is checked here alone")
            return
        assert wanted.schema is not None
        name = "response_format" if self._call.endpoint == CHAT else "text"
        if self._was_refused(name):
            return
        self._fields.update(
            with_schema(self._call.body, self._call.endpoint, wanted.schema, name=wanted.name or "answer")
        )
        self._optional.append(name)
        self._changes.append(f"BoundedOutput asked for the schema {wanted.name}")

    def _write_schema(self, schema: Mapping[str, Any], wanted: Wanted) -> WireSchema:
        """Put the schema as the provider takes it into the body."""
        wire = wire_schema(schema, self._structured, strict=wanted.strict)
        self._changes += [f"BoundedOutput: {change}" for change in wire.changes]
        self._notes += wire.notes
        if wire.schema is not schema:
            at = {**self._call.body, **self._fields}
            self._fields.update(with_schema(at, self._call.endpoint, wire.schema, name=wanted.name or "answer"))
        return wire

    def _bound(self, wanted: Wanted, tools: Mapping[str, Tool], only: str | None) -> Bound | None:
        """How long the answer can be; None where it has no form."""
        schema: Any = wanted.schema
        name, strict = wanted.name, wanted.strict
        if only is not None and only in tools:
            name, (schema, strict) = only, tools[only]
        elif tools:
            self._notes.append(
                "the model may call tools as often as it likes: no bound; one that tool_choice names would have "
                "one, with parallel_tool_calls=False"
            )
            return None
        elif not wanted.is_json:
            return None
        elif schema is None:
            schema, strict = True, False  # JSON of any kind
        known = self._structured.strict if self._structured is not None else None
        unbounded = self._play.unbounded
        found = schema_bound(
            schema,
            closed=strict and (known is None or known.value is not False),
            model=self._call.model,
            origin=self._call.origin,
            name=name,
            unbounded=unbounded if isinstance(unbounded, int) else None,
        )
        if found.unbounded and unbounded == "error" and limit_in(self._call.body, self._call.endpoint) is None:
            shown = "; ".join(map(str, found.unbounded[:5]))
            more = f"; and {len(found.unbounded) - 5} more" if len(found.unbounded) > 5 else ""
            raise CallRefusedError(
                f"the answer's schema has no bound: {shown}{more}. Give these fields one, or allow each so many tokens "
                "by BoundedOutput(unbounded=200), or leave them alone by BoundedOutput(unbounded=None)"
            )
        return found

    # The limit

    def _ceiling(self, found: Bound | None) -> tuple[str | None, int | None, int]:
        """The field in which a limit goes out, the limit that holds, and how much of it is for reasoning."""
        call = self._call
        own = limit_in(call.body, call.endpoint)
        needed = found.tokens if found is not None else None
        wanted = self._play.max_output_tokens
        tokens = needed if wanted is None else wanted if needed is None else min(needed, wanted)
        if wanted is not None and needed is not None and wanted < needed:
            self._notes.append(f"max_output_tokens={wanted:,} is below the {needed:,} that can be needed")
        if own is not None:
            if needed is not None and own < needed:
                self._notes.append(f"the caller's limit of {own:,} tokens is below the {needed:,} that can be needed")
            elif needed is not None and own > max(_LEAST_CEILING, needed + _FRAME_TOKENS):
                self._notes.append(f"the caller's limit of {own:,} tokens holds, where {needed:,} would do")
            return None, own, 0
        if tokens is None:
            return None, None, 0
        headroom = self._play.reasoning_tokens
        if headroom is None:
            effort = effort_in({**call.body, **self._fields})
            headroom = self._play.reasoning.headroom(call.origin, call.model, effort, self._facts)
        ceiling = max(_LEAST_CEILING, tokens + _FRAME_TOKENS)
        most = most_tokens(self._facts, call.model)
        if (wanted is None and ceiling > _MAX_CEILING) or (most is not None and ceiling + headroom > most):
            self._notes.append(f"a limit of {ceiling + headroom:,} tokens would bound nothing and is left out")
            return None, None, 0
        (name, *_) = ceiling_fields(call.endpoint, self._facts, call.model)
        if self._was_refused(name):
            return None, None, 0
        self._fields[name] = ceiling + headroom
        self._optional.append(name)
        self._changes.append(f"BoundedOutput set {name} to {ceiling + headroom}")
        return name, ceiling + headroom, headroom

    def _was_refused(self, field: str) -> bool:
        """Whether the provider has refused a field for this model before: it is not sent again."""
        refused = field in self._call.refused
        if refused:
            self._notes.append(f"the provider has refused {field} for this model before")
        return refused

    # What else goes out

    def _stop_sequences(self) -> None:
        """Let the provider stop at them, where it takes them; they are looked for here all the same."""
        call, stop = self._call, self._play.stop
        if not stop or call.endpoint == RESPONSES or call.body.get("stop") is not None:
            return
        known = self._facts.parameters.get("stop") if self._facts is not None else None
        if (known is not None and known.value in (False, "ignored")) or self._was_refused("stop"):
            return
        self._fields["stop"] = list(stop[:_MAX_STOPS])
        if len(stop) > _MAX_STOPS and not self._play.early_stop:
            self._notes.append(f"only the first {_MAX_STOPS} stop texts are sent, and early_stop=False looks for none")
        self._optional.append("stop")
        self._changes.append("BoundedOutput sent its stop sequences")

    def _stream_underneath(self) -> None:
        """Have the answer streamed to us, with the count of its tokens."""
        self._fields["stream"] = True
        self._optional.append("stream")
        self._changes.append("BoundedOutput had the answer streamed underneath")
        known = self._facts.parameters.get("stream_options.include_usage") if self._facts is not None else None
        if self._call.endpoint == RESPONSES or (known is not None and known.value is False):
            return
        if "stream_options" not in self._call.body and not self._was_refused("stream_options"):
            self._fields["stream_options"] = {"include_usage": True}
            self._optional.append("stream_options")
