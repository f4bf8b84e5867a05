"""Whether a model can do what a call asks, and the call's body as that model takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.knowledge.tokens import Counter
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES
from fastlane.protocol.request_fields import Wanted, wanted_of, with_schema
from fastlane.providers.output_facts import (
    ceiling_fields,
    efforts_of,
    limit_fields,
    limit_in,
    most_tokens,
    reasons,
    verbosities_of,
)
from fastlane.schemas.dialect import wire_schema

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

    from .catalog.models import CatalogModel

# Fields without which an answer is of the same kind. A call is sent without those that are refused.
TASTES = frozenset({
    "frequency_penalty", "metadata", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier",
    "store", "stream_options", "temperature", "top_p", "user", "verbosity",
})  # fmt: skip

# Fields that mean something to one provider only: what its accounts, caches and tiers are called. Another may refuse
# what it does not know, and gets them only where it is known to take them.
PRIVATE = frozenset({
    "metadata", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store", "user",
})  # fmt: skip

# What every server of such an API takes, so that it does not matter how it came into the body.
COMMON = frozenset({
    "frequency_penalty", "include", "input", "instructions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_output_tokens", "max_tokens", "messages", "model", "n", "parallel_tool_calls", "presence_penalty", "prompt",
    "reasoning", "reasoning_effort", "response_format", "seed", "stop", "stream", "stream_options", "suffix",
    "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "verbosity",
})  # fmt: skip

# Kinds of parts, by what a model needs to read them.
_PARTS = {"image_url": "vision", "input_image": "vision", "computer_call_output": "vision", "input_audio": "audio"}
_FILES = frozenset({"file", "input_file"})
# Base64 of a page of a PDF, which is some 1,500 tokens with its picture, takes 50 to 100 kB.
_FILE_CHARACTERS = 50
_counter = Counter(None, None)
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


class ModelRules:
    """Fields have dotted paths, such as "stream_options.include_usage"."""

    __slots__ = ("facts", "from_catalog", "is_own", "limits", "most_tokens", "name", "rules")

    def __init__(self, model: CatalogModel, facts: ProviderFacts | None) -> None:
        self.name = model.name
        self.facts = facts
        self.is_own = model.base_url is None
        """Whether it is at the client's own provider, for which the request was written."""
        known = {} if facts is None else {path: fact.value for path, fact in facts.parameters.items()}
        known.update(model.parameters)
        self.rules: dict[str, Any] = {path: value for path, value in known.items() if value is not None}
        """True: accepted; False: refused; "ignored"; or the values that it may have."""
        self.from_catalog = frozenset(model.parameters)
        """The fields of which the catalog speaks: what facts say of a provider need not be so of each of its models."""
        thinks = "reasoning" in model.capabilities or reasons(facts, model.model) is True
        self._grade(("reasoning_effort", "reasoning.effort"), efforts_of(facts, model.model), thinks=thinks)
        self._grade(("verbosity", "text.verbosity"), verbosities_of(facts, model.model), thinks=thinks)
        self.limits = {endpoint: self._limit_field(endpoint, model, facts) for endpoint in model.endpoints}
        """By endpoint: the field that bounds the length of an answer; None if each is refused."""
        bounds = (model.max_output_tokens, most_tokens(facts, model.model))
        self.most_tokens = min((bound for bound in bounds if bound is not None), default=None)

    def heeds(self, path: str) -> bool:
        """Whether it acts on a field, as far as is known."""
        rule = self.rules.get(path)
        return rule is not False and rule != "ignored"

    def accepts(self, path: str) -> bool:
        """Whether it is known to take a field, whatever it does with it."""
        return self.rules.get(path, False) is not False

    def knows(self, name: str) -> bool:
        """Whether it is known to take a field, or anything in it."""
        inner = f"{name}."
        return self.accepts(name) or any(path.startswith(inner) and self.accepts(path) for path in self.rules)

    def _grade(self, names: Sequence[str], of_model: tuple[str, ...] | None, *, thinks: bool) -> None:
        """Set the rule of both names of an effort or a verbosity: by the catalog, else the facts of the model.

        A model that is not known to think takes none.
        """
        said = [self.rules[name] for name in names if name in self.from_catalog]
        said += [of_model] if of_model is not None else [self.rules[name] for name in names if name in self.rules]
        if said and isinstance(said[0], tuple):
            self.rules.update(dict.fromkeys(names, said[0]))
        elif said[:1] == [False] or not (thinks or any(map(self.accepts, names))):
            self.rules.update(dict.fromkeys(names, False))

    def _limit_field(self, endpoint: str, model: CatalogModel, facts: ProviderFacts | None) -> str | None:
        fields = limit_fields(endpoint)
        named = [field for field in fields if field in self.from_catalog and self.accepts(field)]
        usable = [field for field in (*ceiling_fields(endpoint, facts, model.model), *fields) if self.heeds(field)]
        return next(iter([*named, *usable]), None)


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
    attached_bytes: int
    """Of pictures, sounds and files in the prompt."""
    attached_tokens: float
    """What they come to, estimated."""

    def unmet_by(self, rules: ModelRules, *, is_checked: bool = False) -> str | None:
        """Return why a model cannot answer this call as it is meant; None if it can, as far as is known.

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
    attached_bytes, attached_tokens = 0, 0.0
    for part in _parts(body, endpoint):
        kind = part.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind in _PARTS or kind in _FILES:
            size = _longest_text(part)
            attached_bytes += size
            attached_tokens += size / _FILE_CHARACTERS if kind in _FILES else _counter.message(part)
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
        attached_bytes=attached_bytes,
        attached_tokens=attached_tokens,
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
        for content in (message.get("content"), message.get("output")):
            if content.__class__ is not str and isinstance(content, list | tuple):
                yield from (part for part in content if isinstance(part, Mapping))


def _longest_text(part: Mapping[str, Any]) -> int:
    """Return the characters of the longest text in a part: what is attached, as base64, or its address."""
    values = [one for value in part.values() for one in (value.values() if isinstance(value, Mapping) else (value,))]
    return max((len(one) for one in values if isinstance(one, str)), default=0)


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


class Adapted(NamedTuple):
    """A body for one model."""

    body: dict[str, Any]
    """A new one. What lies in it may be the caller's own, and is not to be changed."""
    changes: tuple[str, ...]
    """What was changed, one sentence each, without any value of the caller's."""
    optional: tuple[str, ...] = ()
    """Fields that this model is not known to take, and without which the answer is of the same kind: where it refuses
    one, the call does not need it."""


