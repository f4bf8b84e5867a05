"""Make a JSON schema strict as openai's helpers do for pydantic models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def strict_json_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema with closed objects, required properties and bare references; None if that is not possible.

    It is not possible for a malformed or infinitely recursive schema, and if openai's helper is missing.
    """
    try:
        from openai.lib._pydantic import _ensure_strict_json_schema

        made = copy.deepcopy(dict(schema))
        return _ensure_strict_json_schema(made, path=(), root=made)
    except Exception:  # noqa: BLE001 - the schema is sent unchanged, and the provider validates it
        return None
