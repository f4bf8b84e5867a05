"""The tracer that spans are made with: of the provider that was given, or of the application's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Tracer, get_tracer_provider

from ._names import SCOPE

if TYPE_CHECKING:
    from ._settings import TelemetrySettings

_last: tuple[Any, Tracer] | None = None


def tracer_of(settings: TelemetrySettings) -> Tracer:
    """The tracer of whatever provider is in force now."""
    global _last  # noqa: PLW0603 - the tracer of the provider that was asked last
    provider = settings.tracer_provider if settings.tracer_provider is not None else get_tracer_provider()
    found = _last
    if found is None or found[0] is not provider:
        from .._version import __version__

        found = _last = (provider, provider.get_tracer(SCOPE, __version__))
    return found[1]