def adapted(
    body: Mapping[str, Any], endpoint: str, model: str, rules: ModelRules, *, extra: frozenset[str] = frozenset()
) -> Adapted:
    """Return a body for a model, `model` to its provider; `body` itself is never changed.

    The limit of the answer goes into the field that the model heeds, and is no more than it can answer; fields and
    values that it refuses are left out where the answer is of the same kind without them, and so is an effort or a
    verbosity that it is not known to take. For another provider than the client's own,
    so are fields that mean something to one provider only, and those of `extra` (names that came by `extra_body`)
    unless it is known to take them; the role "developer" becomes "system"; and a strict schema is worded as the
    provider takes it, where it means the same.
    """
    # Responses are kept unless the request says that they are not.
    fixed = frozenset({"store"}) if endpoint == RESPONSES and body.get("store") is False else frozenset()
    made: dict[str, Any] = {**body, "model": model}
    changes: list[str] = []
    if not rules.is_own:
        private = [
            name
            for name in made
            if (name in PRIVATE or (name in extra and name not in COMMON))
            and name not in fixed
            and not rules.knows(name)
        ]
        _leave_out(made, private, f"which {rules.name} is not known to take", changes)
        _rename_roles(made, endpoint, rules, changes)
        _word_schema(made, endpoint, rules, changes)
    _bound(made, endpoint, rules, changes)
    _leave_out_refused(made, rules, fixed, changes)
    return Adapted(made, tuple(changes), _optional(made, rules, fixed))


