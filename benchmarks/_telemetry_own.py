"""What telemetry's own functions take for one call that is over, without a call around them."""

from __future__ import annotations

import gc
from typing import Any

from benchmarks._paired import Median, median
from benchmarks._prepared import MODEL
from benchmarks._telemetry_blocks import MESSAGES, streamed_call
from fastlane._clock import cpu_ns, thread_cpu_ns
from fastlane.engine.call_state import CallState
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import TelemetrySettings
from fastlane.telemetry.traces import trace_of

_BODY = {"model": MODEL, "messages": MESSAGES, "stream": True, "temperature": 0.2, "max_tokens": 400}
_CALLS = 50


class _Request:
    headers: dict[str, str] = {}  # noqa: RUF012 - nothing is written into it unless trace contexts are sent


def _told(observation: CallState) -> None:
    observation._record = None  # the record is made for the sake of telemetry
    trace = trace_of(observation)
    if trace is None:  # certainly not sampled
        return
    trace.planned(observation, _BODY)
    trace.attempting(observation, _Request)
    trace.ended(observation)


def functions_us(client: Any, settings: TelemetrySettings, rounds: int) -> tuple[Median, Median]:
    """Microseconds of the thread, and of the process until all is flushed, to tell of one call, in a loop."""
    telemetry_settings.use(TelemetrySettings(level="off"))
    streamed_call(client)
    observation = client._fastlane.pipeline._calls[-1]
    telemetry_settings.use(settings)
    thread, process = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            started, all_started = thread_cpu_ns(), cpu_ns()
            for _ in range(_CALLS):
                _told(observation)
            thread.append((thread_cpu_ns() - started) / 1e3 / _CALLS)
            for provider in (settings.tracer_provider, settings.meter_provider):
                if provider is not None:
                    provider.force_flush()
            process.append((cpu_ns() - all_started) / 1e3 / _CALLS)
            gc.collect(0)
    finally:
        gc.enable()
    return median(thread), median(process)
