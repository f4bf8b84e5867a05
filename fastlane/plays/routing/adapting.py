"""A call's body as another model takes it: its name, its limits, its efforts, and nothing that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import wanted_of, with_schema
from fastlane.providers.output_facts import limit_fields, limit_in
from fastlane.schemas.dialect import wire_schema

from .demands import is_idle
from .model_rules import ModelRules

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
_VERBOSITIES = ("low", "medium", "high")
# The field of a chat, the outer and the inner field of the Responses API, and the scale.
_GRADES = (("reasoning_effort", "reasoning", "effort", _EFFORTS), ("verbosity", "text", "verbosity", _VERBOSITIES))

# Fields without which an answer is of the same kind. Where one of them is refused, the call goes without it.
TASTES = frozenset({
    "frequency_penalty", "metadata", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "safety_identifier", "seed", "service_tier", "store", "stream_options", "temperature",
    "top_p", "user",
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


class Adapted(NamedTuple):
    """A body for one model."""

    body: dict[str, Any]
    """A new one. What lies in it may be the caller's own, and is not to be changed."""
    changes: tuple[str, ...]
    """What was changed, one sentence each, without any value of the caller's."""
    optional: tuple[str, ...] = ()
    """Fields that this model is not known to take, and without which the answer is of the same kind: where it refuses
    one, the call can go without."""


def adapted(
    body: Mapping[str, Any], endpoint: str, model: str, rules: ModelRules, *, extra: frozenset[str] = frozenset()
) -> Adapted:
    """Return a body for a model, `model` to its provider; `body` itself is never changed.

    The limit of the answer goes into the field that the model heeds, and is no more than it can answer; an effort or a
    verbosity becomes the nearest that it knows, and is left out where it is not known to take any; fields that it
    refuses are left out where the answer is of the same kind without them. For another provider than the client's own,
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
    for (field, outer, inner, scale), known in zip(_GRADES, (rules.efforts, rules.verbosities), strict=True):
        _grade(made, (field, outer, inner), scale, known, rules, changes)
    _leave_out_refused(made, rules, fixed, changes)
    return Adapted(made, tuple(changes), _optional(made, rules, fixed))


def _optional(made: Mapping[str, Any], rules: ModelRules, fixed: frozenset[str]) -> tuple[str, ...]:
    reasoning = made.get("reasoning")
    unknown = set() if rules.knows_efforts else {"reasoning_effort"}
    if not rules.knows_efforts and isinstance(reasoning, Mapping) and set(reasoning) == {"effort"}:
        unknown.add("reasoning")
    if not rules.knows_verbosities:
        unknown.add("verbosity")
    unknown |= (TASTES | {"parallel_tool_calls"}) - rules.from_catalog - fixed
    return tuple([name for name in made if name in unknown])


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
            # An effort and a verbosity have become the nearest.
            is_graded = (name, inner) in (("reasoning", "effort"), ("text", "verbosity"))
            if not is_graded and isinstance(value, Mapping) and inner in value and not _is_among(value[inner], rule):
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


def _grade(
    made: dict[str, Any],
    names: tuple[str, str, str],
    scale: tuple[str, ...],
    known: tuple[str, ...] | None,
    rules: ModelRules,
    changes: list[str],
) -> None:
    """Ask for no other effort or verbosity than the model knows."""
    field, outer, inner = names
    found = made.get(outer)
    nested: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    asked = made.get(field, nested.get(inner))
    if not isinstance(asked, str) or known is None or asked in known:
        return
    # Not to think at all is no degree of thinking: only a call that asks for that gets it.
    steps = [one for one in known if one in scale and (one != "none" or asked == "none")]
    if asked in scale and steps:
        at = scale.index(asked)
        nearest = min(steps, key=lambda one: (abs(scale.index(one) - at), -scale.index(one)))
        if field in made:
            made[field] = nearest
        else:
            made[outer] = {**nested, inner: nearest}
        changes.append(f"asked for the {field} that is nearest of those that {rules.name} has")
        return
    made.pop(field, None)
    if inner in nested:
        made[outer] = {name: value for name, value in nested.items() if name != inner}
        if not made[outer]:
            del made[outer]
    changes.append(f"left out {field}, which {rules.name} is not known to take")


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
        made.update(with_schema(made, endpoint, wire.schema, name=wanted.name or "answer"))
        changes.append("worded the schema as the provider takes it")
