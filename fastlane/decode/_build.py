"""Builders of openai's models from parsed JSON: what `construct` does, written out as source for each model.

Every step that is not plain copying is openai's own: a value in a union is first offered to the validator that openai
would ask, and whatever does not have the expected form goes through `construct_type`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args, get_origin

import pydantic
from openai._compat import field_get_default
from openai._models import construct_type

from . import _types as types
from ._schema import union_validator_of
from ._types import OddType

Build = Callable[[Any], Any]
"""From a JSON object (a dictionary) to the model that the stock client constructs from it."""


_Outer = tuple[Any, ...]


class Refused(Exception):  # noqa: N818 - no error: the stock client decides
    """An object has a key that `construct` takes for an argument of its own."""


class Source:
    """The lines of one function and the names that they use; indented by blocks."""

    def __init__(self, header: str) -> None:
        self.names: dict[str, Any] = {}
        self.lines = [header]
        self._depth = 1

    def line(self, text: str) -> None:
        """Add one line at the present depth."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Add the line that opens a block, and what is added meanwhile inside it."""
        self.line(opening)
        self._depth += 1
        added = len(self.lines)
        yield
        if len(self.lines) == added:
            self.line("pass")
        self._depth -= 1

    def name(self, kind: str, value: Any = None) -> str:
        """A name of its own for a value, or for a variable of the function."""
        made = f"{kind}_{len(self.names)}"
        self.names[made] = value
        return made

    def late(self, kind: str, make: Callable[[], Callable[[Any], Any]]) -> str:
        """A name for a function of one argument that is made when it is called for the first time."""
        name = self.name(kind)

        def first(value: Any) -> Any:
            # Two threads may both make it: either is as good, and the last one stays.
            made = self.names[name] = make()
            return made(value)

        self.names[name] = first
        return name

    def compiled(self, title: str) -> Any:
        """The function, named `made` in the source; `title` stands in tracebacks."""
        # The text is made of names of openai's fields alone, each written as its repr: nothing that came over a wire.
        exec(compile("\n".join(self.lines), f"<fastlane: {title}>", "exec"), self.names)  # noqa: S102
        return self.names["made"]


def _setters() -> dict[str, Any]:
    slots = vars(pydantic.BaseModel)
    return {
        "set_values": slots["__dict__"].__set__,
        "set_fields": slots["__pydantic_fields_set__"].__set__,
        "set_extra": slots["__pydantic_extra__"].__set__,
        "set_private": slots["__pydantic_private__"].__set__,
    }


@cache
def builder_of(model: Any) -> Build:
    """The builder of a model; raises `Refused`, or what `construct` raises."""
    types.built(model)
    if not types.is_constructible(model):
        return lambda values: construct_type(value=values, type_=model)
    source = Source("def made(values):")
    source.names |= {
        "construct_type": construct_type, "default_of": field_get_default, "refused": Refused,
        "control": types.CONTROL_NAMES.isdisjoint, **_setters(),
    }  # fmt: skip
    source.line(f"return {_model(source, model, 'values', ())}")
    made: Build = source.compiled(f"builder of {model.__name__}")
    return made


def _model(source: Source, model: Any, values: str, outer: _Outer) -> str:
    """Lines that make a model from the dictionary in the variable `values`; returns the variable with the model.

    `outer`: the models around it, whose lines contain these. A call for each inner model would take longer.
    """
    get, fields, extra, found = (source.name(kind) for kind in ("get", "fields", "extra", "found"))
    kind, known = source.name("model", model), source.name("known", frozenset(model.model_fields))
    source.line(f"{get} = {values}.get")
    source.line(f"{fields} = set({values})")
    with source.block(f"if {fields} <= {known}:"):
        source.line(f"{extra} = {{}}")
    with source.block("else:"):
        source.line(f"if not control({fields}): raise refused")
        source.line(f"{extra} = {{key: value for key, value in {values}.items() if key not in {known}}}")
        source.line(f"{fields} &= {known}")
    entries = [
        f"{name!r}: {_field(source, name, field, get, (*outer, model))}" for name, field in model.model_fields.items()
    ]
    source.line(f"{found} = {source.name('new', model.__new__)}({kind})")
    source.line(f"set_values({found}, {{{', '.join(entries)}}})")
    source.line(f"set_private({found}, None)")
    source.line(f"set_extra({found}, {extra})")
    source.line(f"set_fields({found}, {fields})")
    return found


