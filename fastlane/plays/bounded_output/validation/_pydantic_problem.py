"""Turn pydantic's account of what is wrong with an answer into one that holds none of its text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from ._problems import Problem, advice_of, shown, shown_path, whole
from ._schema_rules import missing_rule, rule_of, type_rule

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

# The words are those that a schema's validator has; what stands in braces is a number of the model's own.
_TYPES: Mapping[str, str] = {
    "string": "string_type",
    "integer": "int_type int_parsing int_from_float",
    "number": "float_type float_parsing",
    "boolean": "bool_type bool_parsing",
    "array": "list_type tuple_type set_type frozen_set_type",
    "object": "dict_type model_type model_attributes_type dataclass_type mapping_type",
    "null": "none_required",
}
_RULES: Mapping[str, str] = {
    **{kind: type_rule(name) for name, kinds in _TYPES.items() for kind in kinds.split()},
    "extra_forbidden": rule_of("additionalProperties", None, None),
    "literal_error": "not one of the allowed values",
    "enum": "not one of the allowed values",
    "string_pattern_mismatch": "does not match its pattern",
    "string_too_long": "longer than {max_length} characters",
    "string_too_short": "shorter than {min_length} characters",
    "too_long": "more than {max_length} items",
    "too_short": "fewer than {min_length} items",
    "less_than": "not below {lt}",
    "less_than_equal": "above the maximum of {le}",
    "greater_than": "not above {gt}",
    "greater_than_equal": "below the minimum of {ge}",
    "multiple_of": "not a multiple of {multiple_of}",
    "union_tag_invalid": "matches none of the allowed forms",
    "union_tag_not_found": "does not say of which of the allowed forms it is",
    "value_error": "refused by a validator",
    "assertion_error": "refused by a validator",
}
_OF_THE_WHOLE = frozenset(("extra_forbidden", "missing"))
_PLACE = re.compile(r"at (line \d+ column \d+)$")


def problem_of_pydantic(error: ValidationError, known: frozenset[str]) -> Problem:
    """Return the problem; of names in its path those that are `known` are shown."""
    details = error.errors(include_url=False)
    if not details:
        return whole("refused by the model class", "The answer was refused by the class that reads it.", error)
    first = details[0]
    if first["type"] == "json_invalid":
        return _not_json(first, error)
    lines = (_line(each) for each in details[:100])
    place, rule = first["loc"], _rule(first)
    if first["type"] in _OF_THE_WHOLE:
        # What is wrong is the object, as a schema's validator has it, and not its property.
        place = place[:-1]
    if first["type"] == "missing":
        lacking = [each["loc"] for each in details if each["type"] == "missing" and each["loc"][:-1] == place]
        rule = missing_rule([loc[-1] for loc in lacking if loc[-1] in known])
    return Problem(shown_path(place, known), rule, advice_of(lines, more=max(0, len(details) - 100)), error)


def _not_json(detail: ErrorDetails, error: ValidationError) -> Problem:
    from ._json_text import read_json

    text = detail.get("input")
    if isinstance(text, bytes | bytearray):
        text = text.decode("utf-8", "replace")
    problem = read_json(text)[1] if isinstance(text, str) else None
    if problem is not None:
        return Problem(problem.path, problem.rule, problem.advice, error)
    # Python's decoder takes it: an escaped half of a surrogate pair, which pydantic's does not.
    place = _PLACE.search(detail["msg"])
    return whole(f"not JSON{f', at {place[1]}' if place else ''}", f"The answer is not JSON: {detail['msg']}.", error)


def _rule(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind not in _pydantics_own():
        return "refused by a validator"  # an application's own word, which may be made of the answer
    rule = _RULES.get(kind)
    if rule is None:
        return f"not valid: {kind}"
    numbers = {
        name: value for name, value in detail.get("ctx", {}).items() if isinstance(value, int | float)
    }  # fmt: skip
    try:
        return rule.format(**numbers)
    except (KeyError, ValueError):
        return f"not valid: {kind}"


@lru_cache(maxsize=1)
def _pydantics_own() -> frozenset[str]:
    from pydantic_core.core_schema import ErrorType

    return frozenset(get_args(ErrorType))


def _line(detail: ErrorDetails) -> str:
    value: Any = detail.get("input")
    got = "" if detail["type"] == "missing" else f". Got {shown(value)}."
    return f"{shown_path(detail['loc'])}: {detail['msg']:.300}{got}"
