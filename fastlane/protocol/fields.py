"""Read fields of JSON objects and of openai's objects; a missing or invalid field is None, never an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

# Names from a provider are not trusted, because its texts may quote prompts and keys: a name is one short word.
_NAME = re.compile(r"[!-~]{1,128}")
ID = re.compile(r"[!-~]{1,512}")
_MAX_NAMES = 1_024
known_names: set[str | None] = {None}
"""Names that `safe_name` has accepted, and None."""


def from_json(data: bytes | str) -> Any:
    """Parse JSON into objects with attributes, as openai's are. Raises ValueError for invalid JSON."""
    try:
        return json.loads(data, object_hook=lambda fields: SimpleNamespace(**fields))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be read") from None


def field(source: Any, name: str) -> Any:
    """Return a field of an object or of a JSON object; None if it is missing."""
    if isinstance(source, BaseModel):
        # pydantic takes microseconds to raise for a missing attribute.
        fields = source.__dict__
        if name in fields:
            return fields[name]
        extra = source.__pydantic_extra__
        return extra.get(name) if extra else None
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of an object that the provider sent; None for anything that is not an object."""
    if isinstance(value, dict):
        return value
    if isinstance(value, BaseModel):
        found, sent, extra = value.__dict__, value.__pydantic_fields_set__, value.__pydantic_extra__
        if len(found) > len(sent) or extra:
            found = {name: each for name, each in found.items() if name in sent}
            if extra:
                found |= extra
        return found
    return value if isinstance(value, Mapping) else None


def string(value: Any) -> str | None:
    """Return a non-empty string; None for anything else."""
    return value if isinstance(value, str) and value else None


def position_of(value: Any) -> int:
    """Return an index; 0 if it is missing or invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def listed(value: Any) -> list[Any] | tuple[Any, ...]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list | tuple) else ()


def safe_name(name: str | None) -> str | None:
    """Return a name that a provider sent, such as a model's or a finish reason; "_OTHER" if it can't be a name."""
    if name in known_names:
        return name
    if name is None or _NAME.fullmatch(name) is None:
        return "_OTHER"
    if len(known_names) < _MAX_NAMES:
        known_names.add(name)
    return name


def safe_id(id_: str | None) -> str | None:
    """Return an id that a provider sent; None if it can't be an id."""
    return id_ if id_ is not None and ID.fullmatch(id_) is not None else None
