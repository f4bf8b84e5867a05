"""Eight kinds of calls over a wire of known delays: what telemetry said of each, and what the provider's log says."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fastlane
from benchmarks._provider import MODEL
from benchmarks._transport import ours, ours_async, wishes
from benchmarks._truth_wire import Bare, Delays, ask_barely, known_resolver
from fastlane._clock import now_ns, wall_ns
from fastlane.emulator import Dialect, Emulator, RequestLog, preset
from fastlane.emulator.wire import Wire
from fastlane.plays.hedging.play import Hedging
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import TelemetrySettings

ROUND_TRIP_TIME_S = 0.04
RETRY_AFTER_S = 0.2
WINDOW_BYTES = 65_536
"""Of each of the provider's bodies: an upload waits for a round trip whenever so much is on its way."""
_LEARNING = 30
_BETWEEN = 12
"""Calls as usual between two that are late: no second attempt is made where many are."""
_PROMPT = "Is water wet, or only what it touches? " * 200
_UPLOAD = "Is water wet, or only what it touches? " * 16_000
_NEVER = threading.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of call."""

    name: str
    wishes: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = _PROMPT
    pause_s: float = 0.0
    """What the application takes for each chunk."""


_BRIEF = Case(name="brief", wishes={"prefill_ms": 60, "output_tokens": 1})
_USUAL = {"prefill_ms": 60, "token_ms": 10, "output_tokens": 20}
CASES = (
    Case(name="cold", wishes=_USUAL),
    Case(name="warm", wishes=_USUAL),
    Case(name="retry", wishes={**_USUAL, "fault": f"status=429;retry_after={RETRY_AFTER_S};times=1"}),
    Case(name="hedge", wishes={**_USUAL, "fault": "hang=2;times=1"}),
    Case(name="slow_upload", wishes=_USUAL, prompt=_UPLOAD),
    Case(name="slow_prefill", wishes={**_USUAL, "prefill_ms": 500, "fault": "early_role"}),
    Case(name="slow_decode", wishes={**_USUAL, "token_ms": 60, "output_tokens": 12}),
    Case(name="slow_consumer", wishes=_USUAL, pause_s=0.03),
)


class Told(NamedTuple):
    """One call: what its application saw of it, what telemetry says, and what the provider wrote down."""

    case: str
    issued_wall_ns: int
    issued_ns: int
    over_ns: int
    lookup: tuple[int, int] | None
    """When the resolver was asked, and when it answered; None where nothing was looked up."""
    spans: tuple[ReadableSpan, ...]
    log: tuple[RequestLog, ...]


class _Moments(NamedTuple):
    issued_wall_ns: int
    issued_ns: int
    over_ns: int


class _Taken(NamedTuple):
    case: str
    tag: str
    moments: _Moments
    spans: tuple[ReadableSpan, ...]


def _sync_call(client: fastlane.OpenAI, case: Case, tag: str) -> _Moments:
    headers = {**wishes(**case.wishes), **wishes(tag=tag)}
    issued_wall_ns, issued_ns = wall_ns(), now_ns()
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": case.prompt}],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=headers,
    )
    for _chunk in stream:
        if case.pause_s:
            _NEVER.wait(case.pause_s)
    return _Moments(issued_wall_ns, issued_ns, now_ns())


async def _async_call(client: fastlane.AsyncOpenAI, case: Case, tag: str) -> _Moments:
    headers = {**wishes(**case.wishes), **wishes(tag=tag)}
    issued_wall_ns, issued_ns = wall_ns(), now_ns()
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": case.prompt}],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=headers,
    )
    async for _chunk in stream:
        if case.pause_s:
            await asyncio.sleep(case.pause_s)
    return _Moments(issued_wall_ns, issued_ns, now_ns())


@contextmanager
def _provider() -> Iterator[Emulator]:
    wire = Wire(round_trip_time_s=ROUND_TRIP_TIME_S, slow_start=False)
    with Emulator(
        model=replace(preset("instant"), dialect=Dialect(initial_window_bytes=WINDOW_BYTES)), wire=wire
    ) as emulator:
        before = os.environ.get("SSL_CERT_FILE")
        os.environ["SSL_CERT_FILE"] = str(emulator.certificate_authority)
        try:
            yield emulator
        finally:
            if before is None:
                del os.environ["SSL_CERT_FILE"]
            else:
                os.environ["SSL_CERT_FILE"] = before


class _Run:
    """Makes calls one after the other, and keeps what was exported of each."""

    def __init__(self, emulator: Emulator, exporter: InMemorySpanExporter) -> None:
        # By name, so that there is something to resolve.
        self.url = emulator.base_url.replace("127.0.0.1", "localhost")
        self._exporter = exporter
        self.hedging = Hedging(budget=1.0)
        self.taken: list[_Taken] = []

    def options(self, case: Case) -> dict[str, Any]:
        """What a client for calls of this kind is made with."""
        retries: dict[str, Any] = {"max_retries": 2 if case.name == "retry" else 0}
        if case.name == "hedge":
            retries["only_plays"] = [fastlane.Connection(), self.hedging]
        return retries

    def keep(self, case: Case, tag: str, moments: _Moments) -> None:
        """A call is over."""
        if not tag.endswith(":-1"):  # what a process does once is of no interest
            self.taken.append(_Taken(case.name, tag, moments, self._exporter.get_finished_spans()))
        self._exporter.clear()

    def warmed(self) -> None:
        """What was exported so far is of no case."""
        self._exporter.clear()


def _all_sync(run: _Run, repetitions: int) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(_BETWEEN) as threads:
        clients = {}
        for case in CASES[1:]:
            client = clients[case.name] = stack.enter_context(_client(run, case))
            _sync_call(client, _BRIEF, "warming")
        for number in range(-1, repetitions):
            for case in CASES:
                if case.name == "hedge":
                    usual = [(clients["hedge"], _BRIEF, "learning")] * _BETWEEN
                    list(threads.map(_sync_call, *zip(*usual, strict=True)))
                run.warmed()
                tag = f"{case.name}:sync:{number}"
                if case.name in clients:
                    run.keep(case, tag, _sync_call(clients[case.name], case, tag))
                else:
                    with _client(run, case) as cold:
                        run.keep(case, tag, _sync_call(cold, case, tag))


async def _all_async(run: _Run, repetitions: int) -> None:
    async with AsyncExitStack() as stack:
        clients = {}
        for case in CASES[1:]:
            client = clients[case.name] = await stack.enter_async_context(_async_client(run, case))
            await _async_call(client, _BRIEF, "warming")
        # What is usual has to be known before anything is late.
        await asyncio.gather(*[_async_call(clients["hedge"], _BRIEF, "learning") for _ in range(_LEARNING)])
        for number in range(-1, repetitions):
            for case in CASES:
                if case.name == "hedge":
                    await asyncio.gather(*[_async_call(clients["hedge"], _BRIEF, "learning") for _ in range(_BETWEEN)])
                run.warmed()
                tag = f"{case.name}:async:{number}"
                if case.name in clients:
                    run.keep(case, tag, await _async_call(clients[case.name], case, tag))
                else:
                    async with _async_client(run, case) as cold:
                        run.keep(case, tag, await _async_call(cold, case, tag))


def _client(run: _Run, case: Case) -> fastlane.OpenAI:
    if case.name == "hedge":
        return fastlane.OpenAI(base_url=run.url, api_key="none", **run.options(case))
    return ours(run.url, case.name, **run.options(case))


def _async_client(run: _Run, case: Case) -> fastlane.AsyncOpenAI:
    if case.name == "hedge":
        return fastlane.AsyncOpenAI(base_url=run.url, api_key="none", **run.options(case))
    return ours_async(run.url, case.name, **run.options(case))


def told(repetitions: int) -> tuple[list[Told], Delays]:
    """Make every kind of call so many times with the asynchronous client, and as often with the synchronous one.

    With them comes what the wire really took.
    """
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    bare = Bare([], [])
    with _provider() as emulator, known_resolver() as lookups:
        run = _Run(emulator, exporter)
        ask_barely(run.url, bare)
        telemetry_settings.use(TelemetrySettings(level="phases", tracer_provider=tracers))
        try:
            asyncio.run(_all_async(run, repetitions))
            _all_sync(run, repetitions)
        finally:
            telemetry_settings.use(None)
            tracers.shutdown()
        ask_barely(run.url, bare)
        log = emulator.log()
    by_tag: dict[str | None, list[RequestLog]] = {}
    for request in sorted(log, key=lambda one: one.received_ns):
        by_tag.setdefault(request.tag, []).append(request)
    calls = []
    for one in run.taken:
        moments = one.moments
        found = [lookup for lookup in lookups if moments.issued_ns <= lookup[0] <= moments.over_ns]
        calls.append(Told(one.case, *moments, found[-1] if found else None, one.spans, tuple(by_tag[one.tag])))
    return calls, bare.delays(log)
