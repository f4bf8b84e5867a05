"""`configure()`: the settings of telemetry, and providers of OpenTelemetry's SDK where the application has none."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from .._fork import new_lock, starts_over
from ..errors import ConfigurationError, MissingExtraError
from . import running_calls, settings as telemetry_settings
from .settings import Level, TelemetrySettings, from_environment
from .trace_files import DIRECTORY_VARIABLE, TraceFile

log = logging.getLogger("fastlane")

TRACES, METRICS = "traces", "metrics"

_KINDS = {TRACES: "tracer", METRICS: "meter"}
"""What the provider of each signal makes: OpenTelemetry's functions are named after it."""

_FILE_EXPORTER: Final = "otlp_json_file"
_FILE_DELAY_MS: Final = 500
_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "http/json": "otlp_json_http", "grpc": "otlp_proto_grpc"}
_PACKAGES = {
    _FILE_EXPORTER: "opentelemetry-exporter-otlp-json-file",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}
"""The packages of the extra `telemetry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What `configure()` has set up."""

    settings: TelemetrySettings
    tracer_provider: Any
    """The provider that spans go to: the given one or the global one; None if there is none."""
    meter_provider: Any
    trace_file: Path | None
    """The file that this process writes spans to, from the first span on; None if it writes to none."""

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Send what is not sent yet. Return whether every provider has done so within `timeout_s` seconds.

        OpenTelemetry's batch processors do not keep to that time: `OTEL_EXPORTER_OTLP_TIMEOUT` limits each request.
        """
        providers = [one for one in (self.meter_provider, self.tracer_provider) if hasattr(one, "force_flush")]
        results = [one.force_flush(timeout_millis=int(timeout_s * 1e3)) for one in providers]
        return False not in results


_lock = new_lock()
_given: dict[str, Any] = {}
"""The arguments of `configure()` in this process so far."""
_file: TraceFile | None = None


def configure(
    *,
    level: Level | None = None,
    propagate: bool | None = None,
    tracer_provider: Any = None,
    meter_provider: Any = None,
) -> Telemetry:
    """Set what telemetry does and, where the application has no OpenTelemetry provider, build one and set it.

    The settings are those of `TelemetrySettings`. An argument takes precedence over its environment variable, and
    holds in further calls of `configure()` that do not name it. A provider that is given or set globally is used as it
    is. Else OpenTelemetry's SDK sends where its OTEL_* variables say; where they say nothing, spans go to a file, which
    `fastlane trace view --last` shows. The SDK sends what is not sent yet when the process ends.

    Raises ConfigurationError, which names the variable or the argument, and MissingExtraError where an exporter is not
    installed.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    for kind in _KINDS.values():
        provider = given.get(f"{kind}_provider")
        if provider is not None and not hasattr(provider, f"get_{kind}"):
            raise ConfigurationError(
                f"configure({kind}_provider=...) takes a provider of OpenTelemetry's, got {type(provider).__name__}"
            )
    with _lock:
        settings = replace(from_environment(os.environ), **{**_given, **given})
        providers = {
            signal: getattr(settings, f"{kind}_provider") or _global_provider(signal) for signal, kind in _KINDS.items()
        }
        if settings.level != "off" and os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
            exporters = {signal: _make_exporters(signal) for signal in providers if providers[signal] is None}
            for signal, its in exporters.items():
                if its:
                    getattr(_api(signal), f"set_{_KINDS[signal]}_provider")(_build_provider(signal, its))
                    providers[signal] = _global_provider(signal)
        _given.update(given)
        telemetry_settings.use(settings)
    if any(provider is not None for provider in providers.values()):
        # Now, and not in the first call or user action: 20 ms.
        from . import traces  # noqa: F401
    return Telemetry(
        settings=settings,
        tracer_provider=providers[TRACES],
        meter_provider=providers[METRICS],
        trace_file=None if _file is None else _file.path,
    )


