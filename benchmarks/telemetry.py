"""What telemetry costs the caller, and what a collector that does not work does.

`none_again` and `off_again` are second sides without telemetry: how large a difference is seen where there is none.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import json
import logging
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind

import fastlane
import fastlane.telemetry
from benchmarks._client import MESSAGES, OPTIONS, check_answer
from benchmarks._paired import added, in_turns, median, middle, percentile, without_garbage_collection
from benchmarks._prepared import DONE, Prepared, Reads, event_of, stream_of
from benchmarks._provider import MODEL
from benchmarks._report import Figure, Report
from benchmarks._servers import TEXT, child, collectors, server_on_another_core
from fastlane._clock import cpu_ns, now_ns, thread_cpu_ns
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import Providers, TelemetrySettings
from fastlane.transport.protocols.exchange import PHASES, Opening, Phases

# A provider in memory, whose answers are stamped as fastlane's own transport stamps those of a warm connection

_CHUNKS, _MANY_CHUNKS = 200, 2_000
_USAGE: dict[str, Any] = {
    "prompt_tokens": 2_048,
    "completion_tokens": 200,
    "total_tokens": 2_248,
    "prompt_tokens_details": {"cached_tokens": 1_920},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
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


def _reads(chunks: int) -> tuple[bytes, ...]:
    """Return a streamed answer, one event in each read, that ends with its usage."""
    *content, _ = stream_of(chunks)
    usage = json.loads(event_of({}).removeprefix(b"data: ")) | {"choices": [], "usage": _USAGE}
    return (*content, event_of({}, "stop"), b"data: " + json.dumps(usage).encode() + b"\n\n", DONE)


class _StampedReads(Reads):
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
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        phases: Phases | None = request.extensions.get(PHASES)
        if phases is None:
            return super().handle_request(request)
        phases.begin(now_ns())
        phases.opening, phases.reused, phases.http_version = _OPENING, True, "HTTP/2"
        phases.round_trip_time_ns = 40_000_000
        phases.send_started_ns = now_ns()
        phases.send_ended_ns = now_ns()
        phases.first_byte_ns = now_ns()
        headers = {**self.headers, "x-request-id": "req_1"}
        return httpx2.Response(200, headers=headers, stream=_StampedReads(self.reads, phases))


# Sides

_BARRED = ("call", "call_metrics", "unsampled", "unsampled_metrics")
"""Measured several times a round, because their figures have bars."""
_AT_THE_BEGINNING = {
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.request.stream", "server.address",
    "server.port",
}  # fmt: skip
"""What a sampler has to know."""


class _Side(NamedTuple):
    """One exporter of the same calls."""

    providers: Providers
    around: Callable[[Callable[[], int]], int] | None = None
    """Makes the call where it is not made as it is."""
    flushed: Sequence[Any] = ()


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


def _tracing(stack: ExitStack, *, sampled: bool) -> tuple[TracerProvider, _Discarding]:
    """Make a provider of tracers as an application would, whose batches go nowhere."""
    exporter, provider = _Discarding(), TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=65_536))
    stack.callback(provider.shutdown)
    return provider, exporter


def _sdk_side(provider: TracerProvider, like: ReadableSpan, none: Providers) -> _Side:
    """Make a side where nothing but a span of the SDK's own is around each call, with the attributes of one of ours."""
    tracer, later = provider.get_tracer("benchmark"), dict(like.attributes or {})
    begun = {name: later.pop(name) for name in list(later) if name in _AT_THE_BEGINNING}

    def around(call: Callable[[], int]) -> int:
        span = tracer.start_span(like.name, kind=SpanKind.CLIENT, attributes=begun)
        taken = call()
        span.set_attributes(later)
        span.end()
        return taken

    return _Side(none, around, [provider])


