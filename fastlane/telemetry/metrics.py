"""The metrics that fastlane exports, and their values for a call or a user action that is over."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from .._fork import in_child, new_library_lock, new_lock
from .._version import __version__
from ..engine.pipeline import Ended
from ..knowledge.timer import call_later
from ..plays import load_all
from ..records.record import CallRecord
from ..records.section import LONG_SECONDS, SECONDS, SHORT_SECONDS, Metric, registrations, section_classes
from ..records.timeline import seconds
from ..records.usage import Usage
from ..transport.drivers.transports import open_connections
from .attributes import (
    attempt_error,
    attempt_outcome,
    error_type,
    max_gap_s,
    provider_name,
    retry_wait_s,
    server_attributes,
    wire_attributes,
)
from .experiments import ExperimentArm
from .settings import warn_of_error, warn_once

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from .settings import Providers

load_all()  # each section of a play has its metrics

# Buckets

_RATES: Final = (
    1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 75.0, 100.0, 125.0, 150.0, 200.0, 250.0, 300.0, 400.0,
    500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0,
)  # fmt: skip

# https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-metrics.md
_GENERIC_SECONDS: Final = tuple(0.01 * 2**step for step in range(14))
_GENERIC_TOKENS: Final = tuple(float(4**step) for step in range(14))


_HISTOGRAMS: Final = (
    ("gen_ai.client.operation.duration", "s", _GENERIC_SECONDS, "How long a call took, retries included"),
    ("gen_ai.client.operation.time_to_first_chunk", "s", _GENERIC_SECONDS,
     "Time to the first event of a stream, which may carry no output yet"),
    # The conventions want a value for each chunk: with OpenTelemetry's SDK, 2.7 ms of CPU for a stream of 200.
    ("gen_ai.client.operation.time_per_output_chunk", "s", _GENERIC_SECONDS,
     "Mean time between neighbouring outputs of a stream: one value for each stream"),
    ("gen_ai.client.token.usage", "{token}", _GENERIC_TOKENS, "Tokens of the prompt and of the answer"),
    ("fastlane.client.time_to_first_token", "s", SECONDS, "From issue to the first output of a stream"),
    ("fastlane.client.wire.duration", "s", SHORT_SECONDS, "Each phase of the answering attempt on the wire"),
    ("fastlane.client.decode.rate", "{token}/s", _RATES, "Output tokens per second after the first"),
    ("fastlane.client.stream.max_chunk_gap", "s", SHORT_SECONDS,
     "The longest time between two neighbouring outputs of a stream"),
    ("fastlane.client.retry.wait.duration", "s", SECONDS,
     "Time that a call spent between attempts that had failed and the next"),
    ("fastlane.interaction.duration", "s", LONG_SECONDS,
     "Application end-to-end: from a user's action to its usable result"),
)  # fmt: skip

OF_EVERY_CALL: Final = (
    Metric(
        "fastlane.client.attempts", "counter", "{attempt}", "Attempts of calls: why each was made, what became of it"
    ),
    *[Metric(name, "histogram", unit, description, buckets) for name, unit, buckets, description in _HISTOGRAMS],
)
"""The metrics of the calls themselves; connections are observed when a reader collects."""


def all_metrics() -> tuple[Metric, ...]:
    """Return the metrics of calls and those of the plays."""
    return (*OF_EVERY_CALL, *[metric for section in section_classes() for metric in section.metrics])


# What is measured


class EndedCall(NamedTuple):
    """A call that is over. Its span is for exemplars."""

    call: Ended
    operation: str
    span: SpanContext | None
    experiment: ExperimentArm | None
    counts_generic: bool
    """Whether `gen_ai.*` metrics are fastlane's to record: no other instrumentation records them for this call."""


class EndedAction(NamedTuple):
    """A user action that is over. `error` is the class name of the error that ended it."""

    name: str
    duration_s: float
    error: str | None
    span: SpanContext | None
    experiment: ExperimentArm | None


# Labels

# A backend keeps every combination of labels that it has ever seen, so "_OTHER" replaces further values.
MOST_VALUES: Final = 200
MOST_CHARACTERS: Final = 128
OTHER: Final = "_OTHER"

Labels = dict[str, Any]
Measured = tuple[str, float, Labels]
"""The name of a metric, its value, and its labels."""


