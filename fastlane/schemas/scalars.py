"""The longest numbers and strings that a JSON schema allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from .bound_tokens import Measure
from .drafts import Dialect, count_of, number_of
from .numbers import longest_number
from .patterns import Pattern, json_width, longest_match
from .sizes import Size

_PAIR_WIDTH = json_width(0x10FFFF)
_ANYTHING = Pattern(length=math.inf, characters=math.inf, width=_PAIR_WIDTH)
_USUAL_CHARACTERS = 80
# Of a long limit, about so much is used.
_USUAL_SHARE = 4
_USUAL_TOKENS = 20


class Rules(NamedTuple):
    """What is taken for granted."""

    field_tokens: int
    """What a field without a bound comes to."""
    field_characters: int
    number_characters: int | None
    """Of a number without a range. None: nothing is taken for granted, of formats neither."""
    closed: bool
    """An object that does not say so has no other properties than those named."""

    def field(self, reason: str, likely: int = _USUAL_TOKENS, *, vague: bool = False) -> Size:
        """Return the size that a field without a bound is given."""
        likely = min(likely, self.field_tokens)
        return Size(self.field_characters, self.field_tokens, likely, gaps=(("", reason),), vague=vague)


@cache
def formats() -> Mapping[str, Mapping[str, Any]]:
    """Return what `formats.toml` says."""
    import tomllib
    from importlib import resources

    return tomllib.loads(resources.files(__package__).joinpath("formats.toml").read_text("utf-8"))


def number(schema: Mapping[Any, Any], dialect: Dialect, measure: Measure, rules: Rules, *, integer: bool) -> Size:
    """Return the size of the longest number."""

    def limits(*names: str) -> list[float]:
        return [limit for name in names if (limit := number_of(dialect.get(schema, name))) is not None]

    # What is a multiple of a whole number is one.
    integer = integer or type(dialect.get(schema, "multipleOf")) is int
    lowest = max(limits("minimum", "exclusiveMinimum"), default=None)
    highest = min(limits("maximum", "exclusiveMaximum"), default=None)
    characters = longest_number(lowest, highest, integer=integer)
    if characters is not None:
        return measure.number(characters, integer=integer)
    reason = f"{'integer' if integer else 'number'} without minimum and maximum"
    most = rules.number_characters
    if most is None:
        return rules.field(reason, likely=2)
    reason += f", taken for at most {most} characters"
    return measure.number(most, integer=integer)._replace(assumed=(("", reason),))


def string(schema: Mapping[Any, Any], dialect: Dialect, measure: Measure, rules: Rules) -> Size:
    """Return the size of the longest string."""
    most = count_of(schema.get("maxLength"))
    pattern = schema.get("pattern")
    allowed = (longest_match(pattern) if isinstance(pattern, str) else None) or _ANYTHING
    characters = allowed.within(most)
    name = schema.get("format")
    fixed, assumed = (_format(kind, name, dialect) for kind in ("fixed", "assumed"))
    if fixed is not None:
        characters = fixed if characters is None else min(characters, fixed)
    length = min(allowed.length, math.inf if most is None else most)
    usual = _USUAL_CHARACTERS if length == math.inf else max(_USUAL_CHARACTERS, int(length) // _USUAL_SHARE)
    usual = max(usual, count_of(schema.get("minLength")) or 0)
    if characters is not None:
        return measure.text(characters, usual if length == math.inf else min(usual, int(length)))
    if assumed is not None and rules.number_characters is not None:
        reason = f"format {name} has no greatest length, taken for at most {assumed} characters"
        return measure.text(assumed)._replace(assumed=(("", reason),))
    reason = "string without maxLength or pattern"
    if isinstance(pattern, str):
        reason = "string without maxLength, and with a pattern that does not limit it"
    return rules.field(reason, measure.text(usual).likely)


def _format(kind: str, name: Any, dialect: Dialect) -> int | None:
    """The characters of a format that the schema's draft knows."""
    found = formats()[kind].get(name) if isinstance(name, str) else None
    return found["characters"] if found is not None and found["since"] <= dialect.draft else None
