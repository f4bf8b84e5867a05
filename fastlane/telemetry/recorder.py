"""Record metrics behind the calls' back: a call only puts what has ended into a queue.

The queue is recorded before each reader collects, and half a second after a call at the latest.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from .._fork import in_child, new_lock
from .._version import __version__
from ..knowledge.timer import call_later
from ..records.section import registrations
from ..transport.drivers.transports import open_connections
from . import metrics
from .metrics import EndedAction, EndedCall, LabelValues, Measures
from .spans import log, warn_once

if TYPE_CHECKING:
    from ..records.metrics import Metric
    from .settings import Conventions, Providers

MOST_WAITING: Final = 2_048
"""Calls that wait to be recorded. Further ones are dropped: each takes some kilobytes."""

_DELAY_S: Final = 0.5
_LOCK_TIMEOUT_S: Final = 1.0
"""How long a reader waits for another thread that records."""

_MOST_PROVIDERS: Final = 8

# The SDK replaces an empty context by the current one, which is that of the thread that records.
_NO_CONTEXT = Context({"fastlane": "outside of every span"})

_values = LabelValues()
_measures = Measures(_values)
_recording, _making = new_lock(), new_lock()
_pause = threading.Event()


class _Waiting:
    """What has ended and is not recorded yet. Finalizers may add to it: it waits for no lock."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[tuple[Meters, EndedCall | EndedAction, Conventions]] = SimpleQueue()
        self.is_planned = False


_waiting = _Waiting()


@in_child
def _begin_in_child() -> None:
    _waiting.__init__()  # type: ignore[misc]


class Meters:
    """The instruments of one MeterProvider."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self._meter: Meter = provider.get_meter("fastlane", __version__)
        self._record: dict[str, Any] = {}
        self._dropped = 0
        self.complete()
        self._record[metrics.DROPPED.name](0, {}, _NO_CONTEXT)  # so that an alert sees it go up from 0
        # Every reader calls this before it looks at the other instruments, so it sees all that has ended before.
        self._meter.create_observable_up_down_counter(
            metrics.OPEN_CONNECTIONS,
            [self._observe],
            metrics.OPEN_CONNECTIONS_UNIT,
            metrics.OPEN_CONNECTIONS_DESCRIPTION,
        )

    def complete(self) -> None:
        """Make the instruments that are missing: plays may be defined at any time, and bring metrics."""
        self.registrations = registrations()
        for metric in metrics.all_metrics():
            if metric.name not in self._record:
                self._record[metric.name] = _instrument(self._meter, metric)

    def add(self, ended: EndedCall | EndedAction, conventions: Conventions) -> None:
        """Have it recorded, soon. Waits for nothing and raises nothing."""
        if _waiting.queue.qsize() >= MOST_WAITING:
            self._dropped += 1
            _warn_of_dropped()
            return
        _waiting.queue.put((self, ended, conventions))
        if not _waiting.is_planned:
            _waiting.is_planned = True
            with suppress(RuntimeError):  # no thread can be started any more: readers record it
                call_later(_DELAY_S, _record_planned, in_thread=True)

    def record(self, ended: EndedCall | EndedAction, conventions: Conventions) -> None:
        """Record what has ended."""
        context = _NO_CONTEXT if ended.span is None else set_span_in_context(NonRecordingSpan(ended.span), _NO_CONTEXT)
        for metric, value, labels in _measures.of(ended, conventions):
            if value >= 0 and metric.name in self._record:
                self._record[metric.name](value, labels, context)

    def _observe(self, options: CallbackOptions) -> Iterator[Observation]:
        record_waiting()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self._record[metrics.DROPPED.name](dropped, {}, _NO_CONTEXT)
        counts: Counter[tuple[str, int, str]] = Counter()
        for found in open_connections():
            host = _values.limited("server.address", found.host)
            counts[host, found.port, "active"] += found.active
            counts[host, found.port, "idle"] += found.idle
        for (host, port, state), count in counts.items():
            yield Observation(count, {"server.address": host, "server.port": port, "http.connection.state": state})


def _instrument(meter: Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description).add
    try:
        return meter.create_histogram(
            metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
        ).record
    except TypeError:  # what wraps the application's provider knows an older API
        return meter.create_histogram(metric.name, metric.unit, metric.description).record


def record_waiting() -> None:
    """Record everything that has ended by now."""
    if not _recording.acquire(timeout=_LOCK_TIMEOUT_S):
        return
    try:
        for _ in range(_waiting.queue.qsize()):
            try:
                meters, ended, conventions = _waiting.queue.get_nowait()
            except Empty:
                return
            try:
                meters.record(ended, conventions)
            except Exception as error:  # noqa: BLE001 - an application's own reader or view may raise anything
                warn_once("recording metrics", type(error).__name__)
            _pause.wait(1e-6)  # let the threads of calls go first
    finally:
        _recording.release()


def _record_planned() -> None:
    _waiting.is_planned = False
    record_waiting()


@cache
def _warn_of_dropped() -> None:
    log.warning(
        "telemetry: more than %d calls wait to be measured; further ones are dropped (logged once)", MOST_WAITING
    )


_made: dict[int, Meters] = {}
"""By the provider's id, which its meters keep in use."""


def meters_of(providers: Providers) -> Meters | None:
    """Return the instruments of the provider in force; None where nobody measures. Not for finalizers."""
    found: Meters | None = providers.meters
    if providers.measures and (found is None or found.registrations != registrations()):
        found = providers.meters = _make(providers.meter_provider)
        providers.measures = found is not None
    return found


def _make(provider: Any) -> Meters | None:
    """Make the instruments of a provider, or those that are missing; None where the provider raises."""
    with _making:
        found = _made.get(id(provider))
        try:
            if found is None:
                found = Meters(provider)
            else:
                found.complete()
        except Exception as error:  # noqa: BLE001 - an application's own provider may raise anything
            warn_once("making instruments", type(error).__name__)
            return None
        if len(_made) >= _MOST_PROVIDERS:
            _made.pop(next(iter(_made)))
        _made[id(provider)] = found
        return found