class LabelValues:
    """The values that each label has taken in this process. From any thread."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: dict[str, set[str]] = {}

    def limited(self, label: str, value: Any) -> str:
        """Return the value if it is one of the first `most` of its label, else "_OTHER".

        "_OTHER" also for what is no text, or too long, or cannot be encoded.
        """
        if type(value) is not str:
            return OTHER
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if not value or len(value) > MOST_CHARACTERS or len(seen) >= self._most:
            return OTHER
        if not value.isascii() and value != value.encode("utf-8", "replace").decode():
            return OTHER
        seen.add(value)
        return value


class Measures(LabelValues):
    """Turns what has ended into measured values."""

    def _limited(self, labels: Mapping[str, Any]) -> Labels:
        return {
            name: value if isinstance(value, bool | int) else self.limited(name, value)
            for name, value in labels.items()
            if value is not None
        }

    def of(self, ended: EndedCall | EndedAction) -> Iterator[Measured]:
        """Yield everything that is to be recorded."""
        arm = ended.experiment
        arms = {} if arm is None else {"fastlane.experiment.name": arm.name, "fastlane.experiment.arm": arm.arm}
        if isinstance(ended, EndedAction):
            labels = {"fastlane.interaction.name": ended.name, "error.type": ended.error, **arms}
            yield "fastlane.interaction.duration", ended.duration_s, self._limited(labels)
            return
        record = ended.call.record()
        last = record.last_attempt
        server = server_attributes(record.origin if last is None or last.origin is None else last.origin)
        common = {
            "gen_ai.operation.name": ended.operation,
            "gen_ai.provider.name": provider_name(record.origin),
            "gen_ai.request.model": record.model if last is None or last.model is None else last.model,
        }
        host = server["server.address"] or None
        generic = self._limited({**common, "gen_ai.response.model": record.response_model, "server.address": host})
        for section in record.sections:
            arms |= section.labels()
        arms = self._limited(arms)
        short, own = {name: generic[name] for name in common if name in generic} | arms, generic | arms
        if generic.get("server.address") == host and "server.port" in server:
            generic["server.port"] = server["server.port"]
        known = self._generic(record, generic) if ended.counts_generic else ()
        for name, value, labels in (*known, *self._times(record, short, own)):
            if value is not None:
                yield name, value, labels
        yield from self._attempts(record, short)
        for section in record.sections:
            for metric, value, added in section.measures():
                yield metric.name, value, short | self._limited(added)

    def _generic(self, record: CallRecord, labels: Labels) -> Iterator[tuple[str, float | None, Labels]]:
        """Yield the conventions' metrics."""
        usage = Usage() if record.usage.estimated else record.usage  # the provider's count, or nothing
        timeline, token_ns = record.timeline, record.timeline.token_ns
        mean_s = (token_ns[-1] - token_ns[0]) / 1e9 / (len(token_ns) - 1) if len(token_ns) > 1 else None
        with_error = labels | self._limited({"error.type": error_type(record)})
        yield "gen_ai.client.operation.duration", record.duration_s, with_error
        first_s = seconds(timeline.started_ns, timeline.first_event_ns)
        yield "gen_ai.client.operation.time_to_first_chunk", first_s, labels
        yield "gen_ai.client.operation.time_per_output_chunk", mean_s, labels
        yield "gen_ai.client.token.usage", usage.input_tokens, labels | {"gen_ai.token.type": "input"}
        yield "gen_ai.client.token.usage", usage.output_tokens, labels | {"gen_ai.token.type": "output"}

    def _times(self, record: CallRecord, short: Labels, own: Labels) -> Iterator[tuple[str, float | None, Labels]]:
        last = record.last_attempt
        reused = self._limited({"fastlane.connection.reused": None if last is None else last.connection_reused})
        yield "fastlane.client.time_to_first_token", record.time_to_first_token_s, own | reused
        for name, taken_s in ({} if last is None else wire_attributes(last.wire)).items():
            labels = own | reused | {"fastlane.wire.phase": name.split(".")[2]}
            yield "fastlane.client.wire.duration", taken_s, labels
        yield "fastlane.client.stream.max_chunk_gap", max_gap_s(record.timeline.token_ns), own
        yield "fastlane.client.decode.rate", record.decode_rate, own
        yield "fastlane.client.retry.wait.duration", retry_wait_s(record), short

    def _attempts(self, record: CallRecord, short: Labels) -> Iterator[Measured]:
        for attempt in record.attempts:
            labels: Labels = {
                "fastlane.attempt.kind": attempt.kind,
                "fastlane.attempt.outcome": attempt_outcome(attempt, record),
                "error.type": attempt_error(attempt),
            }
            if (attempt.model, attempt.origin) != (record.model, record.origin):
                labels["gen_ai.provider.name"] = provider_name(attempt.origin or record.origin)
                labels["gen_ai.request.model"] = attempt.model
            yield "fastlane.client.attempts", 1, short | self._limited(labels)


