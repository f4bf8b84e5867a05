"""A call's body as another model takes it: its name, its limits, its efforts, and nothing that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import (
    effort_in,
    verbosity_in,
    wanted_of,
    with_effort,
    with_schema,
    with_verbosity,
)
from fastlane.providers.output_facts import limit_fields, limit_in
from fastlane.schemas.dialect import wire_schema

from ._abilities import is_idle
from ._takes import Takes, takes_of

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts

    from .catalog.models import CatalogModel

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
_VERBOSITIES = ("low", "medium", "high")

# Fields without which an answer is of the same kind. Where one of them is refused, the call goes without it.
_TASTES = frozenset({
    "frequency_penalty", "metadata", "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "safety_identifier", "seed", "service_tier", "store", "stream_options", "temperature",
    "top_p", "user",
})  # fmt: skip

# To one that refuses it by name, "parallel_tool_calls" may say what it does anyhow.
_DOUBTFUL = _TASTES | {"parallel_tool_calls"}

# Those that say something to one provider only: what its accounts, caches and grades of service are called. Another may
# refuse what it does not know, and is not told of them unless somebody says that it takes them.
_PRIVATE = frozenset({
    "metadata", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store", "user",
})  # fmt: skip

# What every server of such an API takes, so that it does not matter by which way it came into the body.
_COMMON = frozenset({
    "frequency_penalty", "include", "input", "instructions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_output_tokens", "max_tokens", "messages", "model", "n", "parallel_tool_calls", "presence_penalty", "prompt",
    "reasoning", "reasoning_effort", "response_format", "seed", "stop", "stream", "stream_options", "suffix",
    "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "verbosity",
})  # fmt: skip


class Adapted(NamedTuple):
    """A body for one upstream."""

    body: dict[str, Any]
    """A new one. What lies in it may be the caller's own, and is not to be changed."""
    changes: tuple[str, ...]
    """What was changed, one sentence each, without any value of the caller's."""
    doubtful: tuple[str, ...] = ()
    """Fields of which nobody says that this very model takes them, and without which the answer is of the same kind:
    where it refuses one, the call can go without. Whoever asks for any model cannot know what each of them takes."""


def adapted(
    body: Mapping[str, Any],
    endpoint: str,
    model: CatalogModel,
    facts: ProviderFacts | None,
    *,
    extra: frozenset[str] = frozenset(),
) -> Adapted:
    """Return a body for a model of the catalog; `body` itself is never changed.

    Its name is put in; the limit of the answer goes into the field that it heeds, and is no more than it can answer;
    efforts and verbosities become the nearest that it knows, and are left out where nobody says that it takes any (the
    ability "reasoning" does); fields that it refuses are left out, where the answer is
    of the same kind without them. For a model of another provider than the application's own, so is what only that one
    understands: fields of `extra`, the names that came by `extra_body`, unless the catalog or the facts say that this
    one takes them; names of accounts, caches and grades of service (but never the word that a response is not to be
    kept); the role "developer", whose other name every provider knows; and a strict schema is worded as the provider
    takes it, where it means the same.
    """
    takes = takes_of(model, facts)
    # A response is kept unless its request says so: to leave that out would have it kept. Providers that keep none take
    # the word as well, whatever their facts say of chats.
    fixed = frozenset({"store"}) if endpoint == RESPONSES and body.get("store") is False else frozenset()
    made: dict[str, Any] = {**body, "model": model.model}
    changes: list[str] = []
    if not takes.is_own:
        _leave_private(made, takes, extra, fixed, changes)
        _name_roles(made, endpoint, takes, changes)
        _word_schema(made, endpoint, facts, changes)
    _bound(made, endpoint, takes, changes)
    _think(made, endpoint, takes, changes)
    _leave_refused(made, takes, fixed, changes)
    doubtful = tuple(
        [
            name
            for name in made
            if (name in _DOUBTFUL and name not in takes.by_catalog and name not in fixed)
            or (name == "reasoning_effort" and not takes.has_efforts)
            or (name == "verbosity" and not takes.has_verbosities)
            or (name == "reasoning" and not takes.has_efforts and _is_effort(made[name]))
        ]
    )
    return Adapted(made, tuple(changes), doubtful)


def _leave_private(
    made: dict[str, Any], takes: Takes, extra: frozenset[str], fixed: frozenset[str], changes: list[str]
) -> None:
    left = [
        name
        for name in made
        if (name in _PRIVATE or (name in extra and name not in _COMMON)) and name not in fixed and not takes.knows(name)
    ]
    _leave(made, left, f"which {takes.name} is not known to take", changes)


def _leave_refused(made: dict[str, Any], takes: Takes, fixed: frozenset[str], changes: list[str]) -> None:
    left = []
    for name, value in made.items():
        rule = takes.rules.get(name)
        if rule is None or rule is True or rule == "ignored" or name in fixed:
            continue
        is_taken = rule is not False and (not isinstance(value, bool | int | str) or value in rule)
        if not is_taken and (name in _TASTES or is_idle(name, made)):
            left.append(name)
    for name, path, rule in takes.narrowed:
        if name in made and name not in left and _narrow(made, name, path, rule):
            changes.append(f"left out {name}.{path}, which {takes.name} does not take")
            if not made[name]:
                del made[name]
    _leave(made, left, f"which {takes.name} does not take", changes)


