"""What a request for a batch asks for, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastlane.emulator._batch_input import RESOURCES
from fastlane.emulator._errors import ApiError

_MOST_PAIRS, _MOST_KEY, _MOST_VALUE = 16, 64, 512
_LIFETIMES_S = range(3_600, 2_592_001)


class Asked(NamedTuple):
    """The batch that is asked for."""

    input_file_id: str
    endpoint: str
    metadata: Mapping[str, str] | None
    output_lifetime_s: int | None


def read_asked(body: Mapping[str, Any]) -> Asked:
    """Read the body of a request for a batch. Raises ApiError (400)."""
    file_id, endpoint, window = (_text(body, name) for name in ("input_file_id", "endpoint", "completion_window"))
    if endpoint not in RESOURCES:
        raise _invalid("endpoint", endpoint, tuple(RESOURCES))
    if window != "24h":
        raise _invalid("completion_window", window, ("24h",))
    expires = body.get("output_expires_after")
    lifetime = expires.get("seconds") if isinstance(expires, Mapping) else expires
    if lifetime is not None and (isinstance(lifetime, bool) or lifetime not in _LIFETIMES_S):
        message = "Invalid 'output_expires_after.seconds': expected an integer from 3600 to 2592000."
        raise ApiError(400, message, param="output_expires_after.seconds", code="invalid_value")
    return Asked(file_id, endpoint, _metadata(body.get("metadata")), lifetime)


def _text(body: Mapping[str, Any], name: str) -> str:
    if name not in body:
        raise ApiError(400, f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if not isinstance(body[name], str):
        raise ApiError(400, f"Invalid type for '{name}': expected a string.", param=name, code="invalid_type")
    return str(body[name])


def _invalid(name: str, value: str, known: tuple[str, ...]) -> ApiError:
    supported = ", ".join(f"'{each}'" for each in known)
    message = f"Invalid value: '{value[:128]}'. Supported values are: {supported}."
    return ApiError(400, message, param=name, code="invalid_value")


def _metadata(given: object) -> Mapping[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        message = "Invalid type for 'metadata': expected an object of strings."
        raise ApiError(400, message, param="metadata", code="invalid_type")
    if len(given) > _MOST_PAIRS:
        message = f"Invalid 'metadata': too many properties. Expected at most {_MOST_PAIRS}, but got {len(given)}."
        raise ApiError(400, message, param="metadata", code="object_above_max_properties")
    if any(len(key) > _MOST_KEY or len(value) > _MOST_VALUE for key, value in given.items()):
        message = f"Invalid 'metadata': keys have at most {_MOST_KEY} characters and values {_MOST_VALUE}."
        raise ApiError(400, message, param="metadata", code="string_above_max_length")
    return given
