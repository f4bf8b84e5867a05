"""What one request may ask of the emulator by its `x-emulator-…` headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fastlane.emulator._errors import ApiError
from fastlane.emulator._faults import Fault, parse_faults
from fastlane.emulator.settings import Manner, parse_manners

from ..errors import ConfigurationError

_Value = TypeVar("_Value")
# A request for more would only fill the memory of the machine that tests with it.
_MOST_TOKENS = 1_000_000
_MOST_MS = 3_600_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The request's own wishes; None where it has none."""

    tag: str | None = None
    faults: tuple[Fault, ...] = ()
    manners: tuple[Manner, ...] | None = None
    output_text: str | None = None
    tool_call: str | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    prefill_ms: float | None = None
    token_ms: float | None = None
    draw: int | None = None


def read_overrides(headers: Mapping[str, str]) -> Overrides:
    """Read them. Raises ApiError (400) for a value that cannot be."""
    return Overrides(
        tag=headers.get("x-emulator-tag"),
        faults=_read(headers, "x-emulator-fault", parse_faults) or (),
        manners=_read(headers, "x-emulator-manner", parse_manners),
        output_text=headers.get("x-emulator-output-text"),
        tool_call=headers.get("x-emulator-tool-call"),
        output_tokens=_read(headers, "x-emulator-output-tokens", lambda text: _number(int(text), _MOST_TOKENS)),
        reasoning_tokens=_read(headers, "x-emulator-reasoning-tokens", lambda text: _number(int(text), _MOST_TOKENS)),
        prefill_ms=_read(headers, "x-emulator-prefill-ms", lambda text: _number(float(text), _MOST_MS)),
        token_ms=_read(headers, "x-emulator-token-ms", lambda text: _number(float(text), _MOST_MS)),
        draw=_read(headers, "x-emulator-draw", lambda text: _number(int(text), 2**63)),
    )


def _read(headers: Mapping[str, str], name: str, read: Callable[[str], _Value]) -> _Value | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        return read(text)
    except (ConfigurationError, ValueError) as error:
        raise ApiError(400, f"{name}: {error}", param=name, code="invalid_value") from error


_Number = TypeVar("_Number", int, float)


def _number(value: _Number, most: _Number) -> _Number:
    if not 0 <= value <= most:
        raise ValueError(f"must be a number from 0 to {most}, got {value}")
    return value
