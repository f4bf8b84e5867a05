"""Providers of OpenTelemetry's SDK, built as its variables say, with exporters that live through a fork."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from ..errors import ConfigurationError, MissingExtraError
from ._trace_files import TraceFile


@dataclass(frozen=True, slots=True)
class Signal:
    """One kind of what is exported."""

    name: str
    """"traces", "metrics" or "logs"."""

    def variable(self, what: str) -> str:
        """`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` for "ENDPOINT"."""
        return f"OTEL_EXPORTER_OTLP_{self.name.upper()}_{what}"

    @property
    def exporter_variable(self) -> str:
        """`OTEL_TRACES_EXPORTER`."""
        return f"OTEL_{self.name.upper()}_EXPORTER"

    @property
    def group(self) -> str:
        """Of the entry points that exporters are found by."""
        return f"opentelemetry_{self.name}_exporter"


TRACES, METRICS, LOGS = Signal("traces"), Signal("metrics"), Signal("logs")

IN_FILE: Final = "otlp_json_file"

_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "http/json": "otlp_json_http", "grpc": "otlp_proto_grpc"}

_OF_THE_EXTRA = {
    IN_FILE: "opentelemetry-exporter-otlp-json-file",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}
_SAMPLERS_WITH_A_RATIO = ("traceidratio", "parentbased_traceidratio")
_SAMPLERS = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off", *_SAMPLERS_WITH_A_RATIO)


def disabled(environment: Mapping[str, str]) -> bool:
    """Whether `OTEL_SDK_DISABLED` says so."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def asked(signal: Signal, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the exporters that the variables ask for, none where they want none; None where they do not say."""
    if named := environment.get(signal.exporter_variable, "").strip():
        names = tuple(name.strip() for name in named.split(",") if name.strip())
        return () if "none" in [name.lower() for name in names] else names
    for variable in (signal.variable("ENDPOINT"), "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if environment.get(variable, "").strip():
            return ("otlp",)
    return None


def _by_protocol(name: str, signal: Signal, environment: Mapping[str, str]) -> str:
    """OTLP over HTTP with protobuf, as the specification has it, where no protocol is named."""
    if name != "otlp":
        return name
    for variable in (signal.variable("PROTOCOL"), "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(variable, "").strip().lower():
            if protocol not in _BY_PROTOCOL:
                raise ConfigurationError(f"{variable} is one of {', '.join(_BY_PROTOCOL)}; got {protocol!r:.60}")
            return _BY_PROTOCOL[protocol]
    return _BY_PROTOCOL["http/protobuf"]


def _headers_checked(signal: Signal, environment: Mapping[str, str]) -> None:
    # The SDK would log what it cannot read, and that is a key more often than not.
    for variable in (signal.variable("HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS"):
        for header in environment.get(variable, "").split(","):
            name, equals, _ = header.partition("=")
            if header.strip() and not (equals and name.strip() and " " not in name.strip()):
                raise ConfigurationError(f"{variable} is a list such as name=value,other=value; got something else")


def _queries_kept_from_logs(signal: Signal, environment: Mapping[str, str]) -> None:
    """Some collectors take their key in the query of an address, and exporters log the address that does not answer."""
    for variable in (signal.variable("ENDPOINT"), "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if "?" in environment.get(variable, ""):
            for module in ("trace_exporter", "metric_exporter", "_log_exporter"):
                logging.getLogger(f"opentelemetry.exporter.otlp.proto.http.{module}").addFilter(_without_queries)


def _without_queries(record: logging.LogRecord) -> bool:
    record.msg, record.args = re.sub(r"\?[^\s'\"]*", "?...", record.getMessage()), ()
    return True


class _Exporter:
    """An exporter that a forked process makes anew: its locks, its connections and its file are the other process's.

    It is made within the thread that exports. Has the methods of exporters of all signals.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._exporter: Any = make()
        self._before: Any = None
        self.failures = 0
        # Where the SDK's reader asks an exporter of metrics for what it prefers.
        self._preferred_temporality = getattr(self._exporter, "_preferred_temporality", None)
        self._preferred_aggregation = getattr(self._exporter, "_preferred_aggregation", None)

    def forked(self) -> None:
        if self._exporter is not None:
            self._before = self._exporter  # and kept, lest its end say good-bye for the other process
        self._exporter = None

    def export(self, batch: Any, **arguments: Any) -> Any:
        if self._exporter is None:
            self._exporter = self._make()
        result = self._exporter.export(batch, **arguments)
        if getattr(result, "name", "") != "SUCCESS":
            self.failures += 1
            if isinstance(batch, list):
                # The processor's, which has no more use for it. The error of a connection has the frames of this export
                # in its traceback and is in one of them: what is in the batch would be there until a full collection.
                batch.clear()
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter is None or bool(self._exporter.force_flush(timeout_millis))

    def shutdown(self, **arguments: Any) -> None:
        if self._exporter is not None:
            self._exporter.shutdown(**arguments)


def _loaded(name: str, signal: Signal) -> Any:
    found = entry_points(group=signal.group, name=name)
    if not found:
        if name in _OF_THE_EXTRA:
            raise MissingExtraError("telemetry", _OF_THE_EXTRA[name])
        known = sorted({one.name for one in entry_points(group=signal.group)} | {"none", "otlp"})
        raise ConfigurationError(
            f"{signal.exporter_variable} or its protocol asks for the exporter {name!r:.60}, which no package that is "
            f"installed has; there are {', '.join(known)}"
        )
    try:
        return next(iter(found)).load()
    except ImportError as error:
        if name in _OF_THE_EXTRA:
            raise MissingExtraError("telemetry", _OF_THE_EXTRA[name]) from error
        raise ConfigurationError(
            f"the exporter {name!r:.60} of {signal.name} is installed and cannot be imported: {error}"
        ) from error


class Exporters:
    """What is exported to, of all signals: where, and by whom."""

    def __init__(self) -> None:
        self.file: TraceFile | None = None
        self._made: list[_Exporter] = []

    @property
    def failures(self) -> int:
        """How many exports have failed so far."""
        return sum(exporter.failures for exporter in self._made)

    def forked(self) -> None:
        """Make no use of what belongs to the process that this one was forked from."""
        if self.file is not None:
            self.file.forked()
        for exporter in self._made:
            exporter.forked()

    def make(self, names: tuple[str, ...], signal: Signal) -> list[Any]:
        """Exporters by name; those of metrics may be readers. Raises ConfigurationError or MissingExtraError."""
        _headers_checked(signal, os.environ)
        _queries_kept_from_logs(signal, os.environ)
        by_name = [_by_protocol(name, signal, os.environ) for name in names]
        kinds = {name: _loaded(name, signal) for name in by_name}
        made: list[Any] = []
        for name, kind in kinds.items():
            if name == IN_FILE:
                if self.file is None:
                    self.file = TraceFile()
                exporter = _Exporter(_with_stream(kind, self.file))
            elif signal is METRICS and _is_reader(kind):
                made.append(kind())
                continue
            else:
                exporter = _Exporter(kind)
            self._made.append(exporter)
            made.append(exporter)
        return made


def _with_stream(kind: Any, file: TraceFile) -> Callable[[], Any]:
    return lambda: kind(stream=file)


def _is_reader(kind: Any) -> bool:
    from opentelemetry.sdk.metrics.export import MetricReader

    return isinstance(kind, type) and issubclass(kind, MetricReader)


def resource_of(attributes: Any) -> Any:
    """What is exported of: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, and `attributes` above both."""
    from opentelemetry.sdk.resources import Resource

    return attributes if isinstance(attributes, Resource) else Resource.create(attributes or {})


def _sampler() -> Any:
    """The sampler of another package; None for those of the SDK, which it makes by itself, when their ratio is one."""
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    argument = os.environ.get("OTEL_TRACES_SAMPLER_ARG")
    if not name or name in _SAMPLERS:
        if name in _SAMPLERS_WITH_A_RATIO and argument is not None:
            try:
                in_range = 0 <= float(argument) <= 1
            except ValueError:
                in_range = False
            if not in_range:
                raise ConfigurationError(f"OTEL_TRACES_SAMPLER_ARG is a ratio from 0 to 1; got {argument!r:.60}")
        return None
    found = entry_points(group="opentelemetry_traces_sampler", name=name)
    if not found:
        raise ConfigurationError(
            f"OTEL_TRACES_SAMPLER is one of {', '.join(_SAMPLERS)}, or of an installed package; got {name!r:.60}"
        )
    return next(iter(found)).load()(argument)


def _tracer_provider(exporters: list[Any], resource: Any) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(sampler=_sampler(), resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _meter_provider(exporters: list[Any], resource: Any) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    # A reader of another package comes as it is; the others are pushed at intervals.
    readers: list[Any] = []
    for exporter in exporters:
        pushed: Any = exporter if isinstance(exporter, _Exporter) else None
        readers.append(exporter if pushed is None else PeriodicExportingMetricReader(pushed))
    return MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)


def _logger_provider(exporters: list[Any], resource: Any) -> Any:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    return provider


_BUILDERS = {TRACES: _tracer_provider, METRICS: _meter_provider, LOGS: _logger_provider}


def build(signal: Signal, exporters: list[Any], resource: Any) -> Any:
    """A provider that sends to these exporters, which nothing but `shutdown()` ends.

    Raises ConfigurationError where the SDK refuses what its variables say.
    """
    try:
        return _BUILDERS[signal](exporters, resource)
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"OpenTelemetry's SDK refuses what the variables of {signal.name} say "
            f"(OTEL_BSP_*, OTEL_BLRP_*, OTEL_METRIC_*): {error}"
        ) from error
