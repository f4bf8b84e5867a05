"""What telemetry costs the caller: CPU for each streamed call of 200 chunks, at each level, beside a span by hand.

Inside: what the caller's thread takes from the application's call to the end of its stream (`_call_us`), and what the
whole process takes for it until every batch is flushed (`_process_us`: the threads that export spans and work metrics
out; spans and figures are dropped where an exporter would encode them). Outside: the network, TLS, framing and garbage
collection: the answer stands in memory, and is stamped as fastlane's own transport stamps a warm call, so that spans
have all of their parts. Every figure is a difference: of a block of calls with the side's telemetry and the two around
it in the same process, which had none; medians of many, with 95 % intervals. `none_again` is a second side without
telemetry: how large a difference this run would report where there is none.

A call of 200 chunks varies by as much as its telemetry takes, which is why there are so many of them. `_chunk_us` is
what each of 1,800 further chunks adds.

Sides of fastlane: `noop` is the default level where the application has imported OpenTelemetry and set no provider;
`call` is the default level, `attempts` and `phases` make spans of requests and of their parts as well; `unsampled` is
the default level in a trace that nobody samples. Each has a batch processor; `_metrics` is the same with a provider of
meters, and `metrics` is that alone.

`sdk` is no telemetry of fastlane's but a span of OpenTelemetry's SDK written by hand around each call, with the same
attributes: what no instrumentation can take less than that makes a span of each call where it ends.

Where every processor of spans collects them for a thread of its own, as here, fastlane makes its spans in another
thread as well: what that takes is in `_process_us`.
"""

from __future__ import annotations

import gc
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple

import httpx2
import openai
from opentelemetry.context import get_current
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind

import fastlane
from benchmarks._paired import median
from benchmarks._prepared import MODEL, Prepared, Reads, event_of, stream_of
from benchmarks._report import Figure, Report
from fastlane._clock import cpu_ns, now_ns, thread_cpu_ns, wall_ns
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import TelemetrySettings
from fastlane.transport.protocols.exchange import PHASES, Opening, Phases

_CHUNKS, _MANY_CHUNKS = 200, 2_000
_WARM_UPS = 2
_NONE = TelemetrySettings(level="off")
_LEVELS: tuple[Any, ...] = ("call", "attempts", "phases")
_MESSAGES: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]


