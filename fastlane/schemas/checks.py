"""Check that a JSON schema is one, and that its references lead somewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fastlane.errors import ConfigurationError

from .by_content import written
from .references import Schema

# Keywords that hold values, and those that hold schemas by name, where all others hold schemas.
_VALUES = frozenset(("const", "enum", "default", "examples"))
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))


def check_schema(schema: Schema, where: str = "") -> bytes:
    """Return a schema as JSON. `where`: what it was given to, for errors.

    The result is kept by content. Nothing is ever fetched.

    Raises ConfigurationError for what is no JSON schema, or has a reference that leads nowhere in it.
    """
    prefix = f"{where} takes a JSON schema: " if where else ""
    try:
        text = written(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{prefix}a JSON schema was expected, got something that cannot be written as JSON"
        ) from error
    mistake = _mistake(text)
    if mistake is not None:
        raise ConfigurationError(f"{prefix}{mistake}")
    return text


@lru_cache(maxsize=256)
def _mistake(written_schema: bytes) -> str | None:
    import jsonschema  # type: ignore[import-untyped]

    schema = json.loads(written_schema)
    if not isinstance(schema, dict | bool):
        return f"a JSON schema is an object or a boolean, got {type(schema).__name__}"
    stock = draft_of(schema)
    try:
        stock.check_schema(schema, format_checker=None)
    except jsonschema.SchemaError as error:
        return f"no valid JSON schema: at {error.json_path.removeprefix('$.'):.200}: {error.message:.200}"
    except BaseException as error:
        if isinstance(error, RecursionError) or is_panic(error):
            return "the JSON schema is nested too deeply to be checked"
        raise
    if isinstance(schema, dict):
        schema.pop("$schema", None)  # of a dialect that is not known here no reference could be looked up
    lost = _lost_reference(schema, stock)
    if lost is not None:
        return (
            f"the JSON schema's reference {lost!r:.200} leads nowhere inside of it, and nothing is fetched: "
            "put what it means under $defs"
        )
    return None


def is_panic(error: BaseException) -> bool:
    """Return whether jsonschema's registry, which is Rust, ran out of stack: that is no Exception."""
    return type(error).__name__ == "PanicException"


def draft_of(schema: Any) -> Any:
    """Return jsonschema's class for the draft that a schema names, or for the newest."""
    import jsonschema

    named = schema.get("$schema") if isinstance(schema, dict) else None
    latest = jsonschema.Draft202012Validator
    return jsonschema.validators.validator_for(schema, default=latest) if isinstance(named, str) else latest


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema inside of a schema that is an object."""
    waiting = [schema]
    while waiting:
        at = waiting.pop()
        if isinstance(at, dict):
            yield at
            for keyword, value in at.items():
                if keyword in _BY_NAME and isinstance(value, dict):
                    waiting.extend(value.values())
                elif keyword not in _VALUES:
                    waiting.append(value)
        elif isinstance(at, list):
            waiting.extend(at)


def _lost_reference(schema: Any, stock: Any) -> str | None:
    """A reference that leads nowhere. Where identifiers stand inside of the schema, none is looked for beforehand."""
    import referencing
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    parts = list(parts_of(schema))
    references: set[str] = {part["$ref"] for part in parts if isinstance(part.get("$ref"), str)}
    if any(isinstance(part.get(name), str) for part in parts[1:] for name in ("$id", "id")):
        return None
    specification = specification_with(stock.META_SCHEMA.get("$schema", ""), default=DRAFT202012)
    resolver = REGISTRY.combine(referencing.Registry()).resolver_with_root(
        referencing.Resource.from_contents(schema, default_specification=specification)
        if isinstance(schema, dict)
        else specification.create_resource(schema)
    )
    for reference in sorted(references):
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError, LookupError, TypeError, AttributeError):
            return reference
    return None