def _narrow(made: dict[str, Any], name: str, path: str, rule: Any) -> bool:
    """Take what is refused out of a field, in a copy."""
    inner = made[name]
    if "." in path or not isinstance(inner, Mapping) or path not in inner:
        return False
    if isinstance(rule, tuple) and inner[path] in rule:
        return False
    made[name] = {key: value for key, value in inner.items() if key != path}
    return True


def _leave(made: dict[str, Any], names: list[str], why: str, changes: list[str]) -> None:
    for name in names:
        del made[name]
    if names:
        changes.append(f"left out {', '.join(names)}, {why}")


def _bound(made: dict[str, Any], endpoint: str, takes: Takes, changes: list[str]) -> None:
    """Bound the answer by the field that is heeded, and by no more than can be answered."""
    fields = [name for name in limit_fields(endpoint) if name in made]
    limit = limit_in(made, endpoint)
    field = takes.limited.get(endpoint)
    if not fields or limit is None or field is None:
        return
    if takes.is_own and fields == [name for name in fields if takes.heeds(name)][:1]:
        field = fields[0]  # as the application wrote it for this provider
    if fields != [field]:
        for name in fields:
            del made[name]
        made[field] = limit
        changes.append(f"bounded the answer by {field}, as {takes.name} takes it")
    if takes.most_tokens is not None and limit > takes.most_tokens:
        made[field] = takes.most_tokens
        changes.append(f"lowered {field} to the most that {takes.name} takes")


def _think(made: dict[str, Any], endpoint: str, takes: Takes, changes: list[str]) -> None:
    """Ask for no other effort and verbosity than there are."""
    effort = effort_in(made)
    if effort is not None and not takes.takes_effort:
        _set(made, "reasoning_effort", {}, None, takes, changes)
    elif effort is not None and takes.efforts is not None and effort not in takes.efforts:
        # To think not at all is no degree of thinking: only who asks for that gets it.
        offered = tuple(one for one in takes.efforts if one != "none") if effort != "none" else takes.efforts
        nearest = _nearest(effort, offered, _EFFORTS)
        _set(made, "reasoning_effort", with_effort(made, endpoint, nearest or ""), nearest, takes, changes)
    verbosity = verbosity_in(made)
    if verbosity is not None and not takes.takes_verbosity:
        _set(made, "verbosity", {}, None, takes, changes)
    elif isinstance(verbosity, str) and takes.verbosities is not None and verbosity not in takes.verbosities:
        nearest = _nearest(verbosity, takes.verbosities, _VERBOSITIES)
        _set(made, "verbosity", with_verbosity(made, endpoint, nearest or ""), nearest, takes, changes)


def _set(
    made: dict[str, Any], name: str, fields: dict[str, Any], nearest: str | None, takes: Takes, changes: list[str]
) -> None:
    if nearest is not None:
        made.update(fields)
        changes.append(f"asked for the {name} that is nearest of those that {takes.name} has")
        return
    # As a field of its own for chat; within another for the Responses API.
    made.pop(name, None)
    for outer, key in (("reasoning", "effort"), ("text", "verbosity")):
        inner = made.get(outer)
        if name.endswith(key) and isinstance(inner, Mapping) and key in inner:
            made[outer] = {one: value for one, value in inner.items() if one != key}
            if not made[outer]:
                del made[outer]
    is_known = takes.takes_effort if name == "reasoning_effort" else takes.takes_verbosity
    changes.append(f"left out {name}, which {takes.name} {'does not take' if is_known else 'is not known to take'}")


def _is_effort(reasoning: Any) -> bool:
    return isinstance(reasoning, Mapping) and set(reasoning) == {"effort"}


def _nearest(asked: str, offered: tuple[str, ...], scale: tuple[str, ...]) -> str | None:
    """Return the step of a scale that is nearest to the one asked for, the higher of two; None where there is none."""
    steps = [one for one in offered if one in scale]
    if asked not in scale or not steps:
        return None
    at = scale.index(asked)
    return min(steps, key=lambda one: (abs(scale.index(one) - at), -scale.index(one)))


def _name_roles(made: dict[str, Any], endpoint: str, takes: Takes, changes: list[str]) -> None:
    field = "messages" if endpoint == CHAT else "input"
    messages = made.get(field)
    roles = takes.rules.get("messages.role")
    if not isinstance(messages, list) or roles is True or (isinstance(roles, tuple) and "developer" in roles):
        return
    named = [
        {**message, "role": "system"}
        if isinstance(message, Mapping) and message.get("role") == "developer"
        else message
        for message in messages
    ]
    if any(new is not old for new, old in zip(named, messages, strict=True)):
        made[field] = named
        changes.append("gave developer messages the role that every provider knows")


def _word_schema(made: dict[str, Any], endpoint: str, facts: ProviderFacts | None, changes: list[str]) -> None:
    wanted = wanted_of(made, endpoint)
    if wanted.schema is None or facts is None:
        return
    wire = wire_schema(wanted.schema, facts.structured, strict=wanted.strict)
    # A schema that would lose something stays whole: the provider says so, or whoever checks the answer sees to it.
    if wire.schema is not wanted.schema and not wire.dropped:
        made.update(with_schema(made, endpoint, wire.schema, name=wanted.name or "answer"))
        changes.append("worded the schema as the provider takes it")