def _field(source: Source, name: str, field: Any, get: str, outer: _Outer) -> str:
    """Lines that prepare one field; returns the expression of its value."""
    default = field_get_default(field)
    copied = is_copied(field.annotation)
    if copied and default is None:
        return f"{get}({name!r})"
    value = source.name("value")
    source.line(f"{value} = {get}({name!r})")
    if default is not None:
        with source.block(f"if {value} is None:"):
            source.line(f"{value} = default_of({source.name('field', field)})")
    if not copied:
        with source.block(f"{'el' if default is not None else ''}if {value} is not None:"):
            _convert(source, field.annotation, value, outer, field.metadata)
    return value


def is_copied(annotation: Any) -> bool:
    """Whether every JSON value of this type stays as it is: a string in or out of place is never changed."""
    try:
        found = types.members(annotation)
    except OddType:
        return False
    words = all(member in (str, type(None)) or types.is_words(member) for member in found)
    if len(found) > 1:
        # Lax validation changes no string, and takes nothing else for one.
        return words
    return words or found[0] in (int, bool, *types.ANYTHING)


def _convert(source: Source, annotation: Any, value: str, outer: _Outer | None, metadata: Any = None) -> None:
    """Lines that turn the parsed JSON in the variable `value` into what stands in its place in the model."""
    if is_copied(annotation):
        return
    try:
        plain = types.bare(annotation)
    except OddType:
        _stock(source, annotation, value, metadata)
        return
    arguments = get_args(plain)
    if types.is_union(plain):
        _convert_union(source, annotation, value, metadata)
    elif types.is_model(plain):
        with source.block(f"if {value}.__class__ is dict:"):
            if outer is not None and plain not in outer and types.is_constructible(plain):
                source.line(f"{value} = {_model(source, plain, value, outer)}")
            else:
                source.line(f"{value} = {source.late('build', lambda: builder_of(plain))}({value})")
        with source.block("else:"):
            _stock(source, annotation, value, metadata)
    elif get_origin(plain) is list and arguments:
        with source.block(f"if {value}.__class__ is list:"):
            _convert_items(source, arguments[0], value, outer)
    elif plain is float:
        source.line(f"if {value}.__class__ is not float: {value} = construct_type(value={value}, type_=float)")
    else:
        _stock(source, annotation, value, metadata)


def _convert_items(source: Source, annotation: Any, value: str, outer: _Outer | None) -> None:
    if is_copied(annotation):
        source.line(f"{value} = {value}.copy()")
        return
    if annotation is float:
        # For vectors of embeddings: a loop in Python would take twice the time.
        with source.block(f"if set(map(type, {value})) != {{float}}:"):
            source.line(f"{value} = construct_type(value={value}, type_=list[float])")
        return
    item, items = source.name("item"), source.name("items")
    source.line(f"{items} = []")
    with source.block(f"for {item} in {value}:"):
        _convert(source, annotation, item, outer)
        source.line(f"{items}.append({item})")
    source.line(f"{value} = {items}")


def _convert_union(source: Source, annotation: Any, value: str, metadata: Any) -> None:
    """What the stock client does with a union: offer the value to pydantic, and construct where that fails."""
    found = types.members(annotation)
    keyword = "if"
    for name, scalar in (("str", str), ("int", int), ("bool", bool), ("float", float)):
        if scalar in found:
            # Lax validation too prefers the member whose very type a value has.
            source.line(f"{keyword} {value}.__class__ is {name}: pass")
            keyword = "elif"
    validate = source.late("validate", lambda: union_validator_of(annotation).validate_python)
    others = [member for member in found if member is not type(None)]
    first = types.bare(get_args(types.bare(annotation))[0])
    models, lists = any(map(types.is_model, others)), any(get_origin(member) is list for member in others)
    for kind in ("dict",) * models + ("list",) * lists:
        with source.block(f"{keyword} {value}.__class__ is {kind}:"):
            with source.block("try:"):
                source.line(f"{value} = {validate}({value})")
            with source.block("except Exception:"):
                if len(others) == 1 and first is others[0] and not metadata:
                    # Rare, so its models are not written out here.
                    _convert(source, first, value, None)
                else:
                    _stock(source, annotation, value, metadata)
        keyword = "elif"
    with source.block("else:" if keyword == "elif" else "if True:"):
        _stock(source, annotation, value, metadata)


def _stock(source: Source, annotation: Any, value: str, metadata: Any) -> None:
    of = source.name("type", annotation)
    given = f", metadata={source.name('metadata', metadata)}" if metadata else ""
    source.line(f"{value} = construct_type(value={value}, type_={of}{given})")
