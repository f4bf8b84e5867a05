"""What one request may ask of the emulator by its `x-emulator-…` headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastlane.emulator._errors import ApiError
from fastlane.emulator._faults import Fault, parse_all
from fastlane.emulator._manner import Manner, parse_manners

from ..errors import ConfigurationError

_Value = TypeVar("_Value", int, float)

# A request for more would only fill the memory of the machine that tests with it.
_MAXIMUM_OUTPUT_TOKENS = 1_000_000
_LIMITS = ("off", "requests", "tokens", "quota", "tier", "overload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """The request's own wishes; None where it has none."""

    tag: str | None = None
    faults: tuple[Fault, ...] = ()
    output_tokens: int | None = None
    output_text: str | None = None
    reasoning_tokens: int | None = None
    tool_call: str | None = None
    prefill_ms: float | None = None
    token_ms: float | None = None
    draw: int | None = None
    manners: tuple[Manner, ...] | None = None
    limits: str | None = None
    """`off`: not rate limited; or what it is refused for, whatever the limits: see `_LIMITS`."""
    served_tier: str | None = None
    """The tier that serves it, whatever was asked."""


def read_overrides(headers: Mapping[str, str]) -> Overrides:
    """Read them. Raises ApiError (400) for a value that cannot be."""
    try:
        faults = parse_all(headers.get("x-emulator-fault", ""))
    except ConfigurationError as error:
        raise ApiError(400, str(error), param="x-emulator-fault", code="invalid_fault") from error
    manner = headers.get("x-emulator-manner")
    try:
        manners = None if manner is None else parse_manners(manner)
    except ConfigurationError as error:
        raise ApiError(400, str(error), param="x-emulator-manner", code="invalid_manner") from error
    return Overrides(
        tag=headers.get("x-emulator-tag"),
        faults=faults,
        output_tokens=_number(headers, "x-emulator-output-tokens", int, _MAXIMUM_OUTPUT_TOKENS),
        output_text=headers.get("x-emulator-output-text"),
        reasoning_tokens=_number(headers, "x-emulator-reasoning-tokens", int, _MAXIMUM_OUTPUT_TOKENS),
        tool_call=headers.get("x-emulator-tool-call"),
        prefill_ms=_number(headers, "x-emulator-prefill-ms", float, 3_600_000.0),
        token_ms=_number(headers, "x-emulator-token-ms", float, 3_600_000.0),
        draw=_number(headers, "x-emulator-draw", int, 2**63),
        manners=manners,
        limits=_one_of(headers, "x-emulator-limits", _LIMITS),
        served_tier=headers.get("x-emulator-served-tier"),
    )


def _one_of(headers: Mapping[str, str], name: str, known: Sequence[str]) -> str | None:
    text = headers.get(name)
    if text is not None and text not in known:
        raise ApiError(400, f"{name} must be one of {', '.join(known)}, got {text!r}.", param=name)
    return text


def _number(headers: Mapping[str, str], name: str, convert: Callable[[str], _Value], most: _Value) -> _Value | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        value = convert(text)
    except ValueError:
        value = convert("-1")
    if not 0 <= value <= most:
        raise ApiError(400, f"{name} must be a number from 0 to {most}, got {text!r}.", param=name)
    return value
