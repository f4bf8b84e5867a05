"""How long a number can be in JSON, as Python's `json` writes it."""

from __future__ import annotations

import math

# The shortest text that gives a double back has at most 17 digits: "1.7976931348623157e+308", and a sign.
_DOUBLE = 23
# Below it a whole double is written out, with ".0" behind; from it on with an exponent: "1.2345678901234568e+16".
_EXPONENT_FROM = 10**16
_WITH_EXPONENT = 22
_LONG_EXPONENT_FROM = 10**100
_NEGATIVE_ZERO = len("-0.0")
# Python refuses to write longer integers than 4,300 digits.
_MOST_BITS = 14_000
_DIGITS_PER_BIT = math.log10(2)


def as_written(value: float) -> int:
    """Return the characters of the longest text of a number: 1, 1.0 and 1e0 are one number to JSON schema."""
    if isinstance(value, float) and not math.isfinite(value):
        # No JSON, but Python writes it; "NaN" counts as much as the "null" that others write.
        return {math.inf: len("Infinity"), -math.inf: len("-Infinity")}.get(value, len("null"))
    if value == 0:
        return _NEGATIVE_ZERO
    if isinstance(value, float):
        return max(len(repr(value)), as_written(int(value)) if value.is_integer() else 0)
    longest = _digits(value) + (value < 0)
    try:
        # Beyond 2**53 that may be another number, but not to everybody who compares them.
        return max(longest, len(repr(float(value))))
    except OverflowError:
        return longest


def longest_number(minimum: float | None, maximum: float | None, *, integer: bool) -> int | None:
    """Return the characters of the longest number within a range; None where the range is open.

    A number that is not whole is taken for a double. 2.0 is an integer to JSON schema.
    """
    if minimum is None or maximum is None:
        return None
    low, high = math.floor(minimum), math.ceil(maximum)
    longest = _NEGATIVE_ZERO if low <= 0 <= high else 1
    if high > 0:
        longest = max(longest, _whole(high), 0 if integer else _DOUBLE)
    if low < 0:
        longest = max(longest, 1 + _whole(-low), 0 if integer else 1 + _DOUBLE)
    return longest


def _whole(number: int) -> int:
    """The characters of the longest whole number from 0 to this one, written as an integer or as a double."""
    digits = _digits(number)
    if number < _EXPONENT_FROM:
        return digits + len(".0")
    return max(digits, _WITH_EXPONENT + (number >= _LONG_EXPONENT_FROM))


def _digits(number: int) -> int:
    bits = number.bit_length()
    return len(str(abs(number))) if bits <= _MOST_BITS else int(bits * _DIGITS_PER_BIT) + 2
