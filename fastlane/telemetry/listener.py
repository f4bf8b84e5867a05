"""Register telemetry with the engine. OpenTelemetry is loaded only where the application has loaded it before."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..records import listeners
from . import settings as telemetry_settings
from .settings import TelemetrySettings

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace
    from .recorder import Meters
    from .spans import SpanMaker

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
        self.span_maker: SpanMaker | None = None
        self.meters: Meters | None = None


def is_active() -> bool:
    """Return whether spans or metrics would be kept. Every call asks; nothing is imported."""
    try:
        return providers().is_active
    except Exception as error:  # noqa: BLE001 - a variable may name a provider that is not installed
        _warn_once(type(error).__name__)
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
def _warn_once(error: str) -> None:
    logging.getLogger("fastlane").warning(
        "telemetry found no provider: OpenTelemetry raised %s; calls are not affected (logged once)", error
    )


class _Telemetry(listeners.Listener):
    """Spans and metrics of OpenTelemetry."""

    is_active = staticmethod(is_active)

    def prepare(self) -> None:
        # With a client and not with its first call, which may be made on an event loop: 30 ms of CPU.
        if is_active():
            try:
                from . import call_trace  # noqa: F401
                from .recorder import meters_of
                from .spans import span_maker

                meters_of(providers())
                span_maker(providers())
            except Exception as error:  # noqa: BLE001 - which every call will say
                _warn_once(type(error).__name__)

    def trace_call(self, observation: Observation) -> CallTrace | None:
        from .call_trace import trace_of

        self.trace_call = trace_of  # type: ignore[method-assign] # without an import for each call
        return trace_of(observation)

    def trace_action(self, action: user_action, before: Any) -> ActionTrace | None:
        from .action_span import ActionSpan

        return ActionSpan(action, before)

    def around_replaced(self, client: Any, issued: Any) -> tuple[AbstractContextManager[None], bool]:
        from .coexistence import around_replaced

        return around_replaced(client, issued)

    def beneath_official(self, method: Any) -> Any | None:
        from .coexistence import beneath_official

        return beneath_official(method)


listeners.listener = _Telemetry()