_USAGE: dict[str, Any] = {
    "prompt_tokens": 2_048,
    "completion_tokens": 200,
    "total_tokens": 2_248,
    "prompt_tokens_details": {"cached_tokens": 1_920},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def _reads(chunks: int) -> tuple[bytes, ...]:
    """A streamed answer, one event in each read, that ends with its usage."""
    *content, _ = stream_of(chunks)
    usage = event_of({}).replace(b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]', _TOLD)
    return (*content, event_of({}, "stop"), usage, b"data: [DONE]\n\n")


_TOLD = f'"choices":[],"usage":{json.dumps(_USAGE)}'.encode()


_OPENING = Opening(
    dns_started_ns=None,
    dns_ended_ns=None,
    connect_started_ns=0,
    connect_ended_ns=1,
    tls_started_ns=1,
    tls_ended_ns=2,
    local_address="127.0.0.1:50000",
    peer_address="127.0.0.1:443",
    alpn="h2",
    tls_version="TLSv1.3",
)


class _StampedReads(Reads):
    """Reads that are stamped as fastlane's own warm transport stamps them."""

    def __init__(self, reads: tuple[bytes, ...], phases: Phases) -> None:
        super().__init__(reads)
        self._phases = phases

    def __iter__(self) -> Iterator[bytes]:
        phases = self._phases
        stamps = phases.data_ns = array("q")
        for read in self.reads:
            phases.chunk_ns = now_ns()
            stamps.append(phases.chunk_ns)
            yield read
        phases.answer_ended_ns = now_ns()


class _StampedTransport(Prepared):
    """Answers every request at once with the same reads, stamped."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        phases: Phases | None = request.extensions.get(PHASES)
        if phases is None:
            return super().handle_request(request)
        phases.begin(now_ns())
        phases.opening = _OPENING
        phases.reused = True
        phases.http_version = "HTTP/2"
        phases.round_trip_time_ns = 40_000_000
        phases.send_started_ns = now_ns()
        phases.send_ended_ns = now_ns()
        phases.first_byte_ns = now_ns()
        headers = {**self.headers, "x-request-id": "req_1"}
        return httpx2.Response(200, headers=headers, stream=_StampedReads(self.reads, phases))


def _streamed_call(client: openai.OpenAI) -> None:
    """Read one streamed answer to its end."""
    options: dict[str, Any] = {"stream_options": {"include_usage": True}, "temperature": 0.2, "max_tokens": 400}
    for _chunk in client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=True, **options):
        pass


class _Side(NamedTuple):
    """One way to tell of the same calls."""

    settings: TelemetrySettings
    around: Callable[[Callable[[], None]], None] | None = None
    """Makes the call where it is not made as it is."""
    provider: TracerProvider | None = None
    """Whose spans are flushed, besides those of the settings."""

    def flush(self) -> None:
        """Have everything exported that a block left: inside of what the process takes, not the thread."""
        for provider in (self.provider, self.settings.tracer_provider, self.settings.meter_provider):
            if provider is not None:
                provider.force_flush()


class _Taken(NamedTuple):
    """Microseconds of a call: what one side took more than the base, once for each block."""

    thread: list[float]
    process: list[float]
    base_thread: list[float]
    """What the base's own took."""


def _take(
    base: _Side, sides: Mapping[str, _Side], client: openai.OpenAI, *, calls: int, rounds: int
) -> dict[str, _Taken]:
    """Run blocks of calls on each side, between two of the base, and in another order in every round.

    A block is compared with the mean of its neighbours, so that what drifts drifts out.
    """
    taken = {name: _Taken([], [], []) for name in sides}
    order = list(sides)
    random = Random(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(-_WARM_UPS, rounds):
            random.shuffle(order)
            before = _block(base, client, calls)
            for name in order:
                one = _block(sides[name], client, calls)
                after = _block(base, client, calls)
                if number >= 0:
                    taken[name].thread.append(one[0] - (before[0] + after[0]) / 2)
                    taken[name].process.append(one[1] - (before[1] + after[1]) / 2)
                    taken[name].base_thread.append(before[0])
                before = after
            gc.collect(0 if number % 10 else 2)
            _block(base, client, calls)
    finally:
        gc.enable()
        gc.unfreeze()
    return taken


def _block(side: _Side, client: openai.OpenAI, calls: int) -> tuple[float, float]:
    """Microseconds of a call: of this thread, and of the process until all is flushed."""

    def one() -> None:
        _streamed_call(client)

    each = one if side.around is None else partial(side.around, one)
    telemetry_settings.use(side.settings)
    each()  # which makes whatever is made with the first call after a change
    side.flush()
    process = cpu_ns()
    each()  # what a flush has put into the processor's caches is no part of a call
    thread = thread_cpu_ns()
    for _ in range(calls):
        each()
    thread = thread_cpu_ns() - thread
    side.flush()
    return thread / 1e3 / calls, (cpu_ns() - process) / 1e3 / (calls + 1)


_AT_THE_BEGINNING = {
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.request.stream",
    "server.address",
    "server.port",
}
"""What a sampler has to know."""


class _Discarding(SpanExporter):
    """Counts spans, and lets go of all but the last."""

    def __init__(self) -> None:
        self.spans = 0
        self.last: ReadableSpan | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count a batch, and read it as an exporter does that encodes it."""
        self.spans += sum(1 for span in spans if dict(span.attributes or {}))
        self.last = spans[-1]
        return SpanExportResult.SUCCESS


class _DiscardingMetrics(MetricExporter):
    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        pass


@contextmanager
def _tracing(*, sampled: bool = True) -> Iterator[tuple[TracerProvider, _Discarding]]:
    """Make a provider of tracers as an application would, whose batches go nowhere."""
    exporter = _Discarding()
    provider = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=65_536))
    try:
        yield provider, exporter
    finally:
        provider.shutdown()


@contextmanager
def _metering() -> Iterator[MeterProvider]:
    """Make a provider of meters as an application would, whose figures go nowhere."""
    reader = PeriodicExportingMetricReader(_DiscardingMetrics(), export_interval_millis=3_600_000)
    provider = MeterProvider(metric_readers=[reader])
    try:
        yield provider
    finally:
        provider.shutdown()


def _sdk_side(provider: TracerProvider, like: ReadableSpan) -> _Side:
    """Make a side where nothing but a span of the SDK's own is around each call, with the attributes of one of ours."""
    tracer, told = provider.get_tracer("benchmark"), dict(like.attributes or {})
    begun = {name: told.pop(name) for name in list(told) if name in _AT_THE_BEGINNING}

    def around(call: Callable[[], None]) -> None:
        context, start_ns = get_current(), wall_ns()
        span = tracer.start_span(
            like.name,
            context=context,
            kind=SpanKind.CLIENT,
            attributes=begun,
            start_time=start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )
        call()
        span.set_attributes(told)
        span.end(wall_ns())

    return _Side(_NONE, around, provider)


@contextmanager
def _settings_of_sides() -> Iterator[tuple[dict[str, TelemetrySettings], _Discarding]]:
    with ExitStack() as stack:
        sampled, exporter = stack.enter_context(_tracing())
        unsampled, nothing = stack.enter_context(_tracing(sampled=False))
        meters = stack.enter_context(_metering())
        sides = {"none_again": _NONE, "noop": TelemetrySettings()}
        for level in _LEVELS:
            sides[level] = TelemetrySettings(level=level, tracer_provider=sampled)
            if level != "attempts":
                sides[f"{level}_metrics"] = sides[level].with_changes({"meter_provider": meters})
        sides["unsampled"] = TelemetrySettings(tracer_provider=unsampled)
        sides["unsampled_metrics"] = TelemetrySettings(tracer_provider=unsampled, meter_provider=meters)
        sides["metrics"] = TelemetrySettings(meter_provider=meters)
        try:
            yield sides, exporter
        finally:
            telemetry_settings.use(None)
        if not exporter.spans or nothing.spans:
            raise RuntimeError("the sides did not export what they were to: nothing was measured")


def _taken(
    settings: Mapping[str, TelemetrySettings], exporter: _Discarding, chunks: int, *, calls: int, rounds: int
) -> dict[str, _Taken]:
    http_client = httpx2.Client(transport=_StampedTransport("text/event-stream", _reads(chunks)))
    own: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}
    with fastlane.OpenAI(**own, http_client=http_client) as client:
        sides = {name: _Side(one) for name, one in settings.items()}
        telemetry_settings.use(settings["call"])
        _streamed_call(client)
        sides["call"].flush()
        if exporter.last is None:
            raise RuntimeError("a call's span was not exported")
        sides["sdk"] = _sdk_side(settings["call"].tracer_provider, exporter.last)
        sides["sdk_unsampled"] = _sdk_side(settings["unsampled"].tracer_provider, exporter.last)
        return _take(_Side(_NONE), sides, client, calls=calls, rounds=rounds)


def measure(quick: bool) -> Report:
    """Measure calls of many and of the usual number of chunks."""
    rounds = 40 if quick else 250
    with _settings_of_sides() as (settings, exporter):
        many = _taken(settings, exporter, _MANY_CHUNKS, calls=1, rounds=rounds // 8)
        direct = _taken(settings, exporter, _CHUNKS, calls=2, rounds=rounds)
    figures: dict[str, Figure] = {"none_total_us": median(direct["noop"].base_thread).value}
    for name in direct:
        usual = median(direct[name].thread)
        chunk = median([(one - usual.value) / (_MANY_CHUNKS - _CHUNKS) for one in many[name].thread])
        figures |= {
            f"{name}_call_us": usual.value,
            f"{name}_call_low_us": usual.low,
            f"{name}_call_high_us": usual.high,
            f"{name}_process_us": median(direct[name].process).value,
            f"{name}_chunk_us": chunk.value,
            f"{name}_chunk_high_us": chunk.high,
        }
    return Report(
        figures=figures,
        reach={
            "call_call_us": "<= 40",
            "call_metrics_call_us": "<= 40",
            "call_chunk_us": "<= 1",
            "call_metrics_chunk_us": "<= 1",
            "unsampled_call_us": "<= 6",
            "unsampled_metrics_call_us": "<= 6",
        },
    )