# How it is recorded: a call only puts what has ended into a queue, which another thread records. The queue is recorded
# before each reader collects, and half a second after a call at the latest.

MOST_WAITING: Final = 2_048  # further calls are dropped: each takes some kilobytes
_DELAY_S: Final = 0.5
_LOCK_TIMEOUT_S: Final = 1.0  # of a reader that waits for another thread that records

# The SDK replaces an empty context by the current one, which is that of the thread that records.
_NO_CONTEXT = Context({"fastlane": "outside of every span"})

_measures = Measures()
_recording, _making = new_library_lock(), new_lock()
_pause = threading.Event()


class _Waiting:
    """What has ended and is not recorded yet. Finalizers may add to it: it waits for no lock."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[tuple[Meters, EndedCall | EndedAction]] = SimpleQueue()
        self.is_planned = False

    def record(self) -> None:
        self.is_planned = False
        record_waiting()


_waiting = _Waiting()


@in_child
def _begin_in_child() -> None:
    _waiting.__init__()  # type: ignore[misc]


class Meters:
    """The instruments of one MeterProvider."""

    def __init__(self, provider: Any) -> None:
        self._meter: Meter = provider.get_meter("fastlane", __version__)
        self._record: dict[str, Any] = {}
        self.registrations = -1
        # Every reader calls this before it looks at the other instruments, so it sees all that has ended before.
        self._meter.create_observable_up_down_counter(
            "http.client.open_connections",
            [self._observe],
            "{connection}",
            "Connections that are open, with a call on them (active) or without (idle)",
        )

    def complete(self) -> None:
        """Make the instruments that are missing: plays may be defined at any time, and bring metrics."""
        found = registrations()
        if self.registrations != found:
            for name, kind, unit, description, buckets in all_metrics():
                if name not in self._record and kind == "counter":
                    self._record[name] = self._meter.create_counter(name, unit, description).add
                elif name not in self._record:
                    self._record[name] = self._meter.create_histogram(
                        name, unit, description, explicit_bucket_boundaries_advisory=buckets
                    ).record
            self.registrations = found

    def add(self, ended: EndedCall | EndedAction) -> None:
        """Have it recorded, soon. Waits for nothing and raises nothing."""
        if _waiting.queue.qsize() >= MOST_WAITING:
            warn_once("telemetry: more than %d calls wait to be measured; further ones are dropped", MOST_WAITING)
            return
        _waiting.queue.put((self, ended))
        if not _waiting.is_planned:
            _waiting.is_planned = True
            with suppress(RuntimeError):  # no thread can be started any more: readers record it
                call_later(_DELAY_S, _waiting.record, in_thread=True)

    def record(self, ended: EndedCall | EndedAction) -> None:
        """Record what has ended."""
        context = _NO_CONTEXT if ended.span is None else set_span_in_context(NonRecordingSpan(ended.span), _NO_CONTEXT)
        for name, value, labels in _measures.of(ended):
            if value >= 0 and name in self._record:
                self._record[name](value, labels, context)

    def _observe(self, options: CallbackOptions) -> Iterator[Observation]:
        record_waiting()
        counts: Counter[tuple[str, int, str]] = Counter()
        for found in open_connections():
            host = _measures.limited("server.address", found.host)
            counts[host, found.port, "active"] += found.active
            counts[host, found.port, "idle"] += found.idle
        for (host, port, state), count in counts.items():
            yield Observation(count, {"server.address": host, "server.port": port, "http.connection.state": state})


def record_waiting() -> None:
    """Record everything that has ended by now."""
    if not _recording.acquire(timeout=_LOCK_TIMEOUT_S):
        return
    try:
        for _ in range(_waiting.queue.qsize()):  # which only this thread takes from, because of the lock
            meters, ended = _waiting.queue.get_nowait()
            try:
                meters.record(ended)
            except Exception as error:  # noqa: BLE001 - an application's own reader or view may raise anything
                warn_of_error("recording metrics", error)
            _pause.wait(1e-6)  # let the threads of calls go first
    finally:
        _recording.release()


_meters = lru_cache(maxsize=8)(Meters)


def meters_of(providers: Providers) -> Meters | None:
    """Return the instruments of the provider in force; None if metrics are off. Not for finalizers."""
    found: Meters | None = providers.meters
    if providers.measures and (found is None or found.registrations != registrations()):
        try:
            with _making:
                found = _meters(providers.meter_provider)
                found.complete()
                providers.meters = found
        except Exception as error:  # noqa: BLE001 - an application's own provider may raise anything
            warn_of_error("making instruments", error)
            providers.measures = False
            return None
    return found
