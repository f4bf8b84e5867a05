"""Facts about a model's output: the field that limits it, the largest limit, and its reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

from .facts import Fact, ProviderFacts

T = TypeVar("T")

_CHAT_FIELDS = ("max_completion_tokens", "max_tokens")
_FIELDS = {"/responses": ("max_output_tokens",), "/completions": ("max_tokens",)}


def ceiling_fields(endpoint: str, facts: ProviderFacts | None, model: str | None) -> tuple[str, ...]:
    """Return the fields of a request's body that limit its output, at an endpoint such as "/responses".

    For chat that is `max_completion_tokens` where facts say that it is accepted. Without facts it is `max_tokens`:
    every server knows it, while several ignore the newer field. Models that reason refuse it, and get the newer one.
    Never both: some providers refuse the pair.
    """
    if endpoint in _FIELDS:
        return _FIELDS[endpoint]
    for field in _CHAT_FIELDS:
        if _is_taken(field, facts):
            return (field,)
    return ("max_completion_tokens",) if reasons(facts, model) else ("max_tokens",)


def limit_fields(endpoint: str) -> tuple[str, ...]:
    """Return all fields that may limit the output at an endpoint, the newest first."""
    return _FIELDS.get(endpoint, _CHAT_FIELDS)


def limit_in(body: Mapping[str, Any], endpoint: str) -> int | None:
    """Return the limit of the output in a request's body, in tokens: the lower of two; None without one."""
    given = (body.get(field) for field in limit_fields(endpoint))
    return min((one for one in given if isinstance(one, int) and not isinstance(one, bool) and one > 0), default=None)


def most_tokens(facts: ProviderFacts | None, model: str | None) -> int | None:
    """Return the largest limit that a model accepts, in tokens; None if that is not known."""
    return None if facts is None else for_model(facts.output.most_tokens, model)


def reasons(facts: ProviderFacts | None, model: str | None) -> bool | None:
    """Return whether a model reasons, by its name; None if that is not known."""
    if facts is None or model is None:
        return None
    does = len(_matching(model, _patterns(facts.reasoning.models)) or "")
    never = len(_matching(model, _patterns(facts.reasoning.never)) or "")
    return None if does == never else does > never


def efforts_of(facts: ProviderFacts | None, model: str | None) -> tuple[str, ...] | None:
    """Return the values of `reasoning_effort` for a model; None if they are not known."""
    if facts is None:
        return None
    own = for_model(facts.reasoning.efforts, model)
    return own if own is not None else (() if reasons(facts, model) is False else None)


def verbosities_of(facts: ProviderFacts | None, model: str | None) -> tuple[str, ...] | None:
    """Return the values of `verbosity` for a model; None if they are not known."""
    return None if facts is None else for_model(facts.reasoning.verbosities, model)


def for_model(table: Mapping[str, Fact[T]], model: str | None) -> T | None:
    """Return the value of the longest pattern (`*` for any text) that matches a model's name, or None."""
    if model is None:
        return None
    longest = _matching(model, tuple(table))
    return None if longest is None else table[longest].value


def _is_taken(field: str, facts: ProviderFacts | None) -> bool:
    known = facts.parameters.get(field) if facts is not None else None
    return known is not None and known.value is not None and known.value not in (False, "ignored")


def _patterns(fact: Fact[tuple[str, ...]] | None) -> tuple[str, ...]:
    return (fact.value or ()) if fact is not None else ()


@lru_cache(maxsize=1_024)
def _matching(model: str, patterns: tuple[str, ...]) -> str | None:
    """Return the longest pattern that matches a name."""
    return max((pattern for pattern in patterns if fnmatchcase(model, pattern)), key=len, default=None)