@contextmanager
def _all_sides(call: Callable[[], int]) -> Iterator[dict[str, _Side]]:
    with ExitStack() as stack:
        sampled, exporter = _tracing(stack, sampled=True)
        unsampled, nothing = _tracing(stack, sampled=False)
        meters = MeterProvider(metric_readers=[InMemoryMetricReader()])
        stack.callback(meters.shutdown)
        stack.callback(telemetry_settings.use, None)
        none = Providers(TelemetrySettings(level="off"))
        sides = {"none": _Side(none), "none_again": _Side(none), "noop": _Side(Providers(TelemetrySettings()))}
        given: Mapping[str, dict[str, Any]] = {
            "call": {"level": "call", "tracer_provider": sampled},
            "attempts": {"level": "attempts", "tracer_provider": sampled},
            "phases": {"level": "phases", "tracer_provider": sampled},
            "unsampled": {"tracer_provider": unsampled},
            "metrics": {},
        }
        for name, options in given.items():
            provider = options.get("tracer_provider")
            if provider is not None:
                sides[name] = _Side(Providers(TelemetrySettings(**options)), None, [provider])
            if name != "attempts":
                settings = TelemetrySettings(**options, meter_provider=meters)
                flushed = [one for one in (provider, meters) if one is not None]
                sides[name if provider is None else f"{name}_metrics"] = _Side(Providers(settings), None, flushed)
        _block(sides["call"], call, 1)
        if exporter.last is None:
            raise RuntimeError("a call's span was not exported")
        sides["sdk"] = _sdk_side(sampled, exporter.last, none)
        sides["sdk_unsampled"] = _sdk_side(unsampled, exporter.last, none)
        yield sides
        if nothing.spans:
            raise RuntimeError("a side exported what it was not to: nothing was measured")


class _Block(NamedTuple):
    """Microseconds of a call, the mean of a block; `ends` is without the chunks between the first and the last."""

    ends: float
    whole: float
    process: float

    def beyond(self, before: _Block, after: _Block) -> _Block:
        """Return what this block took beyond its neighbours."""
        return _Block(*(one - (two + three) / 2 for one, two, three in zip(self, before, after, strict=True)))


def _block(side: _Side, call: Callable[[], int], calls: int) -> _Block:
    each = call if side.around is None else partial(side.around, call)
    # Not by `use()`: what is made with the first call after a change is made once for each side.
    telemetry_settings._settings, telemetry_settings._latest = side.providers.settings, side.providers
    process, middle_ns = cpu_ns(), 0
    each()  # what another side left in the processor's caches is no part of a call
    thread = thread_cpu_ns()
    for _ in range(calls):
        middle_ns += each()
    thread = thread_cpu_ns() - thread
    for provider in side.flushed:
        provider.force_flush()
    return _Block((thread - middle_ns) / 1e3 / calls, thread / 1e3 / calls, (cpu_ns() - process) / 1e3 / (calls + 1))


def _take(chunks: int, *, calls: int, rounds: int, times: int) -> tuple[dict[str, list[_Block]], list[float]]:
    """Run blocks of calls on each side, between two without telemetry, and in another order in every round.

    A block is compared with the mean of its neighbours, so that what drifts drifts out. Return what each side took
    beyond these, and the microseconds of whole calls without telemetry.
    """
    http_client = httpx2.Client(transport=_StampedTransport(_reads(chunks)))
    messages: list[Any] = [{"role": "system", "content": "Answer in one word."}, *MESSAGES]
    options: dict[str, Any] = {"stream_options": {"include_usage": True}, "temperature": 0.2, "max_tokens": 400}

    def call() -> int:
        """Make a call; return the nanoseconds of this thread between its first and its last chunk."""
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True, **options)
        next(stream)
        started = thread_cpu_ns()
        for _ in itertools.islice(stream, chunks + 1):
            pass
        taken = thread_cpu_ns() - started
        for _ in stream:
            pass
        return taken

    with (
        fastlane.OpenAI(base_url="http://prepared.invalid/v1", **OPTIONS, http_client=http_client) as client,
        _all_sides(call) as sides,
        without_garbage_collection(),
    ):
        none = sides.pop("none")
        taken: dict[str, list[_Block]] = {name: [] for name in sides}
        base_us: list[float] = []
        order, random = [*sides, *_BARRED * (times - 1)], Random(0)
        for number in range(-2, rounds):
            random.shuffle(order)
            before = _block(none, call, calls)
            for name in order:
                own = _block(sides[name], call, calls)
                after = _block(none, call, calls)
                if number >= 0:
                    taken[name].append(own.beyond(before, after))
                    base_us.append(before.whole)
                before = after
            gc.collect(0 if number % 10 else 2)
    return taken, base_us


