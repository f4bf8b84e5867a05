"""Whether anything reads telemetry, which every call asks; what needs OpenTelemetry is loaded with the first yes."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from ..records import listeners
from ..records.listeners import Listener
from . import _settings

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ..engine.user_action import user_action
    from ..records.listeners import ActionTrace, CallTrace

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
        _say_once(type(error).__name__)
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
def _say_once(kind: str) -> None:
    log = logging.getLogger("fastlane")
    log.warning("telemetry found no provider: OpenTelemetry raised %s; calls are not affected (logged once)", kind)


def is_placeholder(provider: Any) -> bool:
    """Whether a provider records nothing: none has been set yet, or none is wanted."""
    return provider is None or type(provider).__name__ in _PLACEHOLDERS


class _Telemetry(Listener):
    """Loads what needs OpenTelemetry when a call is to be followed."""

    is_active = staticmethod(active)

    def prepare(self) -> None:
        # With a client, and not with its first call, which may be made on an event loop: 30 ms of CPU.
        if active():
            try:
                from . import _call_trace  # noqa: F401
                from ._metrics import get_ready
                from ._tracer import tracer_of

                get_ready()
                tracer_of(_settings.current())
            except Exception as error:  # noqa: BLE001 - which every call will say
                _say_once(type(error).__name__)

    def trace_call(self, observation: Observation) -> CallTrace | None:
        from ._call_trace import trace_of

        return trace_of(observation)

    def trace_action(self, action: user_action, before: Any) -> ActionTrace | None:
        from ._action_span import ActionSpan

        return ActionSpan(action, before)

    def around_replaced(self, client: Any, issued: Any) -> tuple[AbstractContextManager[None], bool]:
        from ._around import entered

        return entered(client, issued)

    def beneath_official(self, method: Any) -> Any | None:
        from ._others import beneath_official

        return beneath_official(method)


listeners.listener = _Telemetry()
