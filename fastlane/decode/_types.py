"""What openai's types say of a value: which are plain, and where pydantic's strict choice among several is certain.

The stock client builds an answer in two ways. It *constructs* models (no check, extra keys stay out of the set of
fields) until it comes to a union, `Optional` included; what stands there is *validated* by pydantic in its lax mode,
and constructed only where that fails. Strict validation of the same JSON gives the same objects wherever it accepts,
except at the places that these functions find.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import openai
from openai._models import _get_extra_fields_type
from openai._utils import PropertyInfo
from typing_extensions import TypeAliasType

from .._fork import new_rlock

SCALARS = (str, int, float, bool, type(None))
ANYTHING = (object, Any)
# Parameters of openai's `construct`: as keys of an object they are no extra fields but arguments, or an error.
CONTROL_NAMES = frozenset({"_fields_set", "_BaseModel__cls", "__cls"})
# Below it every integer is a float too. From it on the stock client keeps an integer where the float would differ.
EXACT_FLOATS = 2.0**53
# No integer of fewer digits is too large for a float; one that is makes lax validation fail and strict give infinity.
_HUGE_DIGITS = 309
_DIGITS = bytes(ord("0") if 48 <= code <= 57 else ord(" ") for code in range(256))
_HUGE = b"0" * _HUGE_DIGITS

_building = new_rlock()
_OPENAI: Any = openai.BaseModel
_HOOKS = (
    "validators", "field_validators", "root_validators", "field_serializers", "model_serializers", "model_validators",
    "computed_fields",
)  # fmt: skip


class OddType(Exception):  # noqa: N818 - no error: the type is left to the stock client
    """A type holds something that is not known to be decoded alike in both ways."""


def holds_huge_integer(data: bytes) -> bool:
    """Whether a number may be an integer that no float can hold; about a nanosecond per byte."""
    return len(data) > _HUGE_DIGITS and _HUGE in data.translate(_DIGITS)


def bare(annotation: Any) -> Any:
    """An annotation without its alias and without openai's `PropertyInfo`; raises `OddType` for any other metadata."""
    while True:
        if isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated:
            annotation, *metadata = get_args(annotation)
            if not all(isinstance(item, PropertyInfo) for item in metadata):
                raise OddType(annotation)
        else:
            return annotation


def is_union(annotation: Any) -> bool:
    """Whether a bare annotation is a union: what stands there is validated."""
    return get_origin(annotation) in (Union, UnionType)


def members(annotation: Any) -> list[Any]:
    """The bare members of a union, those of unions within it included; of any other annotation itself."""
    annotation = bare(annotation)
    if not is_union(annotation):
        return [annotation]
    return [member for argument in get_args(annotation) for member in members(argument)]


def is_model(annotation: Any) -> bool:
    """Whether a bare annotation is one of openai's models."""
    return inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, _OPENAI)


def is_words(annotation: Any) -> bool:
    """Whether a bare annotation is a `Literal` of strings alone."""
    return get_origin(annotation) is Literal and all(type(word) is str for word in get_args(annotation))


def built(model: Any) -> Any:
    """The model itself, its validator built: openai defers that to the first use."""
    if not model.__pydantic_complete__:
        with _building:
            model.model_rebuild()
    return model


@cache
def is_ordinary(model: Any) -> bool:
    """Whether a model is nothing but fields, as openai makes them: no hooks, no private attributes, no own building."""
    built(model)
    hooks = model.__pydantic_decorators__
    own = ("__init__", "__new__", "model_post_init", "__setattr__", "__eq__")
    return (
        all(getattr(model, name) is getattr(_OPENAI, name) for name in own)
        and all(
            getattr(model, name).__func__ is getattr(_OPENAI, name).__func__
            for name in ("construct", "model_construct", "__get_pydantic_core_schema__")
        )
        and not any(getattr(hooks, kind) for kind in _HOOKS)
        and not model.__private_attributes__
        and model.model_config == _OPENAI.model_config
        and _get_extra_fields_type(model) is None
        and all(isinstance(item, PropertyInfo) for field in model.model_fields.values() for item in field.metadata)
    )


@cache
def is_constructible(model: Any) -> bool:
    """Whether a constructed model can be built here: ordinary, and its keys are the names of its fields."""
    return is_ordinary(model) and not any(
        field.alias or field.validation_alias or name in CONTROL_NAMES for name, field in model.model_fields.items()
    )


@cache
def told_apart(models: tuple[Any, ...]) -> str | None:
    """The field whose required value tells every two of these models apart, so that one at most accepts an object."""
    names: list[str] = list(models[0].model_fields)
    for name in names:
        words: list[str] = []
        for model in models:
            field = model.model_fields.get(name)
            if field is None or not field.is_required() or field.alias or field.validation_alias:
                break
            try:
                annotation = bare(field.annotation)
            except OddType:
                break
            if not is_words(annotation):
                break
            words += set(get_args(annotation))
        else:
            if len(words) == len(set(words)):
                return name
    return None


def doubts(annotation: Any) -> frozenset[type]:
    """The kinds of JSON value for which strict validation might choose another member of the union than lax does.

    A subset of `{dict, list, str}`, where `str` stands for all that is neither an object nor a list. JSON objects suit
    models and dictionaries alone, lists suit lists; among plain values both modes prefer the exact type.
    """
    try:
        found = members(annotation)
    except OddType:
        return frozenset({dict, list, str})
    objects: list[Any] = []
    lists = plain = anything = 0
    for member in found:
        if is_model(member) or get_origin(member) is dict or member is dict:
            objects.append(member)
        elif get_origin(member) is list or member is list:
            lists += 1
        elif member in ANYTHING:
            anything += 1
        elif member in SCALARS or is_words(member):
            plain += member is not type(None)
        else:
            return frozenset({dict, list, str})
    doubtful: set[type] = set()
    if len(objects) + anything > 1 and not (
        not anything and all(is_model(member) for member in objects) and told_apart(tuple(objects))
    ):
        doubtful.add(dict)
    if any(is_model(member) and not is_ordinary(member) for member in objects):
        doubtful.add(dict)
    if lists + anything > 1:
        doubtful.add(list)
    if anything and plain:
        doubtful.add(str)
    return frozenset(doubtful)


def parts(annotation: Any) -> Iterator[Any]:
    """What a value of this annotation may hold inside: items, values and the annotations of a model's fields."""
    for member in members(annotation):
        if is_model(member):
            for field in built(member).model_fields.values():
                yield field.annotation
        else:
            yield from (inner for inner in get_args(member) if get_origin(member) in (list, dict))


@cache
def _reachable(annotation: Any) -> tuple[bool, bool, int]:
    """Whether a value may hold a doubtful choice, and whether a float; how many models its widest union has."""
    doubtful = floats = False
    widest = 0
    seen: set[Any] = set()
    waiting = [annotation]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        doubtful = doubtful or bool(doubts(one))
        try:
            found = members(one)
            floats = floats or float in found
            widest = max(widest, sum(map(is_model, found)))
            waiting += parts(one)
        except OddType:
            floats = True
    return doubtful, floats, widest


def may_be_doubtful(annotation: Any) -> bool:
    """Whether a validated value may hold, at any depth, a choice that strict and lax validation make differently."""
    return _reachable(annotation)[0]


def may_hold_floats(annotation: Any) -> bool:
    """Whether a validated value may hold a float at any depth."""
    return _reachable(annotation)[1]


def widest_union(annotation: Any) -> int:
    """How many models the largest union has that a value may hold at any depth."""
    return _reachable(annotation)[2]
