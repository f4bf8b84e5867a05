"""Whether there is anybody to tell: the one question that every call asks of telemetry."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import _settings

# With one of these, OpenTelemetry's API finds its provider by itself.
_PROVIDER_VARIABLES = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")

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
    tracing, measuring = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    if tracing is None and measuring is None:
        return any(os.environ.get(variable) for variable in _PROVIDER_VARIABLES)
    # Either may still be in the middle of its import.
    traces = getattr(tracing, "get_tracer_provider", _nobody)()
    meters = getattr(measuring, "get_meter_provider", _nobody)()
    known = _last
    if known[0] is traces and known[1] is meters:
        return known[2]
    found = any(type(one).__name__ not in _PLACEHOLDERS for one in (traces, meters) if one is not None)
    _last = (traces, meters, found)
    return found


def _nobody() -> None:
    return None
