"""Make one JSON schema of two that hold together, where that can be said in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .positions import ANNOTATIONS

_LARGER = frozenset(("exclusiveMinimum", "minItems", "minLength", "minProperties", "minimum"))
_SMALLER = frozenset(("exclusiveMaximum", "maxItems", "maxLength", "maxProperties", "maximum"))
# Each means something by what stands beside it: one schema's would change what the other's say.
_TOGETHER = (
    ("items", "prefixItems", "additionalItems"),
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
)
_BY_ALL = ("unevaluatedItems", "unevaluatedProperties")


def joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema of what is valid for both; None where no plain one says so. Its descriptions are the first's."""
    if _closes_on(first, second) or _closes_on(second, first) or not {*_BY_ALL}.isdisjoint(second):
        return None
    for group in _TOGETHER:
        one, other = ({key: schema[key] for key in group if key in schema} for schema in (first, second))
        if one and other and one != other:
            return None
    both = dict(first)
    for key, value in second.items():
        if key not in both:
            both[key] = value
        elif key not in ANNOTATIONS and both[key] != value:
            one = _of_both(key, both[key], value)
            if one is None:
                return None
            both[key] = one
    return both


def _of_both(key: str, first: Any, second: Any) -> Any:
    if key == "properties" or key in ("$defs", "definitions"):
        # What both say of one property would have to hold together again.
        return {**first, **second} if all(first[name] == second[name] for name in first if name in second) else None
    if key == "required":
        return [*first, *(name for name in second if name not in first)]
    if key in _LARGER or key in _SMALLER:
        are_numbers = all(isinstance(one, int | float) for one in (first, second))
        return (max if key in _LARGER else min)(first, second) if are_numbers else None
    if key == "enum":
        return [one for one in first if one in second] or None
    if key == "type":
        kinds = [kind for kind in _listed(first) if kind in _listed(second)]
        return (kinds[0] if len(kinds) == 1 else kinds) or None
    return None


def _closes_on(closed: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether one says something of properties that it does not name, and the other names such."""
    if closed.get("additionalProperties", True) in (True, {}) and "patternProperties" not in closed:
        return False
    if "patternProperties" in other and other["patternProperties"] != closed.get("patternProperties"):
        return True
    return bool(set(other.get("properties", ())) - set(closed.get("properties", ())))


def _listed(kind: Any) -> list[Any]:
    return list(kind) if isinstance(kind, list) else [kind]
