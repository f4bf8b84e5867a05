"""04 Stop sooner: answers that cannot grow beyond their schema, and that end when they are complete."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import Field

from fastlane.engine.call import Call
from fastlane.engine.collector import streamed
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import Session
from fastlane.engine.settings import Texts, settings
from fastlane.errors import CallRefusedError, ConfigurationError
from fastlane.protocol.endpoints import CHAT, GENERATING, RESPONSES
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
from fastlane.schemas.given import check_schema, given_schema

from .plan import OutputPlan
from .reasoning import ReasoningTokens
from .section import BoundedOutputSection

_WHERE = "BoundedOutput(schema=...)"
# OpenAI's Responses API takes no limit below this (https://platform.openai.com/docs/api-reference/responses/create).
_LEAST_CEILING = 16
# As many as OpenAI's API takes (https://platform.openai.com/docs/api-reference/chat/create).
_MAX_STOPS = 4
# What frames an answer beside its text: the tokens that end it, or that call a tool.
_FRAME_TOKENS = 8
# Beyond this a ceiling stops nothing that one would wait for, and is more than many models take.
_MAX_CEILING = 16_384

_Tokens = Annotated[int, Field(ge=1)]


@settings
class BoundedOutput(Play):
    """Bound an answer by its schema, close its stream when it is complete, check it, and ask again if it is not valid.

    The schema is the one that the call has (`response_format`, `text.format`, the parameters of a tool that it must
    call), or else this play's own. As it stands it sets a limit of tokens that no valid answer can exceed, has answers
    streamed underneath to stop those that run on, and says on `record.output` what it found. Raises
    `fastlane.InvalidOutputError` for an answer that is not valid, and asks again where `reasks` allows that.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    section: ClassVar[type[BoundedOutputSection]] = BoundedOutputSection
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True

    schema: Any = None
    """A type that pydantic has a schema for, a JSON schema, or a whole response format, for calls that ask for none
    themselves: of an object, as strict modes take nothing else."""
    unbounded: Annotated[
        Literal["error"] | _Tokens | None,
        Field(description='a whole number of tokens from 1, "error", or None to leave them alone'),
    ] = None
    """What becomes of a schema with fields that may be of any length: "error": `fastlane.CallRefusedError`, and nothing
    is sent; a number: each such field is given so many tokens; None: no limit is set, and the record names the
    fields."""
    max_output_tokens: _Tokens | None = None
    """A limit of tokens for every call that has none of its own, reasoning not counted."""
    reasoning_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that the limit leaves for reasoning; None for what is known of the model: nothing where it does not
    reason, 25,000 until its answers have shown how much it needs."""
    early_stop: bool | Literal["at_once"] = True
    """Whether to close a stream that brings nothing more. True: when something comes behind the complete answer, so
    that the provider's own count is read where the model ends by itself; "at_once": at the last brace."""
    stop: str | Texts = ()
    """Texts at which free text ends; they are no part of it."""
    stop_when: Annotated[
        Callable[[str], bool] | None, Field(description="a function of the text so far, and no coroutine, or None")
    ] = None
    """Called with the text so far after every piece of free text; True ends it there."""
    validate: bool = True
    """Whether an answer has to be valid for its schema."""
    reasks: Annotated[int, Field(ge=0, le=10)] = 0
    """How often to ask again, with what was wrong."""
    json_schema: Mapping[str, Any] | None = field(init=False, repr=False, compare=False, default=None)
    schema_name: str = field(init=False, repr=False, compare=False, default="answer")
    reasoning: ReasoningTokens = field(init=False, repr=False, compare=False, default_factory=ReasoningTokens)

    def __post_init__(self) -> None:
        # With the client and not with its first call, which may be made on an event loop.
        import jsonschema_rs  # noqa: F401

        from . import session  # noqa: F401

        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if not all(self.stop):
            raise ConfigurationError("BoundedOutput(stop=...) takes a text, or a list of texts, none of them empty")
        if inspect.iscoroutinefunction(self.stop_when):
            raise ConfigurationError("BoundedOutput(stop_when=...) takes a function, and no coroutine")
        if self.stop_when is not None and not self.early_stop:
            raise ConfigurationError(
                "BoundedOutput(stop_when=...) closes a stream, and early_stop=False asks for none to be closed: leave "
                "one of them out"
            )
        if self.reasks and not self.validate:
            raise ConfigurationError(
                "BoundedOutput(reasks=...) asks again for what is not valid, and validate=False asks for no such "
                "check: leave one of them out"
            )
        if self.schema is not None:
            schema, name = _read_schema(self.schema)
            object.__setattr__(self, "json_schema", schema)
            object.__setattr__(self, "schema_name", name)
        object.__setattr__(self, "reasoning", ReasoningTokens())

    def __repr__(self) -> str:
        # The fingerprint: a schema's name says as much as its text, and the address of a function nothing.
        shown = []
        for name, given in type(self).__dataclass_fields__.items():
            value = getattr(self, name) if given.init else None
            if not given.init or value == given.default:
                continue
            if name == "schema":
                value = self.schema_name
            elif callable(value):
                value = getattr(value, "__qualname__", type(value).__name__)
            shown.append(f"{name}={value!r}")
        return f"BoundedOutput({', '.join(shown)})"

    @property
    def checks_answers(self) -> bool:
        """Whether it validates answers."""
        return self.validate

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a call."""
        from .session import BoundedOutputSession

        if call.endpoint not in GENERATING:
            return None
        return BoundedOutputSession(call, lambda call: _Planning(call, self).run(), self.reasoning)


def _read_schema(given: Any) -> tuple[Mapping[str, Any], str]:
    """Return the JSON schema of what was given, and its name."""
    found = given_schema(given, _WHERE)
    schema = found.schema
    if isinstance(schema, bool):
        raise ConfigurationError(f"{_WHERE} takes a type that pydantic has a JSON schema for, or one, got {schema}")
    if not found.is_type:
        try:
            orjson.dumps(schema)
        except TypeError as error:
            raise ConfigurationError(f"{_WHERE} takes a JSON schema, which is plain JSON ({error})") from error
        check_schema(schema, _WHERE)
    branches = [schema, *schema.get("anyOf", ())]
    others = [one["type"] for one in branches if isinstance(one, Mapping) and one.get("type", "object") != "object"]
    if others:
        raise ConfigurationError(
            f"{_WHERE} takes the schema of an object, because strict modes take nothing else at the root, got one of "
            f"the type {' or '.join(map(str, others))}: put it into a model as its field, such as "
            "`items: list[Model]`, or ask for it by the call's own response_format"
        )
    title = schema.get("title")
    name = found.name or (title if isinstance(title, str) else "")
    return schema, re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "answer"


class _Planning:
    """Plans the output of one call: its schema, its limit, and how its answer is watched."""

    def __init__(self, call: Call, play: BoundedOutput) -> None:
        self._call = call
        self._play = play
        self._facts = call.facts
        self._structured = call.facts.structured if call.facts is not None else None
        self._fields: dict[str, Any] = {}
        self._changes: list[str] = []
        self._notes: list[str] = []
        self._optional: list[str] = []

    def run(self) -> tuple[Call, OutputPlan | None]:
        """Return the call with its output bounded; as it is and None where there is nothing to do.

        Raises CallRefusedError for a schema without a bound, where the settings say so.
        """
        call, play = self._call, self._play
        body, endpoint = call.body, call.endpoint
        wanted = wanted_of(body, endpoint)
        if wanted is FREE_TEXT and play.json_schema is not None and not says_form(body, endpoint):
            wanted = Wanted(is_json=True, name=play.schema_name, schema=play.json_schema, strict=True)
            self._ask_for_schema(play.json_schema)
        tools = tools_of(body, endpoint) if may_call_tools(body) else {}
        wire = None if wanted.schema is None else self._write_schema(wanted.schema, strict=wanted.strict)
        tool = only_tool(body, endpoint)
        found = self._bound(wanted, tools, tool)
        ceiling_field, limit, headroom = self._set_limit(found)
        if not wanted.is_json and tool is None:
            self._send_stops()
        watches = wanted.is_json or bool(tools) or bool(play.stop) or play.stop_when is not None
        early = bool(play.early_stop) and watches and not call.unread
        if early and is_kept(body):
            early = False
            self._notes.append("the provider is to keep the answer: its stream is not closed")
        is_whole = not (call.stream or call.unread or body.get("stream")) and body.get("background") is not True
        n = body.get("n")
        choices = n if isinstance(n, int) and n > 0 else 1
        if play.reasks and choices > 1:
            self._notes.append("an answer with several choices is not asked for again")
        changes, optional = (*call.changes, *self._changes), (*call.optional, *self._optional)
        call = call.replaced(body={**body, **self._fields}, changes=changes, optional=optional)
        if early:
            call = streamed(call.replaced(streams_for="BoundedOutput")).replaced(streams_for=None, collector=None)
        if not (self._fields or watches or self._notes):
            return self._call, None
        record = BoundedOutputSection(
            bound_characters=found.characters if found is not None else None,
            bound_tokens=found.tokens if found is not None else None,
            likely_tokens=found.likely_tokens if found is not None else None,
            unbounded=tuple(map(str, found.unbounded)) if found is not None else (),
            ceiling_field=ceiling_field,
            ceiling_tokens=limit if ceiling_field is not None else None,
            headroom_tokens=headroom,
            dropped_keywords=wire.dropped if wire is not None else (),
            notes=tuple(self._notes),
            effort=effort_in(call.body),
        )
        plan = OutputPlan(
            endpoint=endpoint,
            origin=call.origin,
            model=call.model,
            body=call.body,
            record=record,
            is_json=wanted.is_json,
            schema=wanted.schema,
            tools=tools,
            choices=choices,
            content_is_all=not may_call_tools(body),
            one_tool_call=tool is not None,
            early_stop=early,
            at_once=play.early_stop == "at_once",
            stop=tuple(play.stop),
            stop_when=play.stop_when,
            validate=play.validate,
            reasks=play.reasks if is_whole and choices == 1 else 0,
            limit=limit,
            ceiling_field=ceiling_field,
        )
        return call, plan

    def _add(self, name: str, value: Any, change: str) -> None:
        """Add a field to the body that may be left out where the provider refuses it."""
        self._fields[name] = value
        self._optional.append(name)
        self._changes.append(f"BoundedOutput {change}")

    def _was_refused(self, field: str) -> bool:
        """Whether the provider has refused a field for this model before: it is not sent again."""
        refused = field in self._call.refused
        if refused:
            self._notes.append(f"the provider has refused {field} for this model before")
        return refused

    def _knows(self, parameter: str) -> Any:
        """Return what facts say of a parameter of the API; None where they say nothing."""
        known = self._facts.parameters.get(parameter) if self._facts is not None else None
        return None if known is None else known.value

    # The schema

    def _ask_for_schema(self, schema: Mapping[str, Any]) -> None:
        formats = self._structured.formats if self._structured is not None else None
        if formats is not None and "json_schema" not in (formats.value or ()):
            self._notes.append("the provider takes no schema: the answer is checked here alone")
            return
        name = "response_format" if self._call.endpoint == CHAT else "text"
        if not self._was_refused(name):
            self._add(name, self._with_schema(schema)[name], f"asked for the schema {self._play.schema_name}")

    def _with_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the body that ask for a schema."""
        return with_schema(
            {**self._call.body, **self._fields}, self._call.endpoint, schema, name=self._play.schema_name
        )

    def _write_schema(self, schema: Mapping[str, Any], *, strict: bool) -> WireSchema:
        """Put the schema as the provider takes it into the body."""
        wire = wire_schema(schema, self._structured, strict=strict)
        self._changes += [f"BoundedOutput: {change}" for change in wire.changes]
        self._notes += wire.notes
        if wire.schema is not schema:
            self._fields.update(self._with_schema(wire.schema))
        return wire

    def _bound(self, wanted: Wanted, tools: Mapping[str, Tool], only: str | None) -> Bound | None:
        """Return how long the answer can be; None where it has no form."""
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

    def _set_limit(self, found: Bound | None) -> tuple[str | None, int | None, int]:
        """Return the field in which a limit goes out, the limit that holds, and how much of it is for reasoning."""
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
        self._add(name, ceiling + headroom, f"set {name} to {ceiling + headroom}")
        return name, ceiling + headroom, headroom

    # What else goes out

    def _send_stops(self) -> None:
        """Let the provider stop at stop texts, where it takes them; they are looked for here all the same."""
        call, stop = self._call, self._play.stop
        if not stop or call.endpoint == RESPONSES or call.body.get("stop") is not None:
            return
        if self._knows("stop") in (False, "ignored") or self._was_refused("stop"):
            return
        if len(stop) > _MAX_STOPS and not self._play.early_stop:
            self._notes.append(f"only the first {_MAX_STOPS} stop texts are sent, and early_stop=False looks for none")
        self._add("stop", list(stop[:_MAX_STOPS]), "sent its stop sequences")
