"""Say what is wrong with a value that is being read, in the words that a validator has for a whole one."""

from __future__ import annotations

from typing import Final

from ..progress._json_numbers import NumberRule, value_of
from ..progress._leaves import ARRAY, FALSE, FRACTION, INTEGER, NULL, OBJECT, STRING, TRUE
from ._schema_rules import rule_of, type_rule

NOT_LISTED: Final = rule_of("enum", None, None)
UNKNOWN_PROPERTY: Final = rule_of("additionalProperties", None, None)

_TYPES: Final = (
    (OBJECT, "object"), (ARRAY, "array"), (STRING, "string"), (FRACTION, "number"), (INTEGER, "integer"),
    (TRUE | FALSE, "boolean"), (NULL, "null"),
)  # fmt: skip


def kind_rule(kinds: int, *, is_listed: bool) -> str:
    """Return the rule that a value of another kind breaks. `is_listed`: whether the schema lists the allowed values."""
    if not kinds:
        return rule_of(None, None, None)
    if is_listed:
        return NOT_LISTED
    return type_rule([name for bits, name in _TYPES if kinds & bits and not (bits == INTEGER and kinds & FRACTION)])


def number_rule_broken(text: str, rules: tuple[NumberRule, ...], kinds: int) -> str:
    """Return the rule that a number breaks, the first of them as a validator tells them."""
    if len(rules) != 1:
        return rule_of("anyOf", None, None)
    (rule,) = rules
    value = value_of(text)
    if rule.values is not None:
        return NOT_LISTED
    if rule.below is not None and value >= rule.below:
        return rule_of("exclusiveMaximum", rule.below, None)
    if rule.above is not None and value <= rule.above:
        return rule_of("exclusiveMinimum", rule.above, None)
    if rule.high is not None and value > rule.high:
        return rule_of("maximum", rule.high, None)
    if rule.low is not None and value < rule.low:
        return rule_of("minimum", rule.low, None)
    return kind_rule(kinds, is_listed=False)
