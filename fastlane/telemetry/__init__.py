"""Spans and metrics of every call, through OpenTelemetry, for the tools that people already run.

OpenTelemetry is imported only after the application has imported it or has called `configure()`.
"""

from typing import TYPE_CHECKING, Any

from . import listener as listener
from .experiments import ExperimentArm as ExperimentArm, experiment as experiment
from .settings import TelemetrySettings as TelemetrySettings

if TYPE_CHECKING:
    from .configuration import Telemetry as Telemetry, configure as configure

__all__ = ["ExperimentArm", "Telemetry", "TelemetrySettings", "configure", "experiment"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("Telemetry", "configure"):
            from . import configuration

            return getattr(configuration, name)
        raise AttributeError(f"module 'fastlane.telemetry' has no attribute {name!r}")
