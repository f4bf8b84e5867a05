"""The settings of telemetry and the providers in force. Nothing of OpenTelemetry is imported to find these."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args

from .._environment import flag, is_disabled
from ..engine.settings import settings as checked
from ..errors import ConfigurationError

Level = Literal["off", "call", "attempts", "phases"]
"""How much of a call becomes spans, each level with all of the one before.

- off: neither spans nor metrics
- call: one span a call, with every number on it
- attempts: and one for each HTTP request
- phases: and one for each part of a request: connecting, sending, waiting, first token, decode
"""

log = logging.getLogger("fastlane")

LEVEL_VARIABLE, PROPAGATE_VARIABLE = "FASTLANE_TELEMETRY_LEVEL", "FASTLANE_TELEMETRY_PROPAGATE"


@checked
class TelemetrySettings:
    """The settings of telemetry. Arguments of `configure()` take precedence over environment variables.

    Raises ConfigurationError for a value that its field does not allow.
    """

    level: Level = "call"
    propagate: bool = False
    """Whether the W3C trace context is sent to providers (`traceparent`, `tracestate`; never baggage)."""
    tracer_provider: Any = None
    """Used instead of OpenTelemetry's global one."""
    meter_provider: Any = None


def from_environment(environment: Mapping[str, str]) -> TelemetrySettings:
    """Read the settings from environment variables. Raises ConfigurationError, which names the variable."""
    if is_disabled(environment):
        return TelemetrySettings(level="off")
    level: Any = environment.get(LEVEL_VARIABLE, "").strip().lower() or "call"
    if level not in get_args(Level):
        raise ConfigurationError(f"{LEVEL_VARIABLE}: expected {', '.join(get_args(Level))}, got {level!r:.60}")
    return TelemetrySettings(level=level, propagate=flag(PROPAGATE_VARIABLE, environment) or False)


# What is in force

_module = sys.modules.get


class Providers:
    """The settings in force, the providers that they lead to, and what is made once for these."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self.settings = settings
        self.global_tracer_provider = getattr(_module("opentelemetry.trace"), "_TRACER_PROVIDER", None)
        self.global_meter_provider = getattr(_module("opentelemetry.metrics._internal"), "_METER_PROVIDER", None)
        self.tracer_provider = settings.tracer_provider or self.global_tracer_provider
        self.meter_provider = settings.meter_provider or self.global_meter_provider
        is_on = settings.level != "off"
        self.keeps_spans = is_on and not _is_placeholder(self.tracer_provider)
        self.measures = is_on and not _is_placeholder(self.meter_provider)
        self.is_active = self.keeps_spans or self.measures
        self.span_maker: Any = None
        self.meters: Any = None


_settings: TelemetrySettings | None = None
_latest: Providers | None = None


def current() -> TelemetrySettings:
    """Return the settings of this process: those of `configure()`, or else of the environment at the first call."""
    global _settings  # noqa: PLW0603 - there is one process
    if _settings is None:
        try:
            _settings = from_environment(os.environ)
        except ConfigurationError as error:
            # Telemetry must not fail a call; `configure()` raises the same error.
            log.warning("telemetry ignores its environment variables: %s", error)
            _settings = TelemetrySettings()
    return _settings


def use(settings: TelemetrySettings | None) -> None:
    """Replace the settings of this process; None: read the environment again."""
    global _settings, _latest
    _settings, _latest = settings, None


def providers() -> Providers:
    """Return the settings and the providers in force.

    The application may set a global provider at any time, so every call compares the two global variables with those
    of the call before.
    """
    global _latest  # noqa: PLW0603
    latest = _latest
    tracers = getattr(_module("opentelemetry.trace"), "_TRACER_PROVIDER", None)
    meters = getattr(_module("opentelemetry.metrics._internal"), "_METER_PROVIDER", None)
    if latest is None or tracers is not latest.global_tracer_provider or meters is not latest.global_meter_provider:
        latest = _latest = Providers(current())
    return latest


_PLACEHOLDERS = frozenset({"ProxyTracerProvider", "_ProxyMeterProvider", "NoOpTracerProvider", "NoOpMeterProvider"})


def _is_placeholder(provider: Any) -> bool:
    """Return whether a provider records nothing: none has been set yet, or none is wanted."""
    return provider is None or type(provider).__name__ in _PLACEHOLDERS


@cache
def warn_once(message: str, *arguments: object) -> None:
    """Log a warning, once in this process."""
    log.warning("%s (logged once)", message % arguments)


def warn_of_error(doing: str, error: Exception) -> None:
    """Log the class of an error that telemetry has caught, once."""
    warn_once("telemetry: %s raised %s; calls are not affected", doing, type(error).__name__)
