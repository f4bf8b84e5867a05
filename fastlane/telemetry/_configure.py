"""`configure()`: settings of telemetry, and providers where the application has none of its own."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .._fork import in_child, new_rlock
from ..errors import ConfigurationError
from . import _settings
from ._exporters import IN_FILE, LOGS, METRICS, TRACES, Signal, asked, build, disabled, resource_of
from ._providers import Built, get_global, set_global, within
from ._settings import Capture, Coexistence, Conventions, Level, TelemetrySettings, from_environment
from ._trace_files import DIRECTORY_VARIABLE, TraceFile

EXIT_TIMEOUT_S: Final = 3.0
"""How long the end of a process waits for what is not sent yet: what a healthy collector needs, several times over."""

_PROVIDERS = {TRACES: "tracer_provider", METRICS: "meter_provider", LOGS: "logger_provider"}
_MAKERS = {TRACES: "get_tracer", METRICS: "get_meter", LOGS: "get_logger"}

log = logging.getLogger("fastlane")


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
    """Say what telemetry is to do and, where the application has no OpenTelemetry provider, build one and set it.

    The settings are those of `TelemetrySettings`: an argument outweighs its environment variable, and stays as it is in
    further calls of `configure()` that do not name it. A provider that is given or set globally is used as it is, and
    never shut down. Else OpenTelemetry's SDK sends where its OTEL_* variables say; where they say nothing, spans go to
    a file, which `fastlane trace view --last` shows. `trace_file` is such a file by name, beside what variables ask
    for; `resource` has attributes of what is observed, such as `{"service.name": "checkout"}`.

    What is not sent yet is sent when the process ends, for three seconds at most. Raises ConfigurationError, which
    names the variable or the argument, and MissingExtraError where an exporter is not installed.
    """
    given = {
        "level": level,
        "coexistence": coexistence,
        "conventions": conventions,
        "propagate": propagate,
        "compat": compat,
        "capture": capture,
        "tracer_provider": tracer_provider,
        "meter_provider": meter_provider,
        "logger_provider": logger_provider,
    }
    for signal, name in _PROVIDERS.items():
        if given[name] is not None and not callable(getattr(given[name], _MAKERS[signal], None)):
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
    made = _process.configure(
        {name: value for name, value in given.items() if value is not None},
        None if trace_file is None else Path(trace_file),
        resource,
    )
    if made.settings.level != "off":
        # Now, and not in the first call or user action: 20 ms.
        from . import _action_span, _call_trace  # noqa: F401
    return made


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Telemetry:
    """What `configure()` came to."""

    settings: TelemetrySettings
    tracer_provider: Any
    """Where spans go: the one that was given, the application's own, or fastlane's; None where there is none."""
    meter_provider: Any
    logger_provider: Any
    """None unless prompts and answers are asked for as events."""
    _built: Built = field(compare=False)

    @property
    def trace_file(self) -> Path | None:
        """The file that this process writes spans to, from the first span on; None where it writes to none."""
        file = self._built.exporters.file
        return None if file is None else file.path

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Send what is not sent yet, within `timeout_s` seconds. Says whether that was done; raises nothing.

        A batch that a collector refuses is not kept.
        """
        failures = self._built.exporters.failures
        providers = (self.meter_provider, self.tracer_provider, self.logger_provider)
        steps = [provider.force_flush for provider in providers if hasattr(provider, "force_flush")]
        return within(timeout_s, steps) and self._built.exporters.failures == failures

    def shutdown(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """Send what is not sent yet, and end what `configure()` has built; nothing that is the application's.

        Returns after `timeout_s` seconds at the latest. A further `configure()` builds anew.
        """
        _process.shutdown(self._built, timeout_s)

    def __repr__(self) -> str:
        told = [f"level={self.settings.level!r}", f"conventions={self.settings.conventions!r}"]
        for name in _PROVIDERS.values():
            provider = getattr(self, name)
            told.append(f"{name}={None if provider is None else type(provider).__name__}")
        return f"Telemetry({', '.join(told)}, trace_file={None if self.trace_file is None else str(self.trace_file)!r})"


class _Process:
    """What `configure()` has done in this process so far."""

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._given: dict[str, Any] = {}
        self._built = Built()
        self._ended: list[Any] = []
        self._at_exit = False

    def configure(self, given: dict[str, Any], trace_file: Path | None, resource: Any) -> Telemetry:
        with self._lock:
            everything = {**self._given, **given}
            settings = from_environment(os.environ).with_changes(everything)
            providers = self._providers(settings, trace_file, resource)
            self._given = everything
            settings = settings.with_changes({_PROVIDERS[signal]: one for signal, one in providers.items()})
            _settings.use(settings)
            return Telemetry(
                settings=settings,
                tracer_provider=providers.get(TRACES),
                meter_provider=providers.get(METRICS),
                logger_provider=providers.get(LOGS),
                _built=self._built,
            )

    def _providers(self, settings: TelemetrySettings, trace_file: Path | None, resource: Any) -> dict[Signal, Any]:
        """The provider of each signal that has one, building those that are missing."""
        found: dict[Signal, Any] = {}
        missing: list[Signal] = []
        as_events = settings.capture in ("event_only", "span_and_event")
        wanted = [TRACES, METRICS, *([LOGS] if as_events else [])]
        self._read_configuration_file()
        for signal in wanted:
            own = getattr(settings, _PROVIDERS[signal]) or self._set_globally(signal)
            if own is not None:
                found[signal] = own
            elif signal in self._built.providers:
                found[signal] = self._built.providers[signal]
            else:
                missing.append(signal)
        if disabled(os.environ) or settings.level == "off":
            return found
        self._check(trace_file, resource, missing)
        if missing:
            found.update(self._build(missing, trace_file, resource))
        return found

    def _check(self, trace_file: Path | None, resource: Any, missing: list[Signal]) -> None:
        file = self._built.exporters.file
        if trace_file is not None and TRACES not in missing and (file is None or file.path != trace_file.absolute()):
            raise ConfigurationError(
                "configure(trace_file=...) is for a provider that fastlane builds, and there is one of the "
                "application's, or one that was built before: leave trace_file out, or call shutdown() of what "
                "configure() returned before"
            )
        was_built = not missing or bool(self._built.providers)
        if resource is not None and was_built and resource != self._built.resource:
            raise ConfigurationError(
                "configure(resource=...) is for providers that fastlane builds, and there are some already: give it "
                "with the first call of configure(), or to the application's own provider"
            )

    def _build(self, missing: list[Signal], trace_file: Path | None, resource: Any) -> dict[Signal, Any]:
        built, exporting = self._built, self._built.exporters
        file_before = exporting.file
        made: dict[Signal, Any] = {}
        try:
            if trace_file is not None and exporting.file is None:
                exporting.file = TraceFile(trace_file)
            named = {signal: self._named(signal, trace_file) for signal in missing}
            exporters = {signal: exporting.make(names, signal) for signal, names in named.items() if names}
            described = resource_of(built.resource if resource is None else resource) if exporters else None
            for signal, its in exporters.items():
                made[signal] = build(signal, its, described)
        except BaseException:
            for provider in made.values():
                provider.shutdown()
            exporting.file = file_before
            raise
        if made:
            self._take(made, resource)
        return made

    def _named(self, signal: Signal, trace_file: Path | None) -> tuple[str, ...]:
        """The names of the exporters of one signal."""
        names = asked(signal, os.environ)
        if signal is TRACES and trace_file is not None:
            return tuple(dict.fromkeys((*(names or ()), IN_FILE)))
        if names is None and signal is not METRICS:
            # Metrics go nowhere unless that is asked for: all of them once a minute would fill a file that is read for
            # its calls, and `client.report()` has their percentiles.
            names = (IN_FILE,) if self._has_default_file() else ()
        return names or ()

    def _has_default_file(self) -> bool:
        exporting = self._built.exporters
        try:
            exporting.file = exporting.file or TraceFile()
        except ConfigurationError as error:
            if os.environ.get(DIRECTORY_VARIABLE):
                raise
            # Nobody asked for files, and an application has to start where there is no home directory.
            log.warning("no spans are kept: %s", error)
        return exporting.file is not None

    def _take(self, made: dict[Signal, Any], resource: Any) -> None:
        built = self._built
        if not built.providers:
            built.start()
        if resource is not None:
            built.resource = resource
        built.providers.update(made)
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self._exit)
        for signal, provider in made.items():
            if not self._ended:  # else the one that has ended holds the place, and cannot be replaced
                set_global(signal, provider)
        if built.exporters.file is not None and TRACES in made:
            log.info("spans are written to %s", built.exporters.file.path)

    def _set_globally(self, signal: Signal) -> Any:
        """The application's own provider, or None."""
        provider = get_global(signal)
        ours = (*self._built.providers.values(), *self._ended)
        return None if any(provider is one for one in ours) else provider

    def _read_configuration_file(self) -> None:
        name = os.environ.get("OTEL_CONFIG_FILE", "").strip()
        if not name or disabled(os.environ) or any(get_global(signal) is not None for signal in _PROVIDERS):
            return
        try:
            from opentelemetry.configuration import (  # type: ignore[import-not-found,unused-ignore]
                configure_sdk,
                load_config_file,
            )
        except ImportError as error:
            raise ConfigurationError(
                "OTEL_CONFIG_FILE is set, which the package opentelemetry-configuration reads: install it"
            ) from error
        try:
            configure_sdk(load_config_file(name))
        except Exception as error:
            raise ConfigurationError(
                f"OTEL_CONFIG_FILE names {name!r:.200}, which cannot be used: {type(error).__name__}"
            ) from error

    def shutdown(self, built: Built, timeout_s: float) -> None:
        with self._lock:
            if built is self._built and built.providers:
                self._ended.extend(built.providers.values())
                self._built = Built()
                current = _settings.current()
                if any(getattr(current, name) is built.providers.get(signal) for signal, name in _PROVIDERS.items()):
                    _settings.use(from_environment(os.environ).with_changes(self._given))
        if built.providers:
            built.shutdown(timeout_s)

    def _exit(self) -> None:
        if self._built.providers:
            self._built.shutdown(EXIT_TIMEOUT_S)

    def forked(self) -> None:
        """In a process that was forked: threads, locks, connections and files are those of the other one."""
        if self._built.providers:
            self._built.forked()


_process = _Process()
# This runs before what any provider registers, which starts the thread that exports.
in_child(_process.forked)
