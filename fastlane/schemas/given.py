"""Read and check schemas: a type, or a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin
from urllib.parse import unquote

import orjson

from fastlane.errors import ConfigurationError

if TYPE_CHECKING:
    import jsonschema_rs

Schema = Mapping[str, Any] | bool

_DRAFT = re.compile(r"https?://json-schema\.org/(draft-0[467]/schema|draft/20(19-09|20-12)/schema|schema)#?").fullmatch


class Given(NamedTuple):
    """A JSON schema as it was given."""

    schema: Schema
    name: str | None
    """What its class is called."""
    is_type: bool
    """Whether pydantic has made it."""


def given_schema(given: Any) -> Given:
    """Return what was given as the schema that it is.

    Raises ConfigurationError for what is neither a mapping, True or False, nor a type that pydantic has a schema for.
    """
    if isinstance(given, Mapping | bool):
        return Given(given, None, is_type=False)
    if _is_type(given):
        return Given(_schema_of(given), given.__name__ if isinstance(given, type) else None, is_type=True)
    raise ConfigurationError(
        f"bound() takes a JSON schema as a dict, or a type such as a pydantic model, got {type(given).__name__}"
    )


def _is_type(given: Any) -> bool:
    """Whether it is a class, or another word for types: list[Model], Optional[Model], Annotated, a name for one."""
    is_named = hasattr(type(given), "__value__") or hasattr(given, "__supertype__")
    return isinstance(given, type) or get_origin(given) is not None or is_named


def _schema_of(given: Any) -> Mapping[str, Any]:
    """Return the JSON schema of a type."""
    from pydantic import BaseModel, TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    try:
        if isinstance(given, type) and get_origin(given) is None and issubclass(given, BaseModel):
            return given.model_json_schema()
        return TypeAdapter(given).json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        shown = given.__name__ if isinstance(given, type) else f"{given!r:.80}"
        advice = str(error).strip().splitlines()[0]
        raise ConfigurationError(
            f"bound() takes a JSON schema or a type that pydantic has one for, got {shown}: pass a model class, a "
            f"dataclass, or the schema itself. pydantic says: {advice}"
        ) from error


def check_schema(schema: Schema, where: str) -> None:
    """Check that a JSON schema is one. `where`: what it was given to, for errors.

    Raises ConfigurationError for what is no JSON schema, or has a reference that leads nowhere in it.
    """
    import jsonschema_rs

    if not isinstance(schema, Mapping | bool):
        raise ConfigurationError(f"{where} takes a JSON schema, which is a mapping, True or False, got {schema!r:.80}")
    try:
        validator_of(written(schema))
    except jsonschema_rs.ValidationError as error:
        at = ".".join(map(str, error.instance_path)) or "its root"
        what = f"at {at}: {error.message:.200}, got {error.instance!r:.60}"
        if error.instance is None:
            # What a reference leads to was not found.
            what = f"{error.message:.200}; nothing is fetched: put it under $defs"
        raise ConfigurationError(f"{where} takes a JSON schema: {what}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where} takes a JSON schema, got what cannot be written as JSON") from error


@lru_cache(maxsize=256)
def validator_of(text: bytes) -> jsonschema_rs.Validator:
    """Return the validator of a schema that is given as JSON, of the draft that it names or the newest.

    Formats are asserted, nothing is ever fetched, and messages name no value of the answer. Raises
    `jsonschema_rs.ValidationError` for what is no schema.
    """
    import jsonschema_rs

    schema = json.loads(text)
    if isinstance(schema, dict) and _DRAFT(str(schema.get("$schema"))) is None:
        schema.pop("$schema", None)
    return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, mask="the value")


def resolve(root: Schema, reference: str) -> Schema | None:
    """Return what a reference such as "#/$defs/Node" leads to; None if it leads out of the document or nowhere.

    Anchors and identifiers are not followed: what they lead to counts as unknown.
    """
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    at: Any = root
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        at = at.get(name) if isinstance(at, Mapping) else None
    return at if isinstance(at, Mapping | bool) else None


def written(schema: Any) -> bytes:
    """Return a schema as JSON. Raises TypeError, ValueError or RecursionError for what cannot be written."""
    try:
        return orjson.dumps(schema, default=dict)
    except TypeError:
        # Whole numbers beyond 64 bits and halves of surrogate pairs are JSON too.
        return json.dumps(schema, default=dict).encode()
