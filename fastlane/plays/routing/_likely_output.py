"""How many tokens an answer is likely to have, where its form says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What frames an answer beside its text.
_FRAME_TOKENS = 8


def likely_output(body: Mapping[str, Any], endpoint: str, task: str | None) -> float | None:
    """Return the tokens of a usual answer in the form that a body asks for; None where the form does not say.

    Where a field of it has no bound and the task has a name, what its answers have had says more. Never raises.
    """
    if "response_format" not in body and "text" not in body and "tool_choice" not in body:
        return None
    try:
        return _likely(body, endpoint, task)
    except Exception:  # noqa: BLE001 - the provider's own error is clearer
        return None


def _likely(body: Mapping[str, Any], endpoint: str, task: str | None) -> float | None:
    from fastlane.protocol.request_fields import only_tool, tools_of, wanted_of
    from fastlane.schemas.bound import schema_bound

    schema: Any = wanted_of(body, endpoint).schema
    if schema is None and (name := only_tool(body, endpoint)) is not None:
        tool = tools_of(body, endpoint).get(name)
        schema = tool.schema if tool is not None and isinstance(tool.schema, Mapping) else None
    if schema is None:
        return None
    found = schema_bound(schema)
    if found.unbounded and task is not None:
        return None
    return float(found.likely_tokens + _FRAME_TOKENS)