def _optional(made: Mapping[str, Any], rules: ModelRules, fixed: frozenset[str]) -> tuple[str, ...]:
    optional = TASTES - rules.from_catalog - fixed
    reasoning = made.get("reasoning")
    if isinstance(reasoning, Mapping) and set(reasoning) == {"effort"} and "reasoning.effort" not in rules.from_catalog:
        optional |= {"reasoning"}
    return tuple([name for name in made if name in optional])


def _leave_out(made: dict[str, Any], names: list[str], why: str, changes: list[str]) -> None:
    for name in names:
        del made[name]
    if names:
        changes.append(f"left out {', '.join(names)}, {why}")


def _leave_out_refused(made: dict[str, Any], rules: ModelRules, fixed: frozenset[str], changes: list[str]) -> None:
    refused = []
    for path, rule in rules.rules.items():
        name, _, inner = path.partition(".")
        if name not in made or name in fixed or rule is True or rule == "ignored":
            continue
        value = made[name]
        if inner:
            if isinstance(value, Mapping) and inner in value and not _is_among(value[inner], rule):
                changes.append(f"left out {path}, which {rules.name} does not take")
                made[name] = {key: one for key, one in value.items() if key != inner}
                if not made[name]:
                    del made[name]
        elif not _is_among(value, rule) and (name in TASTES or is_idle(name, made)):
            refused.append(name)
    _leave_out(made, [name for name in made if name in refused], f"which {rules.name} does not take", changes)


def _is_among(value: Any, rule: Any) -> bool:
    return rule is not False and (not isinstance(value, bool | int | str) or value in rule)


def _bound(made: dict[str, Any], endpoint: str, rules: ModelRules, changes: list[str]) -> None:
    """Bound the answer by the field that is heeded, and by no more than can be answered."""
    fields = [name for name in limit_fields(endpoint) if name in made]
    limit, field = limit_in(made, endpoint), rules.limits.get(endpoint)
    if not fields or limit is None or field is None:
        return
    if rules.is_own and fields == [name for name in fields if rules.heeds(name)][:1]:
        field = fields[0]  # as the application wrote it for this provider
    if fields != [field]:
        for name in fields:
            del made[name]
        made[field] = limit
        changes.append(f"bounded the answer by {field}, as {rules.name} takes it")
    if rules.most_tokens is not None and limit > rules.most_tokens:
        made[field] = rules.most_tokens
        changes.append(f"lowered {field} to the most that {rules.name} takes")


def _rename_roles(made: dict[str, Any], endpoint: str, rules: ModelRules, changes: list[str]) -> None:
    field = "messages" if endpoint == CHAT else "input"
    messages, roles = made.get(field), rules.rules.get("messages.role")
    if not isinstance(messages, list) or roles is True or (isinstance(roles, tuple) and "developer" in roles):
        return
    if any(isinstance(message, Mapping) and message.get("role") == "developer" for message in messages):
        made[field] = [
            {**one, "role": "system"} if isinstance(one, Mapping) and one.get("role") == "developer" else one
            for one in messages
        ]
        changes.append("gave developer messages the role that every provider knows")


def _word_schema(made: dict[str, Any], endpoint: str, rules: ModelRules, changes: list[str]) -> None:
    wanted = wanted_of(made, endpoint)
    if wanted.schema is None or rules.facts is None:
        return
    wire = wire_schema(wanted.schema, rules.facts.structured, strict=wanted.strict)
    # A schema that would lose something stays whole: the provider says so, or the play that checks the answer does.
    if wire.schema is not wanted.schema and not wire.dropped:
        made.update(with_schema(made, endpoint, wire.schema))
        changes.append("worded the schema as the provider takes it")
