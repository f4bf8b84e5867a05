"""Settings of plays: pydantic dataclasses with errors that name the setting, the accepted values and the given one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

from pydantic import AfterValidator, ConfigDict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from ..errors import ConfigurationError
from ..records.formatting import listed

T = TypeVar("T")

Texts = Annotated[Sequence[str], AfterValidator(tuple)]
"""A list or tuple of strings, converted to a tuple."""

# Strict: neither True nor "5" is a number.
_CONFIG: Final = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True, extra="forbid")
_WRONG_ARGUMENTS: Final = ("missing", "unexpected_keyword_argument", "unexpected_positional_argument")
_WORDS: Final[dict[Any, str]] = {
    bool: "True or False", float: "a number", int: "a whole number", str: "a text", NoneType: "None",
    Sequence[str]: "a list of texts",
}  # fmt: skip
_LIMITS: Final = {"gt": "above", "ge": "from", "lt": "below", "le": "to"}


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots, whose keyword arguments are checked against their annotations.

    Write constraints into the annotation: `Annotated[float, Field(ge=0, le=1)]`. `Field(description=...)` replaces the
    description of accepted values in errors. Annotations must exist at run time. Fields with `init=False` are set by
    `__post_init__`, and are neither checked nor copied: a copy begins without learned state.

    Making an instance raises ConfigurationError for a value that does not fit, and for a ValueError of `__post_init__`;
    TypeError for wrong arguments.
    """
    made: Any = dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)(cls)
    validate = made.__init__

    def checked_init(self: Any, /, *args: Any, **given: Any) -> None:
        problem = None
        try:
            validate(self, *args, **given)
        except ValidationError as error:
            problem = _converted(error, made, args, given)
        # Raised here, because pydantic's error quotes the values and must not be the context of ours.
        if problem is not None:
            raise problem

    made.__init__ = checked_init
    made.__reduce__ = _reduce
    result: type[T] = made
    return result


def _reduce(self: Any) -> tuple[Any, ...]:
    """Copy and pickle only the settings: `__post_init__` runs again."""
    cls: Any = type(self)
    given = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.init}
    return partial(cls, **given), ()


def _converted(error: ValidationError, cls: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Exception:
    wrong = error.errors(include_url=False)[0]
    raised = wrong.get("ctx", {}).get("error")
    if isinstance(raised, ConfigurationError):
        return raised
    if not wrong["loc"]:
        return ConfigurationError(f"{cls.__name__}: {raised or wrong['msg']}")
    fields = {name: field for name, field in cls.__pydantic_fields__.items() if field.init is not False}
    name = wrong["loc"][0]
    if wrong["type"] in _WRONG_ARGUMENTS:
        verb = "needs" if wrong["type"] == "missing" else "does not take"
        what = repr(name) if isinstance(name, str) else "values without a name"
        return TypeError(f"{cls.__name__}() {verb} {what}; its settings are {', '.join(fields)}")
    value = args[name] if isinstance(name, int) else given[name]
    name = list(fields)[name] if isinstance(name, int) else name
    wanted = raised or fields[name].description or _wanted(name, fields[name].annotation, fields[name].metadata)
    return ConfigurationError(f"{cls.__name__}({name}=...) takes {wanted}, got {value!r:.80}")


def _wanted(name: str, annotation: Any, constraints: Iterable[Any] = ()) -> str:
    """Describe the values that a setting accepts."""
    kind, options = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        fields = [one for one in options[1:] if isinstance(one, FieldInfo)]
        described = next((field.description for field in fields if field.description), None)
        return described or _wanted(name, options[0], [one for field in fields for one in field.metadata])
    if kind in (Union, UnionType):
        return ", or ".join(_wanted(name, option, constraints) for option in options)
    if kind is Literal:
        return listed((f'"{option}"' if isinstance(option, str) else repr(option) for option in options), "or")
    noun = _WORDS.get(annotation) or f"a {getattr(annotation, '__name__', annotation)}"
    if annotation is float and name.endswith("_s"):
        noun = "seconds"
    limits = [
        f" {word} {getattr(one, limit):,}"
        for limit, word in _LIMITS.items()
        for one in constraints
        if hasattr(one, limit)
    ]
    return noun + "".join(limits)
