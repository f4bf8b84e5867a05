"""`configure()`: the settings of telemetry, and providers of OpenTelemetry's SDK where the application has none."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from .._fork import new_rlock
from ..errors import ConfigurationError, MissingExtraError
from . import settings as telemetry_settings
from .settings import Capture, Coexistence, Conventions, Level, TelemetrySettings, from_environment
from .trace_files import DIRECTORY_VARIABLE, TraceFile

EXIT_TIMEOUT_S: Final = 3.0
"""How long the end of a process waits for what is not sent yet. A healthy collector needs a fraction of it."""

log = logging.getLogger("fastlane")

TRACES, METRICS, LOGS = "traces", "metrics", "logs"

# For each signal: the setting for its provider, the method of any provider, and the module of OpenTelemetry's API.
_PROVIDERS = {TRACES: "tracer_provider", METRICS: "meter_provider", LOGS: "logger_provider"}
_METHODS = {TRACES: "get_tracer", METRICS: "get_meter", LOGS: "get_logger"}
_MODULES = {TRACES: "opentelemetry.trace", METRICS: "opentelemetry.metrics", LOGS: "opentelemetry._logs"}

_FILE_EXPORTER = "otlp_json_file"
_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "http/json": "otlp_json_http", "grpc": "otlp_proto_grpc"}
_PACKAGES = {
    _FILE_EXPORTER: "opentelemetry-exporter-otlp-json-file",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}
"""The packages of the extra `telemetry`."""


def configure(
    *,
    level: Level | None = None,
    coexistence: Coexistence | None = None,
    conventions: Conventions | None = None,
    propagate: bool | None = None,
    compat: bool | None = None,
    capture: Capture | None = None,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    logger_provider: Any = None,
    trace_file: str | os.PathLike[str] | None = None,
    resource: Any = None,
) -> Telemetry:
    """Set what telemetry does and, where the application has no OpenTelemetry provider, build one and set it.

    The settings are those of `TelemetrySettings`. An argument takes precedence over its environment variable, and
    holds in further calls of `configure()` that do not name it. A provider that is given or set globally is used as it
    is, and never shut down. Else OpenTelemetry's SDK sends where its OTEL_* variables say; where they say nothing,
    spans go to a file, which `fastlane trace view --last` shows. `trace_file` is such a file by name, beside what the
    variables say; `resource` has attributes of what is observed, such as `{"service.name": "checkout"}`.

    What is not sent yet is sent when the process ends, for three seconds at most. Raises ConfigurationError, which
    names the variable or the argument, and MissingExtraError where an exporter is not installed.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    trace_file, resource = given.pop("trace_file", None), given.pop("resource", None)
    for signal, name in _PROVIDERS.items():
        if name in given and not callable(getattr(given[name], _METHODS[signal], None)):
            raise ConfigurationError(
                f"configure({name}=...) takes a provider of OpenTelemetry's, got {type(given[name]).__name__}"
            )
    if trace_file is not None and not isinstance(trace_file, str | os.PathLike):
        raise ConfigurationError(f"configure(trace_file=...) takes the path of a file, got {type(trace_file).__name__}")
    if resource is not None and not (isinstance(resource, Mapping) or hasattr(resource, "attributes")):
        raise ConfigurationError(
            f"configure(resource=...) takes attributes such as {{'service.name': 'checkout'}}, got "
            f"{type(resource).__name__}"
        )
    telemetry = _process.configure(given, None if trace_file is None else Path(trace_file), resource)
    if telemetry.tracer_provider is not None or telemetry.meter_provider is not None:
        # Now, and not in the first call or user action: 20 ms.
        from . import traces  # noqa: F401
    return telemetry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Telemetry:
    """What `configure()` has set up."""

    settings: TelemetrySettings
    tracer_provider: Any
    """The provider that spans go to: the given one, the application's, or fastlane's; None where there is none."""
    meter_provider: Any
    logger_provider: Any
    """None unless prompts and answers are asked for as events."""
    _built: _Built = field(compare=False)

    @property
    def trace_file(self) -> Path | None:
        """The file that this process writes spans to, from the first span on; None where it writes to none."""
        file = self._built.file
        return None if file is None else file.path

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Send what is not sent yet. Return whether that was done within `timeout_s` seconds. Raises nothing.

        A batch that a collector refuses is not kept.
        """
        failures = self._built.failures
        providers = (self.meter_provider, self.tracer_provider, self.logger_provider)
        is_done = _flush([one.force_flush for one in providers if hasattr(one, "force_flush")], timeout_s)
        return is_done and self._built.failures == failures

    def shutdown(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """Send what is not sent yet, and end the providers that `configure()` has built, not the application's.

        Returns after `timeout_s` seconds at the latest. A further `configure()` builds anew.
        """
        _process.shutdown(self._built, timeout_s)

    def __repr__(self) -> str:
        shown = [f"level={self.settings.level!r}", f"conventions={self.settings.conventions!r}"]
        for name in _PROVIDERS.values():
            provider = getattr(self, name)
            shown.append(f"{name}={None if provider is None else type(provider).__name__}")
        return (
            f"Telemetry({', '.join(shown)}, trace_file={None if self.trace_file is None else str(self.trace_file)!r})"
        )


def _flush(steps: list[Callable[..., Any]], timeout_s: float) -> bool:
    done: list[bool] = []

    def run() -> None:
        for step in steps:
            try:
                done.append(step(timeout_millis=max(1, int(timeout_s * 1e3))) is not False)
            except Exception as error:  # noqa: BLE001 - of any exporter
                log.warning("telemetry could not be sent: %s", type(error).__name__)
                done.append(False)

    # In a thread, because the SDK's batch processors ignore the timeout.
    thread = threading.Thread(target=run, name="fastlane-telemetry-flush", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process ends
        run()
    else:
        thread.join(timeout_s)
    return len(done) == len(steps) and all(done)


class _Built:
    """The providers that fastlane has built, and the thread that ends them."""

    def __init__(self) -> None:
        self.providers: dict[str, Any] = {}
        self.file: TraceFile | None = None
        self.resource: Any = None
        self.failures = 0
        """Batches that could not be sent."""
        self._end = threading.Event()
        # Started early: at the end of a process no thread can be. The SDK's own shutdown has no limit of time.
        self._thread = threading.Thread(target=self._run, name="fastlane-telemetry-end", daemon=True)

    def build(self, signals: list[str], trace_file: Path | None, resource: Any) -> None:
        """Build the providers of these signals that have exporters. Raises ConfigurationError, MissingExtraError."""
        file_before, made = self.file, {}
        try:
            if trace_file is not None:
                self.file = self.file or TraceFile(trace_file)
            exporters = {signal: self._exporters(signal, trace_file) for signal in signals}
            for signal, its in exporters.items():
                if its:
                    made[signal] = _provider(signal, its, self.resource if resource is None else resource)
        except BaseException:
            for provider in made.values():
                provider.shutdown()
            self.file = file_before
            raise
        if not made:
            return
        if not self.providers:
            self._thread.start()
            atexit.register(self.shutdown, EXIT_TIMEOUT_S)
        self.providers |= made
        self.resource = self.resource if resource is None else resource
        if self.file is not None and TRACES in made:
            log.info("spans are written to %s", self.file.path)

    def _exporters(self, signal: str, trace_file: Path | None) -> list[Any]:
        """Make the exporters of one signal; of metrics, they may be readers."""
        names = _exporter_names(signal)
        if signal == TRACES and trace_file is not None:
            names = [*(names or []), _FILE_EXPORTER]
        if names is None and signal != METRICS and self._has_default_file():
            # Metrics are exported only where that is asked for: once a minute, they would fill a file of calls.
            names = [_FILE_EXPORTER]
        kinds = {name: _load(signal, name) for name in dict.fromkeys(names or [])}
        if _FILE_EXPORTER in kinds:
            self.file = self.file or TraceFile()
            kinds[_FILE_EXPORTER] = partial(kinds[_FILE_EXPORTER], stream=self.file)
        return [kind() if hasattr(kind, "collect") else _Exporter(kind, self) for kind in kinds.values()]

    def _has_default_file(self) -> bool:
        try:
            self.file = self.file or TraceFile()
        except ConfigurationError as error:
            if os.environ.get(DIRECTORY_VARIABLE):
                raise
            # An application has to start where there is no home directory.
            log.warning("no spans are kept: %s", error)
        return self.file is not None

    def _run(self) -> None:
        self._end.wait()
        self._shutdown()

    def _shutdown(self) -> None:
        for provider in list(self.providers.values()):
            with contextlib.suppress(Exception):  # which the SDK has logged
                provider.shutdown()
        if self.file is not None:
            self.file.close()

    def shutdown(self, timeout_s: float) -> None:
        """Send what is not sent yet, and end the providers. Returns after `timeout_s` seconds at the latest."""
        if self._thread.is_alive():
            self._end.set()
            self._thread.join(timeout_s)
        elif self.providers and not self._end.is_set():  # a forked child, which has no threads
            self._shutdown()


class _Process:
    """What `configure()` has done in this process so far."""

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._given: dict[str, Any] = {}
        self._built = _Built()
        self._ours: list[Any] = []
        """Every provider that was built, also those that have ended."""

    def configure(self, given: dict[str, Any], trace_file: Path | None, resource: Any) -> Telemetry:
        with self._lock:
            everything = {**self._given, **given}
            settings = from_environment(os.environ).with_changes(everything)
            providers = self._providers(settings, trace_file, resource)
            self._given = everything
            settings = settings.with_changes(providers)
            telemetry_settings.use(settings)
            return Telemetry(settings=settings, **providers, _built=self._built)

    def _providers(self, settings: TelemetrySettings, trace_file: Path | None, resource: Any) -> dict[str, Any]:
        """Return the provider of each signal by the name of its setting, after building those that are missing."""
        signals = [TRACES, METRICS, *([LOGS] if settings.capture in ("event_only", "span_and_event") else [])]
        found = {
            signal: getattr(settings, _PROVIDERS[signal]) or self._application_provider(signal) for signal in signals
        }
        built = self._built
        if not _is_sdk_disabled() and settings.level != "off":
            missing = [signal for signal in signals if found[signal] is None and signal not in built.providers]
            is_open = built.file is not None and trace_file is not None and built.file.path == trace_file.absolute()
            if trace_file is not None and TRACES not in missing and not is_open:
                raise _not_ours("trace_file")
            if resource is not None and (not missing or built.providers) and resource != built.resource:
                raise _not_ours("resource")
            built.build(missing, trace_file, resource)
            for signal in missing:
                if signal in built.providers:
                    self._ours.append(built.providers[signal])
                    if _global_provider(signal) is None:  # OpenTelemetry keeps the first one that is set
                        getattr(import_module(_MODULES[signal]), f"set_{_PROVIDERS[signal]}")(built.providers[signal])
        found = {signal: provider or built.providers.get(signal) for signal, provider in found.items()}
        return {name: found.get(signal) for signal, name in _PROVIDERS.items()}

    def _application_provider(self, signal: str) -> Any:
        """Return the provider that the application has set globally, or None."""
        provider = _global_provider(signal)
        return None if any(provider is one for one in self._ours) else provider

    def shutdown(self, built: _Built, timeout_s: float) -> None:
        with self._lock:
            if built is self._built and built.providers:
                self._built = _Built()
                current = telemetry_settings.current()
                if any(getattr(current, name) is built.providers.get(signal) for signal, name in _PROVIDERS.items()):
                    telemetry_settings.use(from_environment(os.environ).with_changes(self._given))
        built.shutdown(timeout_s)


_process = _Process()


def _not_ours(argument: str) -> ConfigurationError:
    return ConfigurationError(
        f"configure({argument}=...) is for providers that fastlane builds, and there is one of the application's, or "
        "one that was built before: leave it out, or call shutdown() of what configure() returned before"
    )


def _global_provider(signal: str) -> Any:
    """Return the global provider of a signal; None where none has been set."""
    provider = getattr(import_module(_MODULES[signal]), f"get_{_PROVIDERS[signal]}")()
    is_proxy = "Proxy" in type(provider).__name__ and type(provider).__module__.startswith("opentelemetry.")
    return None if is_proxy else provider


# What the SDK is given. It reads its other variables by itself.


def _is_sdk_disabled() -> bool:
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def _otlp_variables(signal: str, what: str) -> tuple[str, str]:
    """Return OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_ENDPOINT for "ENDPOINT"."""
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"


def _exporter_names(signal: str) -> list[str] | None:
    """Return the names of the exporters that variables ask for, none where they want none; None without variables.

    Raises ConfigurationError for headers that cannot be read: the SDK would log them, and they are keys.
    """
    endpoints = [os.environ.get(variable, "") for variable in _otlp_variables(signal, "ENDPOINT")]
    if any("?" in endpoint for endpoint in endpoints):
        # Exporters log an address that fails, and some collectors take their key in its query.
        for module in ("trace_exporter", "metric_exporter", "_log_exporter"):
            logging.getLogger(f"opentelemetry.exporter.otlp.proto.http.{module}").addFilter(_without_queries)
    for variable in _otlp_variables(signal, "HEADERS"):
        for header in os.environ.get(variable, "").split(","):
            name, equals, _ = header.partition("=")
            if header.strip() and not (equals and name.strip() and " " not in name.strip()):
                raise ConfigurationError(f"{variable} is a list such as name=value,other=value; got something else")
    if named := os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip():
        exporters = [name.strip() for name in named.split(",") if name.strip()]
        if "none" in [name.lower() for name in exporters]:
            return []
        return [_otlp_exporter(signal) if name == "otlp" else name for name in exporters]
    return [_otlp_exporter(signal)] if any(endpoint.strip() for endpoint in endpoints) else None


def _otlp_exporter(signal: str) -> str:
    """Return the exporter of the protocol that variables name; OTLP over HTTP with protobuf without one."""
    for variable in _otlp_variables(signal, "PROTOCOL"):
        if protocol := os.environ.get(variable, "").strip().lower():
            if protocol not in _BY_PROTOCOL:
                raise ConfigurationError(f"{variable} is one of {', '.join(_BY_PROTOCOL)}; got {protocol!r:.60}")
            return _BY_PROTOCOL[protocol]
    return _BY_PROTOCOL["http/protobuf"]


def _without_queries(record: logging.LogRecord) -> bool:
    record.msg, record.args = re.sub(r"\?[^\s'\"]*", "?...", record.getMessage()), ()
    return True


def _load(signal: str, name: str) -> Any:
    """Load the class of an exporter. Raises MissingExtraError or ConfigurationError where it is not installed."""
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

    def __init__(self, make: Callable[[], Any], built: _Built) -> None:
        self._make, self._built = make, built
        self._exporter = make()
        self._process = os.getpid()
        # Read by the SDK's reader of metrics.
        self._preferred_temporality = getattr(self._exporter, "_preferred_temporality", None)
        self._preferred_aggregation = getattr(self._exporter, "_preferred_aggregation", None)

    def export(self, batch: Any, **arguments: Any) -> Any:
        if self._process != os.getpid():
            self._exporter, self._process = self._make(), os.getpid()
        result = self._exporter.export(batch, **arguments)
        if getattr(result, "name", "") != "SUCCESS":
            self._built.failures += 1
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._process != os.getpid() or bool(self._exporter.force_flush(timeout_millis))

    def shutdown(self, **arguments: Any) -> None:
        if self._process == os.getpid():
            self._exporter.shutdown(**arguments)


def _provider(signal: str, exporters: list[Any], resource: Any) -> Any:
    """Build a provider that sends to these exporters. Raises ConfigurationError where the SDK refuses its variables."""
    from opentelemetry.sdk.resources import Resource

    provider: Any
    if not isinstance(resource, Resource):
        resource = Resource.create(resource or {})
    try:
        if signal == TRACES:
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            for exporter in exporters:
                provider.add_span_processor(BatchSpanProcessor(exporter))
        elif signal == METRICS:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

            readers = [one if hasattr(one, "collect") else PeriodicExportingMetricReader(one) for one in exporters]
            provider = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        else:
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

            provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
            for exporter in exporters:
                provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    except ValueError as error:
        raise ConfigurationError(
            f"OpenTelemetry's SDK refuses what the variables of {signal} say "
            f"(OTEL_BSP_*, OTEL_BLRP_*, OTEL_METRIC_*): {error}"
        ) from error
    return provider
