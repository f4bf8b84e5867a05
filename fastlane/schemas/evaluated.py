"""Which properties an object can have by the keywords of a JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .drafts import Dialect

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")


class Evaluated(NamedTuple):
    """The properties of an object."""

    properties: Mapping[str, list[Any]]
    """By name, the schemas of which each allows its values at most."""
    patterns: list[tuple[str, Any]]
    others: Any
    """The schema of all other properties: False where there are none."""


def evaluated(schema: Mapping[Any, Any], dialect: Dialect, target: Callable[[Any], Any], *, closed: bool) -> Evaluated:
    """Return the properties that a schema allows; `closed` ones name all that they allow, unless they say otherwise."""
    named = _named(schema.get("properties"))
    patterns = [(str(name), one) for name, one in _named(schema.get("patternProperties")).items()]
    own = {name: [one] for name, one in named.items()}
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping | bool):
        return Evaluated(own, patterns, others)
    rest = dialect.get(schema, "unevaluatedProperties")
    if isinstance(rest, Mapping | bool) and (found := _in_place(schema, dialect, target)) is not None:
        return Evaluated(found, patterns, rest)
    return Evaluated(own, patterns, not (closed and schema.get("type") == "object"))


def _in_place(schema: Mapping[Any, Any], dialect: Dialect, target: Callable[[Any], Any]) -> dict[str, list[Any]] | None:
    """What the keywords beside `unevaluatedProperties` name; None where they let any property pass as evaluated."""
    found: dict[str, list[Any]] = {}
    seen: set[int] = set()
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        if one is not schema:
            opened = (one.get(name) for name in ("additionalProperties", "unevaluatedProperties"))
            if any(name not in (None, False) for name in opened) or one.get("patternProperties"):
                return None
        if any(dialect.get(one, name) is not None for name in ("$dynamicRef", "$recursiveRef")):
            return None
        for name, inner in _named(one.get("properties")).items():
            found.setdefault(name, []).append(inner)
        for name in _LISTS:
            inner = one.get(name)
            waiting += inner if isinstance(inner, list | tuple) else ()
        waiting += [one[name] for name in _SINGLE if name in one]
        for name in _MAPS:
            waiting += _named(one.get(name)).values()
        if "$ref" in one:
            referred = target(one["$ref"])
            if referred is None:
                return None
            waiting.append(referred)
    return found


def _named(value: Any) -> dict[str, Any]:
    return {str(name): one for name, one in value.items()} if isinstance(value, Mapping) else {}
