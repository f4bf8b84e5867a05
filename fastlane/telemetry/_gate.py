"""Whether anything reads telemetry: the one question that every call asks of it."""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from typing import Any

from . import _settings

# With one of these, OpenTelemetry's API finds its provider by itself.
_finds_providers = any(os.environ.get(f"OTEL_PYTHON_{kind}_PROVIDER") for kind in ("TRACER", "METER"))

_PLACEHOLDERS = frozenset({"ProxyTracerProvider", "_ProxyMeterProvider", "NoOpTracerProvider", "NoOpMeterProvider"})

_last: tuple[Any, Any, bool] = (None, None, False)


def active() -> bool:
    """Whether spans or metrics would reach anybody.

    Nothing is imported to find that out: where the application has not imported OpenTelemetry's API, there is nobody.
    """
    global _last  # noqa: PLW0603 - the answer for the providers that it was asked of
    settings = _settings.current()
    if settings.level == "off":
        return False
    if settings.tracer_provider is not None or settings.meter_provider is not None:
        return True
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None and "opentelemetry.metrics" not in sys.modules:
        return _finds_providers
    try:
        traces, meters = _set(tracing, "get_tracer_provider", tracing, "_TRACER_PROVIDER"), meter_provider()
    except Exception as error:  # noqa: BLE001 - one that a variable names, and that is not there
        say_once(type(error).__name__)
        return False
    known = _last
    if known[0] is traces and known[1] is meters:
        return known[2]
    found = not (is_placeholder(traces) and is_placeholder(meters))
    _last = (traces, meters, found)
    return found


def meter_provider() -> Any:
    """The global provider of meters; None where none has been set."""
    modules = sys.modules
    return _set(
        modules.get("opentelemetry.metrics"),
        "get_meter_provider",
        modules.get("opentelemetry.metrics._internal"),
        "_METER_PROVIDER",
    )


def _set(module: Any, function: str, where: Any, variable: str) -> Any:
    # The function asks the environment as long as none is set, for which each call would pay.
    if not _finds_providers and getattr(where, variable, module) is None:
        return None
    # It may still be in the middle of its import.
    return getattr(module, function, _nobody)()


def _nobody() -> None:
    return None


@cache
def say_once(kind: str) -> None:
    """Warn that a provider could not be found."""
    log = logging.getLogger("fastlane")
    log.warning("telemetry found no provider: OpenTelemetry raised %s; calls are not affected (logged once)", kind)


def is_placeholder(provider: Any) -> bool:
    """Whether a provider records nothing: none has been set yet, or none is wanted."""
    return provider is None or type(provider).__name__ in _PLACEHOLDERS
