"""What has to be put right, or refused, after pydantic's strict validation of JSON for it to equal what openai builds.

Written as source for each type: one pass over the constructed models of an answer, which asks nothing more of most
objects than whether they have extra fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_origin

from openai._compat import field_get_default

from . import _types as types
from ._source import Source
from ._types import OddType

Repair = Callable[[Any, bytes], bool]
"""Of the object that strict validation made and the bytes that it came from: put it right, or say that it cannot be."""
Check = Callable[[Any], bool]

_LIMIT = repr(types.EXACT_FLOATS)


@cache
def repair_of(model: Any, *, validated: bool, event: bool) -> Repair | None:
    """The repair of an answer that the stock client constructs, or validates (`validated`); None where none is certain.

    An `event` whose "error" says anything at all is refused: the stock client raises it.
    """
    source = Source("def made(found, data):")
    source.names |= {
        "huge": types.holds_huge_integer, "hypot": math.hypot, "control": types.CONTROL_NAMES.isdisjoint,
    }  # fmt: skip
    source.line("floats = None")
    try:
        if event:
            _error(source, model)
        if validated:
            if not types.is_ordinary(model):
                return None
            _validated(source, model, "found")
        else:
            _constructed(source, model, "found", ())
    except OddType:
        return None
    source.line("return not floats or not huge(data)")
    made: Repair = source.compiled(f"repair of {model.__name__}")
    return made


def _error(source: Source, model: Any) -> None:
    if "error" in model.model_fields:
        source.line("if found.error is not None: return False")
    else:
        source.line("extra = found.__pydantic_extra__")
        source.line("if extra and extra.get('error'): return False")


def _constructed(source: Source, model: Any, value: str, outer: tuple[Any, ...]) -> None:
    """Lines for a constructed model that stands in the variable `value`."""
    if not types.is_constructible(model) or model in outer:
        raise OddType(model)
    source.line(f"extra = {value}.__pydantic_extra__")
    with source.block("if extra:"):
        source.line("if not control(extra): return False")
        source.line(f"{value}.__pydantic_fields_set__.difference_update(extra)")
    fields = source.name("fields")
    at = len(source.lines)
    source.line(f"{fields} = {value}.__dict__")
    for name, field in types.built(model).model_fields.items():
        if field_get_default(field) is not None:
            # The stock client puts the default in the place of a null.
            raise OddType(model)
        _position(source, field.annotation, f"{fields}[{name!r}]", (*outer, model))
    if len(source.lines) == at + 1:
        source.lines.pop()


def _position(source: Source, annotation: Any, value: str, outer: tuple[Any, ...]) -> None:
    """Lines for the value at a constructed position, where `value` is an expression."""
    annotation = types.bare(annotation)
    origin = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if types.is_union(annotation):
        _validated(source, annotation, value)
    elif types.is_model(annotation):
        variable = source.name("model")
        source.line(f"{variable} = {value}")
        _constructed(source, annotation, variable, outer)
    elif origin is float:
        source.line(f"if not -{_LIMIT} < {value} < {_LIMIT}: return False")
    elif origin is list and arguments:
        if types.bare(arguments[0]) is float:
            # The length of the vector of all of them bounds each; no loop in Python is as quick.
            source.line(f"if not hypot(*{value}) < {_LIMIT}: return False")
        elif types.is_union(types.bare(arguments[0])):
            _validated(source, annotation, value)
        else:
            item = source.name("item")
            at = len(source.lines)
            with source.block(f"for {item} in {value}:"):
                _position(source, arguments[0], item, outer)
            if source.lines[-1].strip() == "pass":
                del source.lines[at:]
    elif origin is dict and arguments:
        if types.bare(arguments[1]) not in (*types.ANYTHING, str, int, bool):
            raise OddType(annotation)
    elif origin not in (str, int, bool, list, dict, *types.ANYTHING) and not types.is_words(annotation):
        raise OddType(annotation)


def _validated(source: Source, annotation: Any, value: str) -> None:
    """Lines for a position that the stock client validates: equal but for doubtful choices and huge integers."""
    plain = all(member in types.SCALARS or types.is_words(member) for member in types.members(annotation))
    if types.may_hold_floats(annotation):
        if plain:
            source.line(f"if {value}.__class__ is float and not -{_LIMIT} < {value} < {_LIMIT}: return False")
        else:
            source.line(f"floats = floats or {value}")
    check = certain(annotation)
    if check is not None:
        source.line(f"if {value} is not None and not {source.name('certain', check)}({value}): return False")


@cache
def certain(annotation: Any) -> Check | None:
    """Whether a strictly validated value holds no choice that lax validation might make otherwise; None: none can."""
    if not types.may_be_doubtful(annotation):
        return None
    try:
        found = types.members(annotation)
    except OddType:
        return lambda value: value is None
    doubtful = types.doubts(annotation)
    models = frozenset(member for member in found if types.is_model(member) and types.may_be_doubtful(member))
    inside = tuple(argument for member in found if get_origin(member) in (list, dict) for argument in get_args(member))

    @cache
    def checks() -> tuple[Check, ...]:
        # Asked for only when a value comes: a type may hold itself.
        return tuple(check for check in map(certain, inside) if check is not None)

    def check(value: Any) -> bool:
        kind = value.__class__
        if kind is list:
            return list not in doubtful and all(all(map(check, value)) for check in checks())
        if kind is dict:
            return dict not in doubtful and all(all(map(check, value.values())) for check in checks())
        if kind in models:
            return dict not in doubtful and all(certain(getattr(value, name)) for name, certain in _fields(kind))
        return (dict if hasattr(kind, "model_fields") else str) not in doubtful or value is None

    return check


@cache
def _fields(model: Any) -> tuple[tuple[str, Check], ...]:
    """The fields of a model that may hold a doubtful choice."""
    found = ((name, certain(field.annotation)) for name, field in model.model_fields.items())
    return tuple((name, check) for name, check in found if check is not None)
