"""Judge by jsonschema, with those of its keywords replaced whose time would not grow with the answer's length alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from . import _linear_patterns

TURNED_ROUND = frozenset(("not", "oneOf", "if", "contains", "unevaluatedProperties", "unevaluatedItems"))
"""Where these stand in a schema, a rule that cannot be judged must not count as kept: below them it may say what an
answer must not be."""


class CannotSayError(Exception):
    """Whether an answer is valid hangs on a pattern that nothing here can look for."""


@lru_cache(maxsize=32)
def judging(stock: Any, *, strictly: bool) -> Any:
    """Return a class like one of jsonschema's for its drafts, and for the same answers valid.

    What a pattern that nothing here can look for says counts as kept, or, `strictly`, raises CannotSayError.
    """
    import jsonschema  # type: ignore[import-untyped]

    def matches(pattern: str, text: str, unknown: bool) -> bool:
        find = _linear_patterns.search(pattern)
        found = None if find is None else find(text)
        if found is None and strictly:
            raise CannotSayError
        return unknown if found is None else found

    def pattern(judge: Any, asked: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
        if judge.is_type(instance, "string") and not matches(asked, instance, True):
            yield jsonschema.ValidationError("does not match its pattern")

    def pattern_properties(judge: Any, asked: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
        for each, below in asked.items() if judge.is_type(instance, "object") else ():
            for name, value in instance.items():
                if matches(each, name, False):
                    yield from judge.descend(value, below, path=name, schema_path=each)

    def additional_properties(judge: Any, asked: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not judge.is_type(instance, "object"):
            return
        named, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
        extras = [
            name for name in instance if name not in named and not any(matches(each, name, True) for each in patterns)
        ]
        if judge.is_type(asked, "object"):
            for name in extras:
                yield from judge.descend(instance[name], asked, path=name)
        elif not asked and extras:
            error = jsonschema.ValidationError("properties that are not allowed")
            error.extras = extras
            yield error

    def unique_items(judge: Any, asked: Any, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
        if asked and judge.is_type(instance, "array") and len({_hashable(item) for item in instance}) < len(instance):
            yield jsonschema.ValidationError("an item stands in it twice")

    ours = {
        "pattern": pattern, "patternProperties": pattern_properties, "additionalProperties": additional_properties,
        "uniqueItems": unique_items,
    }  # fmt: skip
    return jsonschema.validators.extend(stock, {name: ours[name] for name in ours if name in stock.VALIDATORS})


def _hashable(value: Any) -> Any:
    """A value that equals another's where JSON schema calls the two equal: 1 is 1.0, and is not true."""
    if isinstance(value, dict):
        return dict, frozenset((name, _hashable(member)) for name, member in value.items())
    if isinstance(value, list):
        return list, tuple(map(_hashable, value))
    return (bool, value) if isinstance(value, bool) else value
