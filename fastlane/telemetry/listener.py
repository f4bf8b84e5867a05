"""Register telemetry with the engine. OpenTelemetry is loaded only where the application has loaded it before."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from ..records import listeners
from . import settings as telemetry_settings

if TYPE_CHECKING:
    from ..engine.call_state import CallState
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace

# With one of these, OpenTelemetry's API finds its provider by itself.
_finds_providers = any(os.environ.get(f"OTEL_PYTHON_{kind}_PROVIDER") for kind in ("TRACER", "METER"))

_PLACEHOLDERS = frozenset({"ProxyTracerProvider", "_ProxyMeterProvider", "NoOpTracerProvider", "NoOpMeterProvider"})

_last: tuple[Any, Any, bool] = (None, None, False)


def is_active() -> bool:
    """Return whether spans or metrics would be kept. Every call asks; nothing is imported."""
    global _last  # noqa: PLW0603 - the answer for the providers that were looked at last
    settings = telemetry_settings.in_force or telemetry_settings.current()
    if settings.level == "off":
        return False
    if settings.tracer_provider is not None or settings.meter_provider is not None:
        return True
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None and "opentelemetry.metrics" not in sys.modules:
        return _finds_providers
    try:
        tracers = _get_global(tracing, "get_tracer_provider", tracing, "_TRACER_PROVIDER")
        meters = meter_provider()
    except Exception as error:  # noqa: BLE001 - a variable may name one that is not installed
        _warn_once(type(error).__name__)
        return False
    last = _last
    if last[0] is tracers and last[1] is meters:
        return last[2]
    found = not (is_placeholder(tracers) and is_placeholder(meters))
    _last = (tracers, meters, found)
    return found


def meter_provider() -> Any:
    """Return the global MeterProvider; None where none has been set."""
    api, internal = sys.modules.get("opentelemetry.metrics"), sys.modules.get("opentelemetry.metrics._internal")
    return _get_global(api, "get_meter_provider", internal, "_METER_PROVIDER")


def _get_global(api: Any, function: str, module: Any, variable: str) -> Any:
    # As long as none is set, the API's function reads the environment, which each call would pay for.
    if not _finds_providers and getattr(module, variable, api) is None:
        return None
    get = getattr(api, function, None)  # missing in the middle of the API's import
    return None if get is None else get()


def is_placeholder(provider: Any) -> bool:
    """Return whether a provider records nothing: none has been set yet, or none is wanted."""
    return provider is None or type(provider).__name__ in _PLACEHOLDERS


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
                from .spans import span_starter

                settings = telemetry_settings.current()
                meters_of(settings)
                span_starter(settings)
            except Exception as error:  # noqa: BLE001 - which every call will say
                _warn_once(type(error).__name__)

    def trace_call(self, observation: CallState) -> CallTrace | None:
        from .call_trace import trace_of

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
