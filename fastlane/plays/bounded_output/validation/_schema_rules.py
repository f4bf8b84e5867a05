"""Say in fixed words which keyword of a JSON schema an answer broke, and what the schema asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._problems import shown, written

_LISTED = 12
# A schema may name them in any order.
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def rule_of(keyword: str | None, asked: Any, instance: Any) -> str:
    """Return what was broken, in words and numbers of the schema's own."""
    if keyword is None:
        return "not allowed here"
    rule = _RULES.get(keyword)
    if rule is None:
        return f"not valid by {keyword!r} of the schema"
    return rule(asked, instance) if callable(rule) else rule


def expected(keyword: str | None, asked: Any, instance: Any, extras: list[str]) -> str:
    """Return what the schema asks for and what came, for the model: it may quote the answer."""
    if keyword in {"enum", "const", "pattern", "format"}:
        return f"Expected {_EXPECTED[keyword]} {written(asked)}, got {shown(instance)}."
    if keyword in {"additionalProperties", "unevaluatedProperties"} and extras:
        more = f" and {len(extras) - _LISTED} more" if len(extras) > _LISTED else ""
        return f"Leave out {', '.join(shown(name) for name in extras[:_LISTED])}{more}."
    if keyword in {"required", "dependentRequired"}:
        return ""
    return f"Got {shown(instance)}."


_EXPECTED = {"enum": "one of", "const": "", "pattern": "a match of", "format": "the format"}


def type_rule(asked: Any) -> str:
    """Return that a value is not of the one or the several types that are asked for."""
    kinds = asked if isinstance(asked, list) else [asked]
    return "not of the type " + " or ".join(sorted(map(_type_name, kinds), key=_place))


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else "object"


def _place(kind: str) -> int:
    return _TYPES.index(kind) if kind in _TYPES else len(_TYPES)


def missing_rule(missing: list[Any]) -> str:
    """Return that properties are missing, of these names."""
    if not missing:
        return "a required property is missing"
    more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    names = ", ".join(written(name, 80) for name in missing[:_LISTED])
    return f"{names}{more} {'is' if len(missing) == 1 else 'are'} missing"


def _required(asked: Any, instance: Any) -> str:
    is_known = isinstance(asked, list) and isinstance(instance, Mapping)
    return missing_rule([name for name in asked if name not in instance] if is_known else [])


def _counted(template: str) -> Callable[[Any, Any], str]:
    def say(asked: Any, _: Any) -> str:
        return template.format(written(asked, 60))

    return say


_RULES: Mapping[str, str | Callable[[Any, Any], str]] = {
    "type": lambda asked, _: type_rule(asked),
    "enum": "not one of the allowed values",
    "const": "not one of the allowed values",
    "required": _required,
    "dependentRequired": "a property is missing that another one asks for",
    "additionalProperties": "properties that the schema does not allow",
    "unevaluatedProperties": "properties that the schema does not allow",
    "additionalItems": "items that the schema does not allow",
    "unevaluatedItems": "items that the schema does not allow",
    "items": "items that the schema does not allow",
    "pattern": "does not match its pattern",
    "format": _counted("not of the format {}"),
    "maxLength": _counted("longer than {} characters"),
    "minLength": _counted("shorter than {} characters"),
    "maxItems": _counted("more than {} items"),
    "minItems": _counted("fewer than {} items"),
    "maxProperties": _counted("more than {} properties"),
    "minProperties": _counted("fewer than {} properties"),
    "maximum": _counted("above the maximum of {}"),
    "minimum": _counted("below the minimum of {}"),
    "exclusiveMaximum": _counted("not below {}"),
    "exclusiveMinimum": _counted("not above {}"),
    "multipleOf": _counted("not a multiple of {}"),
    "divisibleBy": _counted("not a multiple of {}"),
    "uniqueItems": "an item stands in it twice",
    "contains": "lacks an item that the schema asks for",
    "minContains": "too few items of a kind that the schema asks for",
    "maxContains": "too many items of a kind that the schema limits",
    "anyOf": "matches none of the allowed forms",
    "oneOf": "matches none of the allowed forms, or more than the one that is allowed",
    "not": "of a form that the schema forbids",
}
