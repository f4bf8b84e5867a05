"""The providers of OpenTelemetry that are in force. Nothing is imported to find them."""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib import import_module
from typing import Any

from . import settings as telemetry_settings
from .settings import TelemetrySettings

# With one of these, OpenTelemetry's API finds its provider by itself.
_finds_providers = any(os.environ.get(f"OTEL_PYTHON_{kind}_PROVIDER") for kind in ("TRACER", "METER"))

_MISSING = object()
_PLACEHOLDERS = frozenset({"ProxyTracerProvider", "_ProxyMeterProvider", "NoOpTracerProvider", "NoOpMeterProvider"})


class Providers:
    """The settings in force, the providers that they come to, and what is made for these once."""

    __slots__ = (
        "is_active", "keeps_spans", "measures", "meter_provider", "meters", "settings", "span_maker", "tracer_provider",
    )  # fmt: skip

    def __init__(self, settings: TelemetrySettings, tracer_provider: Any, meter_provider: Any) -> None:
        self.settings = settings
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider
        is_on = settings.level != "off"
        self.keeps_spans = is_on and not _is_placeholder(tracer_provider)
        self.measures = is_on and not _is_placeholder(meter_provider)
        self.is_active = self.keeps_spans or self.measures
        self.span_maker: Any = None
        self.meters: Any = None


def is_active() -> bool:
    """Return whether spans or metrics would be kept. Every call asks; nothing is imported."""
    try:
        return providers().is_active
    except Exception as error:  # noqa: BLE001 - a variable may name a provider that is not installed
        warn_once(type(error).__name__)
        return False


def providers() -> Providers:
    """Return the settings and the providers in force, in about a microsecond where they are as at the last call."""
    global _latest  # noqa: PLW0603
    latest, settings = _latest, telemetry_settings.current()
    tracers, meters = settings.tracer_provider, settings.meter_provider
    if tracers is None:
        tracers = _global_provider("opentelemetry.trace", "_TRACER_PROVIDER", "get_tracer_provider")
    if meters is None:
        meters = _global_provider("opentelemetry.metrics._internal", "_METER_PROVIDER", "get_meter_provider")
    if latest.settings is not settings or latest.tracer_provider is not tracers or latest.meter_provider is not meters:
        latest = _latest = Providers(settings, tracers, meters)
    return latest


def _global_provider(name: str, variable: str, function: str) -> Any:
    """Return the global provider that a module of OpenTelemetry's API keeps; None where none has been set."""
    module: Any = sys.modules.get(name)
    if _finds_providers:
        module = import_module(name)
    elif module is None:
        return None
    found = getattr(module, variable, _MISSING)
    # The function reads the environment as long as none is set, which each call would pay for.
    return getattr(module, function)() if found is _MISSING or (found is None and _finds_providers) else found


def _is_placeholder(provider: Any) -> bool:
    """Return whether a provider records nothing: none has been set yet, or none is wanted."""
    return provider is None or type(provider).__name__ in _PLACEHOLDERS


_latest = Providers(TelemetrySettings(level="off"), None, None)


@cache
def warn_once(error: str) -> None:
    """Log the class of an error that OpenTelemetry has raised, once."""
    logging.getLogger("fastlane").warning(
        "telemetry found no provider: OpenTelemetry raised %s; calls are not affected (logged once)", error
    )
