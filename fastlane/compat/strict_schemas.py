"""Make a JSON schema strict as openai's helpers do for pydantic models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def strict_json_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema with closed objects, required properties and bare references; None where that cannot be done.

    It cannot for a schema that is malformed or refers to itself without an end, and where openai's helper is missing.
    """
    try:
        from openai.lib._pydantic import _ensure_strict_json_schema

        made = copy.deepcopy(dict(schema))
        return _ensure_strict_json_schema(made, path=(), root=made)
    except Exception:  # noqa: BLE001 - it stays as it is, and the provider says what it thinks of it
        return None
