"""The instruments of one MeterProvider: what values of metrics are given to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from ..records.section import registrations
from ..transport.drivers.transports import open_connections
from . import _metric_names as metrics, _names as names
from ._labels import Labels

if TYPE_CHECKING:
    from ..records.metrics import Metric
    from ._measures import Measure

# The SDK takes an empty context for none, and then the one that it is called in: that of whoever happens to collect.
_NOWHERE = Context({"fastlane.metrics": "outside of every span"})


class Instruments:
    """What the values of metrics are given to. Making them may wait for the SDK's locks, recording does not."""

    def __init__(self, provider: Any, drain: Callable[[], None], labels: Labels) -> None:
        from .._version import __version__

        meter: Meter = provider.get_meter(names.SCOPE, __version__)
        self._labels = labels
        self._drain = drain
        # An alert sees a count go up from 0, and not appear.
        nothing: dict[str, Any] = {}
        self._counts: dict[tuple[str, int], tuple[float, dict[str, Any]]] = {
            (metrics.DROPPED.name, id(nothing)): (0, nothing)
        }
        """By name and labels, which are kept here so that no others get their id."""
        self._meter = meter
        self._record: dict[str, Any] = {}
        self.complete()
        # Every reader asks the observable ones before it looks at the others, so that it sees all that was told before.
        meter.create_observable_up_down_counter(
            metrics.OPEN_CONNECTIONS,
            [self._observe],
            metrics.OPEN_CONNECTIONS_UNIT,
            metrics.OPEN_CONNECTIONS_DESCRIPTION,
        )

    @property
    def is_complete(self) -> bool:
        """Whether no play was defined since."""
        return self._registrations == registrations()

    def complete(self) -> None:
        """Make what is missing: plays may be defined at any time, and bring metrics."""
        self._registrations = registrations()
        for metric in metrics.all_metrics():
            if metric.name not in self._record:
                self._record[metric.name] = (
                    self._meter.create_counter(metric.name, metric.unit, metric.description).add
                    if metric.kind == "counter"
                    else _histogram(self._meter, metric).record
                )

    def record(self, measures: Iterable[Measure], context: Any) -> None:
        """Record what has ended. `context` has its span, for exemplars. Counts are kept until `settle()`."""
        where = context or _NOWHERE
        record, counts = self._record, self._counts
        for metric, value, labels in measures:
            if not value >= 0 or metric.name not in record:
                continue
            if metric.kind == "histogram":
                record[metric.name](value, labels, where)
                continue
            key = (metric.name, id(labels))
            count = counts.get(key)
            counts[key] = (value, labels) if count is None else (count[0] + value, labels)

    def settle(self) -> None:
        """Add what was counted: one addition costs as much for a hundred calls as for one."""
        if self._counts:
            counts, self._counts = self._counts, {}
            for (name, _), (value, labels) in counts.items():
                self._record[name](value, labels, _NOWHERE)

    def forget(self) -> None:
        """Drop what was counted."""
        self._counts = {}

    def _observe(self, options: CallbackOptions) -> Iterator[Observation]:
        self._drain()
        counts: dict[tuple[str, int, str], int] = {}
        for found in open_connections():
            host = self._labels.limited(names.SERVER_ADDRESS, found.host)
            for state, count in (("active", found.active), ("idle", found.idle)):
                key = (host, found.port, state)
                counts[key] = counts.get(key, 0) + count
        for (host, port, state), count in counts.items():
            where: dict[str, Any] = {
                names.SERVER_ADDRESS: host,
                names.SERVER_PORT: port,
                metrics.CONNECTION_STATE: state,
            }
            yield Observation(count, where)


def _histogram(meter: Meter, metric: Metric) -> Any:
    try:
        return meter.create_histogram(
            metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.buckets
        )
    except TypeError:  # what wraps the application's provider knows an older API
        return meter.create_histogram(metric.name, metric.unit, metric.description)
