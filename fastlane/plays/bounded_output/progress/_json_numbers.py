"""Numbers of a JSON text that is not complete: what may still become one, and whether a whole one is allowed."""

from __future__ import annotations

import re
from typing import NamedTuple

# Beyond so many characters a number's digits are not kept: they decide nothing but its value.
LONGEST = 1_000

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?").fullmatch
_BEGINNING = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?").fullmatch


class NumberRule(NamedTuple):
    """Which numbers one alternative of a schema takes."""

    whole: bool = False
    """Only numbers without a fraction; 1.0 is one."""
    low: float | None = None
    above: float | None = None
    """As `low`, which the number may not be."""
    high: float | None = None
    below: float | None = None
    values: frozenset[float] | None = None
    """Only these."""


def may_become_number(text: str) -> bool:
    """Whether a number begins so: "-", "1.", "2e+"."""
    return _BEGINNING(text) is not None


def is_number(text: str) -> bool:
    """Whether it is one by JSON's grammar, which has no leading zero, no plus, and digits around its point."""
    return _WHOLE(text) is not None


def shortened(text: str) -> str:
    """Return a short text that goes on as the beginning of a number does: "1.5" for a thousand decimals."""
    if "e" in text or "E" in text:
        return "1e1"
    return "1.5" if "." in text else "12"


def value_of(text: str) -> float:
    """Return the value of a whole number, as `json.loads` reads it."""
    # Nothing else in a JSON number is no digit.
    return int(text) if text.isdecimal() or text[1:].isdecimal() else float(text)


def allowed(text: str, rules: tuple[NumberRule, ...]) -> bool:
    """Whether any rule takes a whole number, which is read as `json.loads` reads it."""
    # As `value_of`: a call of a function costs as much as all the rest of it.
    value: float = int(text) if text.isdecimal() or text[1:].isdecimal() else float(text)
    for rule in rules:  # noqa: SIM110 - a generator costs as much as the comparison
        if _takes(rule, value, text):
            return True
    return False


def _takes(rule: NumberRule, value: float, text: str) -> bool:
    # What is too large for a float becomes infinite, and may be whole.
    if type(value) is float and rule.whole and not value.is_integer() and value not in (_INFINITE, -_INFINITE):
        return False
    if rule.values is not None and value not in rule.values:
        return False
    if _within(rule, value):
        return True
    # A float may have been rounded across its limit, which a validator that reads decimals does not do.
    return isinstance(value, float) and _within_exactly(rule, text)


_INFINITE = float("inf")


def _within(rule: NumberRule, value: float) -> bool:
    _, low, above, high, below, _ = rule
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _within_exactly(rule: NumberRule, text: str) -> bool:
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent beyond its range
        return False

    def limit(given: float) -> Decimal:
        return Decimal(repr(given))

    return (
        (rule.low is None or value >= limit(rule.low))
        and (rule.above is None or value > limit(rule.above))
        and (rule.high is None or value <= limit(rule.high))
        and (rule.below is None or value < limit(rule.below))
    )
