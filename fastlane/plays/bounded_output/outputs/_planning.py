"""Plan one call's output: what it is bound to, what goes out of that, and how the answer is watched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastlane.engine.call import Call
from fastlane.errors import CallRefusedError
from fastlane.knowledge.tokens import counter
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES
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
    verbosity_in,
    wanted_of,
    with_effort,
    with_schema,
    with_verbosity,
)
from fastlane.providers.output_facts import ceiling_fields, efforts_of, limit_in, most_tokens, verbosities_of
from fastlane.schemas.bound import Bound, bound
from fastlane.schemas.dialect import Wire, closed_schema, over_limits, wire_schema

from ..section import BoundedOutputSection
from ._plan import OutputPlan
from ._play_state import Memory, Settings

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts
    from fastlane.schemas.compact import Compacted

# OpenAI's Responses API takes no limit below this (https://platform.openai.com/docs/api-reference/responses/create).
_LEAST_CEILING = 16
# As many as OpenAI's API takes (https://platform.openai.com/docs/api-reference/chat/create).
_MOST_STOPS = 4
_LEFT = re.compile(r"\bleft (as it is|open|optional)\b")
# What frames an answer beside its text: the tokens that end it, or that call a tool.
_FRAME_TOKENS = 8
# Beyond this a ceiling stops nothing that one would wait for, and is more than many models take.
_MOST_CEILING = 16_384


def planned(call: Call, settings: Settings, memory: Memory) -> Call:
    """Return the call with its output bounded, or as it is where there is nothing to do.

    Raises CallRefusedError where the settings say so: for a schema without a bound, or beyond the provider's limits.
    """
    return _Planning(call, settings, memory).call()


class _Planning:
    def __init__(self, call: Call, settings: Settings, memory: Memory) -> None:
        self._call = call
        self._settings = settings
        self._memory = memory
        self._facts: ProviderFacts | None = call.facts
        self._fields: dict[str, Any] = {}
        self._changes: list[str] = []
        self._notes: list[str] = []
        self._optional: list[str] = []
        self._compacted: Compacted | None = None
        self._wire: Wire | None = None

    def call(self) -> Call:
        call, settings = self._call, self._settings
        body, endpoint = call.body, call.endpoint
        wanted = wanted_of(body, endpoint)
        if wanted is FREE_TEXT and settings.schema is not None and not says_form(body, endpoint):
            wanted = Wanted(is_json=True, name=settings.name, schema=settings.schema, strict=True)
            self._ask_for(wanted)
        tools = tools_of(body, endpoint) if may_call_tools(body) else {}
        is_whole = not (call.stream or call.unread or body.get("stream")) and body.get("background") is not True
        if wanted.schema is not None:
            self._write_schema(wanted.schema, wanted, is_whole=is_whole)
        tool = only_tool(body, endpoint)
        found = self._bound(wanted, tools, tool)
        self._say_effort()
        ceiling, limit, headroom = self._ceiling(found)
        if not wanted.is_json and tool is None:
            self._stop_sequences()
        watches = wanted.is_json or bool(tools) or bool(settings.stop) or settings.stop_when is not None
        early = settings.early_stop and watches and not call.unread
        if early and is_kept(body):
            early = False
            self._notes.append("the provider is to keep the answer: its stream is not closed")
        collects = early and is_whole and not self._was_refused("stream")
        if collects:
            self._stream_underneath()
        if not (self._fields or watches or self._notes):
            return call
        record = BoundedOutputSection(
            bound_characters=found.characters if found is not None else None,
            bound_tokens=found.tokens if found is not None else None,
            likely_tokens=found.likely_tokens if found is not None else None,
            unbounded=tuple(map(str, found.unbounded)) if found is not None else (),
            ceiling_field=ceiling,
            ceiling_tokens=limit if ceiling is not None else None,
            headroom_tokens=headroom if ceiling is not None else 0,
            dropped_keywords=self._wire.dropped if self._wire is not None else (),
            notes=tuple(self._notes),
            effort=effort_in({**body, **self._fields}),
        )
        changed = self._fields
        new_body = {**body, **changed} if changed else body
        plan = OutputPlan(
            endpoint=endpoint,
            origin=call.origin,
            model=call.model,
            body=new_body,
            record=record,
            is_json=wanted.is_json,
            schema=wanted.schema,
            watched_schema=self._compacted.schema if self._compacted is not None else wanted.schema,
            tools=tools,
            choices=_choices(body),
            content_is_all=not may_call_tools(body),
            one_tool_call=tool is not None,
            collects=collects,
            early_stop=early,
            at_once=settings.at_once,
            stop=settings.stop,
            stop_when=settings.stop_when,
            validates=settings.validate,
            repairs=settings.repairs if is_whole else 0,
            repair_temperature=settings.repair_temperature,
            repair_tokens=settings.repair_tokens,
            compacted=self._compacted,
            limit=limit,
            ceiling_fields=(ceiling,) if ceiling is not None else (),
            optional=tuple(self._optional),
        )
        return call.replaced(
            body=new_body,
            changes=(*call.changes, *self._changes),
            optional=(*call.optional, *self._optional),
        ).with_data(plan)

    # The schema

    def _ask_for(self, wanted: Wanted) -> None:
        formats = self._facts.structured.formats if self._facts is not None else None
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

    def _write_schema(self, schema: Mapping[str, Any], wanted: Wanted, *, is_whole: bool) -> None:
        """Put the schema as the provider takes it into the body."""
        structured = self._facts.structured if self._facts is not None else None
        wire = self._wire = wire_schema(schema, structured, strict=wanted.strict)
        for sentence in wire.changed:
            # What could not be made as strict mode takes it has not changed.
            (self._notes if _LEFT.search(sentence) else self._changes).append(f"BoundedOutput: {sentence}")
        sent: Mapping[str, Any] = wire.schema
        beyond = over_limits(sent, structured) if wanted.strict else None
        if beyond is not None:
            if self._settings.limits == "error":
                raise CallRefusedError(
                    f"the provider refuses this schema: {beyond}. Make it smaller, or send it all the same with "
                    'BoundedOutput(limits="note")'
                )
            self._notes.append(beyond)
        if self._settings.compact:
            if is_whole:
                from fastlane.schemas.compact import compact

                self._compacted = compact(sent, counter(self._call.model, origin=self._call.origin, wait=False))
                if self._compacted is not None:
                    sent = self._compacted.schema
                    self._changes.append("BoundedOutput wrote the schema with short names")
            else:
                self._notes.append("short names are for answers that the application does not stream")
        if sent is not schema:
            at = {**self._call.body, **self._fields}
            self._fields.update(with_schema(at, self._call.endpoint, sent, name=wanted.name or "answer"))

    def _bound(self, wanted: Wanted, tools: Mapping[str, Tool], only: str | None) -> Bound | None:
        """How long the answer can be; None where it has no form."""
        unbounded = self._settings.unbounded
        schema: Any = None
        name = wanted.name
        if only is not None and only in tools:
            schema, name = tools[only].schema, only
            strict = tools[only].strict
        elif wanted.schema is not None and not tools:
            schema, strict = wanted.schema, wanted.strict
        else:
            if tools:
                self._notes.append(
                    "the model may call tools as often as it likes: no bound; one that tool_choice names would have "
                    "one, with parallel_tool_calls=False"
                )
            if tools or not wanted.is_json:
                return None
            schema, strict = True, False  # JSON of any kind
        structured = self._facts.structured if self._facts is not None else None
        is_kept_to = structured is None or structured.strict is None or structured.strict.value is not False
        if strict and is_kept_to and isinstance(schema, Mapping):
            # What is dropped on the wire is still enforced here, and bounds what is valid.
            schema = closed_schema(schema)
        found = bound(
            schema,
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
        """The field in which a limit goes out and the limit that holds, and how much of it is there for reasoning."""
        call, settings = self._call, self._settings
        own = limit_in(call.body, call.endpoint)
        needed = found.tokens if found is not None else None
        wanted = settings.max_output_tokens
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
        effort = effort_in({**call.body, **self._fields})
        headroom = settings.reasoning_tokens
        if headroom is None:
            headroom = self._memory.reasoning.headroom(call.origin, call.model, effort, self._facts)
        ceiling = max(_LEAST_CEILING, tokens + _FRAME_TOKENS)
        most = most_tokens(self._facts, call.model)
        if (wanted is None and ceiling > _MOST_CEILING) or (most is not None and ceiling + headroom > most):
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

    def _say_effort(self) -> None:
        call, settings = self._call, self._settings
        effort, verbosity = settings.effort, settings.verbosity
        at = {**call.body, **self._fields}
        if effort is not None and effort_in(call.body) is None and call.endpoint != COMPLETIONS:
            if effort in (efforts_of(self._facts, call.model) or ()):
                self._fields.update(with_effort(at, call.endpoint, effort))
                self._changes.append(f"BoundedOutput asked for the effort {effort}")
            else:
                self._notes.append(f"this model is not known to take the effort {effort}")
        at = {**call.body, **self._fields}
        if verbosity is not None and verbosity_in(call.body) is None and call.endpoint != COMPLETIONS:
            if verbosity in (verbosities_of(self._facts, call.model) or ()):
                self._fields.update(with_verbosity(at, call.endpoint, verbosity))
                self._changes.append(f"BoundedOutput asked for the verbosity {verbosity}")
            else:
                self._notes.append(f"this model is not known to take the verbosity {verbosity}")

    def _stop_sequences(self) -> None:
        """Let the provider stop at them, where it takes them; they are looked for here all the same."""
        call, stop = self._call, self._settings.stop
        if not stop or call.endpoint == RESPONSES or call.body.get("stop") is not None:
            return
        known = self._facts.parameters.get("stop") if self._facts is not None else None
        if (known is not None and known.value in (False, "ignored")) or self._was_refused("stop"):
            return
        self._fields["stop"] = list(stop[:_MOST_STOPS])
        if len(stop) > _MOST_STOPS and not self._settings.early_stop:
            self._notes.append(f"only the first {_MOST_STOPS} stop texts are sent, and early_stop=False looks for none")
        self._optional.append("stop")
        self._changes.append("BoundedOutput sent its stop sequences")

    def _stream_underneath(self) -> None:
        """Have the answer streamed to us, with the count of its tokens."""
        self._fields["stream"] = True
        self._optional.append("stream")
        self._changes.append("BoundedOutput had the answer streamed underneath")
        if self._call.endpoint == RESPONSES:
            return
        known = self._facts.parameters.get("stream_options.include_usage") if self._facts is not None else None
        if known is not None and known.value is False:
            return
        if "stream_options" not in self._call.body and not self._was_refused("stream_options"):
            self._fields["stream_options"] = {"include_usage": True}
            self._optional.append("stream_options")


def _choices(body: Mapping[str, Any]) -> int:
    n = body.get("n")
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 1
