"""Spans and metrics of every call, through OpenTelemetry, for the tools that people already run.

Nothing is imported and nothing happens before the application has imported OpenTelemetry, or has called `configure()`.
"""

from typing import TYPE_CHECKING, Any

from . import _listener as _listener
from ._experiment import Experiment as Experiment, experiment as experiment
from ._settings import TelemetrySettings as TelemetrySettings

if TYPE_CHECKING:
    from ._configure import Telemetry as Telemetry, configure as configure

__all__ = ["Experiment", "Telemetry", "TelemetrySettings", "configure", "experiment"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("Telemetry", "configure"):
            from . import _configure

            return getattr(_configure, name)
        raise AttributeError(f"module 'fastlane.telemetry' has no attribute {name!r}")