def telemetry_cost(quick: bool) -> Report:
    """Measure the CPU that telemetry adds to a streamed call of 200 chunks, at each level, beside a span by hand.

    Inside: what the caller's thread takes from the call to its first chunk, and from its last chunk to the end
    (`_call_us`); what each chunk between them adds (`_chunk_us`, by 1,800 further ones); and what the whole process
    takes until every batch is flushed (`_process_us`; spans and figures are dropped where an exporter would encode
    them). Outside: network and garbage collection: the answer is in memory, stamped as a warm call's. Every figure is
    the difference between a block of calls and the two around it without telemetry; medians, with 95 % intervals.

    `noop` is the default level where the application has set no provider; `call` is the default level, `attempts` and
    `phases` make further spans; `unsampled` is a trace that is not sampled. `_metrics` is the same with a provider of
    meters, and `metrics` is that alone. `sdk` is a span of OpenTelemetry's SDK written by hand around each call, with
    the same attributes.
    """
    rounds = 40 if quick else 250
    many, _ = _take(_MANY_CHUNKS, calls=1, rounds=rounds // 8, times=1)
    direct, base_us = _take(_CHUNKS, calls=2, rounds=rounds, times=5)
    figures: dict[str, Figure] = {"none_total_us": middle(base_us)}
    for name, taken in direct.items():
        usual, whole = median([one.ends for one in taken]), middle([one.whole for one in taken])
        chunk = median([(one.whole - whole) / (_MANY_CHUNKS - _CHUNKS) for one in many[name]])
        figures |= {
            f"{name}_call_us": usual.value,
            f"{name}_call_low_us": usual.low,
            f"{name}_call_high_us": usual.high,
            f"{name}_process_us": middle([one.process for one in taken]),
            f"{name}_chunk_us": chunk.value,
            f"{name}_chunk_high_us": chunk.high,
        }
    return Report(
        figures=figures,
        reach={
            **{
                f"{name}_{what}_us": bar
                for what, bar in (("call", "<= 40"), ("chunk", "<= 1"))
                for name in ("call", "call_metrics")
            },
            **{f"{name}_call_us": "<= 8" for name in ("unsampled", "unsampled_metrics")},
        },
    )


# Collectors that do not work

_BROKEN = ("refuses", "hangs", "fails")
_ARMS = ("off", "off_again", "healthy", *_BROKEN)
_TIMES = 10
_AT_ONCE = 16


def _resident_bytes() -> int:
    """Return how much of this process is in memory, as Linux counts it; 0 elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def _one_by_one(client: fastlane.OpenAI, count: int) -> list[float]:
    taken_ms = []
    for _ in range(count):
        started = now_ns()
        answer = client.chat.completions.create(model="prepared-1", messages=MESSAGES)
        taken_ms.append((now_ns() - started) / 1e6)
        check_answer(answer, TEXT)
    return taken_ms


async def _many_at_once(base_url: str, count: int, telemetry: Any) -> list[int]:
    """Make calls, and return how many bytes are in memory after every tenth of them, when all has been exported."""
    resident: list[int] = []

    async def work(numbers: Iterator[int]) -> None:
        for _ in numbers:
            check_answer(await client.chat.completions.create(model="prepared-1", messages=MESSAGES), TEXT)

    async with fastlane.AsyncOpenAI(base_url=base_url, **OPTIONS) as client:
        for _ in range(_TIMES):
            numbers = iter(range(count // _TIMES))
            await asyncio.gather(*[work(numbers) for _ in range(_AT_ONCE)])
            telemetry.force_flush()
            gc.collect()
            with suppress(AttributeError, OSError, TypeError):  # of glibc's, which keeps free memory otherwise
                ctypes.CDLL(None).malloc_trim(0)
            resident.append(_resident_bytes())
    return resident


def _call_when_asked(connection: Connection, base_url: str) -> None:
    """Make calls in a process whose telemetry is configured by its environment."""
    logging.disable(logging.CRITICAL)  # what an exporter says of its collector
    telemetry = fastlane.telemetry.configure()
    with fastlane.OpenAI(base_url=base_url, **OPTIONS) as client, suppress(EOFError):
        while True:
            kind, count = connection.recv()
            if kind == "one_by_one":
                connection.send(_one_by_one(client, count))
            else:
                connection.send(asyncio.run(_many_at_once(base_url, count, telemetry)))


def _caller(base_url: str, port: int | None, **more: str) -> AbstractContextManager[Connection]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "FASTLANE_"))}
    if port is None:
        kept["FASTLANE_TELEMETRY_LEVEL"] = "off"
    else:
        kept["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        kept["OTEL_METRIC_EXPORT_INTERVAL"] = "2000"
    return child(_call_when_asked, base_url, environment=kept | more)


def _ask(connection: Connection, *question: Any) -> Any:
    connection.send(question)
    return connection.recv()


def telemetry_down(quick: bool) -> Report:
    """Measure what a broken collector costs the calls that are exported to it: p99, and memory.

    Clients in processes of their own make calls as fast as the provider answers, in blocks that take turns. One has
    telemetry off; the others export to a collector that works (`healthy`), a port without a listener (`refuses`), one
    that never answers (`hangs`), and one that answers 500 (`fails`).

    Inside `_added_p99_ms`: the p99 of a block, minus that of the block without telemetry of the same round. Inside
    `_growth_kib`: the growth of resident memory over 10,000 calls, the least of the last four counts less the least of
    the four before; unknown if the system is not Linux. A leaked span for each call would make it 40,000. Outside:
    provider and collector, on another core.
    """
    rounds, block, calls = (3, 200, 5_000) if quick else (24, 300, 50_000)
    figures: dict[str, Figure] = {}
    with server_on_another_core() as (base_url, cores), child(collectors) as collecting, ExitStack() as stack:
        ports = collecting.recv()
        callers = {arm: stack.enter_context(_caller(base_url, ports.get(arm))) for arm in _ARMS}
        # The first round opens connections and imports what is imported late.
        taken = in_turns(lambda arm: _ask(callers[arm], "one_by_one", block), _ARMS, rounds, warm_ups=1)
        p99 = {arm: [percentile(block_ms, 0.99) for block_ms in blocks] for arm, blocks in taken.items()}
        for arm in _ARMS[1:]:
            figures |= added(f"{arm}_added_p99", p99[arm], p99["off"], "ms")
        for arm, blocks in taken.items():
            everything = list(itertools.chain(*blocks))
            figures |= {f"{arm}_p50_ms": middle(everything), f"{arm}_p99_ms": percentile(everything, 0.99)}
        for arm in ("off", *_BROKEN):
            with _caller(base_url, ports.get(arm), OTEL_EXPORTER_OTLP_TIMEOUT="1") as caller:
                resident = _ask(caller, "many_at_once", calls)
            more_kib = (min(resident[6:]) - min(resident[2:6])) / 1024
            figures[f"{arm}_growth_kib"] = more_kib * 10_000 / (0.4 * calls) if all(resident) else None
            figures[f"{arm}_resident_mib"] = resident[-1] / 1024**2
        for caller in callers.values():
            caller.close()  # all at once: each waits for its collector
        stack.close()
        got = _ask(collecting)
    for name in ("healthy_requests", "healthy_bytes", "hangs_requests", "fails_requests"):
        figures[name] = got.get(name, 0)
    if not all(got.get(name) for name in ("healthy_bytes", "hangs_requests", "fails_requests")):
        raise RuntimeError("the collectors got no calls: nothing was measured")
    return Report(
        figures=figures,
        reach={
            **{f"{arm}_added_p99_ms": "<= 1" for arm in _BROKEN},
            **{f"{arm}_growth_kib": "<= 256" for arm in _BROKEN},
        },
        conditions={"rounds": rounds, "calls_a_block": block, "calls_for_memory": calls, "cores": cores},
    )
