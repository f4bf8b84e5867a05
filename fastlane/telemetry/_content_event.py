"""Prompt and answer as an event of OpenTelemetry's logs, for applications that have asked for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context

from . import _names as names

if TYPE_CHECKING:
    from ._settings import TelemetrySettings


def tell_content(attributes: dict[str, Any], settings: TelemetrySettings, context: Context | None) -> None:
    """Emit `gen_ai.client.inference.operation.details` with the attributes of a call and its messages."""
    from .._clock import wall_ns
    from .._version import __version__

    provider = settings.logger_provider if settings.logger_provider is not None else get_logger_provider()
    provider.get_logger(names.SCOPE, __version__).emit(
        LogRecord(
            timestamp=wall_ns(),
            context=context,
            severity_number=SeverityNumber.INFO,
            event_name=names.DETAILS_EVENT,
            attributes=attributes,
        )
    )
