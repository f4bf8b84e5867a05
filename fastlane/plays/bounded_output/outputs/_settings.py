"""Check the settings of `BoundedOutput` where they are given."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from fastlane.errors import ConfigurationError
from fastlane.schemas.checks import check_schema
from fastlane.schemas.given_schema import given_schema
from fastlane.schemas.references import resolve

from ._play_state import Settings

if TYPE_CHECKING:
    from ..play import BoundedOutput


def settings_of(play: BoundedOutput) -> Settings:
    """Return the settings of a play. Raises ConfigurationError for what cannot work."""
    _load(with_repairs=bool(play.repairs))
    schema, name = _schema(play.schema)
    given: Any = play
    if given.unbounded is not None and given.unbounded != "error":
        _count("unbounded", given.unbounded, 'a whole number of tokens from 1, "error", or None to leave them alone')
    if given.early_stop not in (True, False, "at_once") or isinstance(given.early_stop, int | float) is not isinstance(
        given.early_stop, bool
    ):
        raise _wrong("early_stop", given.early_stop, 'True, False, or "at_once"')
    for each in ("validate", "compact"):
        if not isinstance(getattr(given, each), bool):
            raise _wrong(each, getattr(given, each), "True or False")
    for each in ("max_output_tokens", "repair_tokens"):
        if getattr(given, each) is not None:
            _count(each, getattr(given, each), "a whole number of tokens from 1, or None")
    if given.reasoning_tokens is not None:
        _count("reasoning_tokens", given.reasoning_tokens, "a whole number of tokens from 0, or None", least=0)
    _count("repairs", given.repairs, "a whole number from 0 to 10", least=0, most=10)
    temperature = given.repair_temperature
    if temperature is not None and (
        isinstance(temperature, bool)
        or not isinstance(temperature, int | float)
        or not math.isfinite(temperature)
        or temperature < 0
    ):
        raise _wrong("repair_temperature", temperature, "a number from 0, or None")
    if given.limits not in ("error", "note"):
        raise _wrong("limits", given.limits, '"error" or "note"')
    if given.stop_when is not None and not callable(given.stop_when):
        raise _wrong("stop_when", given.stop_when, "a function of the text so far, or None")
    if inspect.iscoroutinefunction(given.stop_when):
        raise _wrong("stop_when", given.stop_when, "a function that says so at once, and no coroutine")
    if given.stop_when is not None and given.early_stop is False:
        raise ConfigurationError(
            "BoundedOutput(stop_when=...) closes a stream, and early_stop=False asks for none to be closed: leave one "
            "of them out"
        )
    for each in ("effort", "verbosity"):
        value = getattr(given, each)
        if value is not None and (not isinstance(value, str) or not value):
            raise _wrong(each, value, 'one of the words that the provider takes, such as "low", or None')
    if given.repairs and not given.validate:
        raise ConfigurationError(
            "BoundedOutput(repairs=...) repairs what is not valid, and validate=False asks for no such check: leave "
            "one of them out"
        )
    return Settings(
        schema=schema,
        name=name,
        unbounded=given.unbounded,
        max_output_tokens=given.max_output_tokens,
        reasoning_tokens=given.reasoning_tokens,
        early_stop=bool(given.early_stop),
        at_once=given.early_stop == "at_once",
        stop=_stop(given.stop),
        stop_when=given.stop_when,
        validate=given.validate,
        repairs=given.repairs,
        repair_temperature=temperature,
        repair_tokens=given.repair_tokens,
        compact=given.compact,
        limits=given.limits,
        effort=given.effort,
        verbosity=given.verbosity,
    )


def _load(*, with_repairs: bool) -> None:
    """Import what calls will need with the play, and not with the first of them, which may be made on an event loop."""
    import jsonschema  # type: ignore[import-untyped] # noqa: F401

    from . import _guard  # noqa: F401

    if with_repairs:
        import tenacity  # noqa: F401


def _schema(given: Any) -> tuple[Mapping[str, Any] | None, str]:
    """The JSON schema of what was given, and its name."""
    if given is None:
        return None, "answer"
    where = "BoundedOutput(schema=...)"
    found = given_schema(given, where)
    schema = found.schema
    if isinstance(schema, bool):
        raise _wrong("schema", schema, "a type that pydantic has a JSON schema for, a JSON schema, or None")
    if not found.is_type:
        try:
            orjson.dumps(schema)
        except TypeError as error:
            raise _wrong("schema", schema, f"a JSON schema, which is plain JSON ({error})") from error
        check_schema(schema, where)
    _look_at_root(schema)
    title = schema.get("title")
    return schema, _name(found.name or (title if isinstance(title, str) else ""))


def _look_at_root(schema: Mapping[str, Any]) -> None:
    """What goes out is asked for strictly, and strict modes take an object at the root alone."""
    others = sorted(_kinds(schema, schema, set()) - {"object"})
    if others:
        raise ConfigurationError(
            "BoundedOutput(schema=...) takes the schema of an object, because strict modes take nothing else at the "
            f"root, got one of the type {' or '.join(others)}: put it into a model as its field, such as "
            "`items: list[Model]`, or ask for it by the call's own response_format"
        )


def _kinds(root: Mapping[str, Any], schema: Any, seen: set[int]) -> set[str]:
    """The types that a schema names for a value, itself or where it leads to."""
    if not isinstance(schema, Mapping) or id(schema) in seen:
        return set()
    seen.add(id(schema))
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind if isinstance(kind, list) else ())
    reference = schema.get("$ref")
    for one in (resolve(root, reference) if isinstance(reference, str) else None, *schema.get("anyOf", ())):
        kinds |= _kinds(root, one, seen)
    return kinds


def _name(given: str) -> str:
    """A name that a request may give its schema: letters, digits, and no more than 64 of them."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", given).strip("_")[:64] or "answer"


def _stop(given: Any) -> tuple[str, ...]:
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not all(isinstance(one, str) and one for one in listed):
        raise _wrong("stop", given, "a text, or a list of texts, none of them empty")
    return tuple(listed)


def _count(name: str, value: Any, expected: str, *, least: int = 1, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise _wrong(name, value, expected)


def _wrong(name: str, value: Any, expected: str) -> ConfigurationError:
    shown = type(value).__name__ if isinstance(value, Mapping) else f"{value!r:.60}"
    return ConfigurationError(f"BoundedOutput({name}=...) takes {expected}, got {shown}")
