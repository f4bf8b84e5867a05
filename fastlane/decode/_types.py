"""Read openai's types: unions and their members, models, and what tells models apart.

The stock client builds an answer in two ways. It *constructs* models (no check, extra keys stay out of the set of
fields) until it comes to a union, `Optional` included; what stands there is *validated* by pydantic in its lax mode,
and constructed only if that fails.
"""

from __future__ import annotations

import inspect
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import openai
from openai._models import _get_extra_fields_type
from openai._utils import PropertyInfo
from typing_extensions import TypeAliasType

from .._fork import no_fork

ANYTHING = (object, Any)
# Parameters of openai's `construct`: as keys of an object they are no extra fields but arguments, or an error.
CONTROL_NAMES = frozenset({"_fields_set", "_BaseModel__cls", "__cls"})
_OPENAI: Any = openai.BaseModel
_HOOKS = (
    "validators", "field_validators", "root_validators", "field_serializers", "model_serializers", "model_validators",
    "computed_fields",
)  # fmt: skip


class OddType(Exception):  # noqa: N818 - no error: the type is left to the stock client
    """A type holds something that is not known to be decoded alike in both ways."""


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
        with no_fork:
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