def _make_exporters(signal: str) -> list[Any]:
    """Make the exporters of one signal; of metrics, they may be readers."""
    names = _exporter_names(signal)
    # Metrics are exported only on request: once a minute, they would fill a file of calls.
    if names is None and signal == TRACES:
        try:
            log.info("spans are written to %s", _open_file().path)
            names = [_FILE_EXPORTER]
        except ConfigurationError as error:
            if os.environ.get(DIRECTORY_VARIABLE):
                raise
            # An application has to start where there is no home directory.
            log.warning("no spans are kept: %s", error)
    kinds = {name: _exporter_class(signal, name) for name in names or []}
    if _FILE_EXPORTER in kinds:
        kinds[_FILE_EXPORTER] = partial(kinds[_FILE_EXPORTER], stream=_open_file())
        if signal == TRACES:
            running_calls.watched = running_calls.RunningCalls(_open_file())
    return [kind() if hasattr(kind, "collect") else _Exporter(kind) for kind in kinds.values()]


def _open_file() -> TraceFile:
    global _file  # noqa: PLW0603 - one file in each process
    _file = _file or TraceFile()
    return _file


def _api(signal: str) -> Any:
    return import_module(f"opentelemetry.{'trace' if signal == TRACES else METRICS}")


def _global_provider(signal: str) -> Any:
    """Return the global provider of a signal; None if none has been set."""
    provider = getattr(_api(signal), f"get_{_KINDS[signal]}_provider")()
    is_proxy = "Proxy" in type(provider).__name__ and type(provider).__module__.startswith("opentelemetry.")
    return None if is_proxy else provider


def _exporter_names(signal: str) -> list[str] | None:
    """Return the names of the exporters that variables ask for, none if they want none; None without variables."""
    if named := os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip():
        names = [name.strip() for name in named.split(",") if name.strip()]
        return [] if "none" in names else names
    return ["otlp"] if _otlp_variable(signal, "ENDPOINT") else None


def _otlp_variable(signal: str, what: str) -> str:
    """Return the value of OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or else of OTEL_EXPORTER_OTLP_ENDPOINT."""
    get = os.environ.get
    return (get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}") or get(f"OTEL_EXPORTER_OTLP_{what}") or "").strip()


def _exporter_class(signal: str, name: str) -> Any:
    """Load the class of an exporter. Raises MissingExtraError or ConfigurationError where it is not installed."""
    if name == "otlp":
        protocol = _otlp_variable(signal, "PROTOCOL").lower() or "http/protobuf"
        if protocol not in _BY_PROTOCOL:
            raise ConfigurationError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL: expected {', '.join(_BY_PROTOCOL)}, got {protocol!r:.60}"
            )
        name = _BY_PROTOCOL[protocol]
    group = f"opentelemetry_{signal}_exporter"
    try:
        return next(iter(entry_points(group=group, name=name))).load()
    except (StopIteration, ImportError) as error:
        if name in _PACKAGES:
            raise MissingExtraError("telemetry", _PACKAGES[name]) from error
        known = sorted({one.name for one in entry_points(group=group)} | {"none", "otlp"})
        raise ConfigurationError(
            f"OTEL_{signal.upper()}_EXPORTER or its protocol asks for the exporter {name!r:.60}, which cannot be "
            f"imported; installed are {', '.join(known)}"
        ) from error


class _Exporter:
    """An exporter of any signal that a forked child makes anew: connections and locks are its parent's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._exporter = make, make()
        starts_over(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)

    def begin_in_child(self) -> None:
        """See `StartsOver`."""
        self._exporter = self._make()


def _build_provider(signal: str, exporters: list[Any]) -> Any:
    """Build a provider that sends to these exporters. The SDK reads its other variables by itself."""
    if signal == METRICS:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        readers = [one if hasattr(one, "collect") else PeriodicExportingMetricReader(one) for one in exporters]
        return MeterProvider(metric_readers=readers)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    # A file may be followed, and a write costs less than a request.
    delay_ms = _FILE_DELAY_MS if _file is not None and not os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else None
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=delay_ms))
    return provider
