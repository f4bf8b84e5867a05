"""Send the W3C trace context along with a request, only when asked: it goes to somebody else's servers."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_trace_context = TraceContextTextMapPropagator()


def propagate(headers: Any, context: Context) -> None:
    """Set `traceparent` and `tracestate`; never baggage, which holds the application's own values."""
    _trace_context.inject(headers, context)
