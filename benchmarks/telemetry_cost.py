"""What telemetry costs the caller: CPU for each streamed call of 200 chunks, at each level, beside other tools.

Inside: what the caller's thread takes from the application's call to the end of its stream (`_call_us`), and what the
whole process takes for it until every batch is flushed (`_process_us`: the threads that export spans and work metrics
out; spans and figures are dropped where an exporter would encode them). Outside: the network, TLS, framing and garbage
collection: the answer stands in memory, and is stamped as fastlane's own transport stamps a warm call, so that spans
have all of their parts. Every figure is a difference: of a block of calls with the side's telemetry and the two around
it in the same process, which had none; medians of many, with 95 % intervals. `none_again` is a second side without
telemetry: how large a difference this run would report where there is none.

A call of 200 chunks varies by as much as its telemetry takes, which is why there are so many of them. Of calls of 4
chunks (`_brief_us`) the difference is seen more sharply, and is smaller: the less a call does, the more of telemetry's
code is still in the processor's caches. `_chunk_us` is what 2,000 chunks add over those 4.

Sides of fastlane: `noop` is the default level where the application has imported OpenTelemetry and set no provider;
`call` is the default level, `attempts` and `phases` make spans of requests and of their parts as well; `unsampled` is
the default level in a trace that nobody samples. Each has a batch processor; `_metrics` is the same with a provider of
meters, and `metrics` is that alone. `connected` is the same over our own connections to a provider in another process.

Beside them stands what the official instrumentation, OpenLLMetry's and OpenInference's add to the same calls of the
stock client, each in a process of its own, with providers of spans and meters; the `ratio` is theirs to our default.

`sdk` is no telemetry of fastlane's but a span of OpenTelemetry's SDK written by hand around each call, with the same
attributes: what no instrumentation can take less than that makes a span of each call where it ends. `functions` are
those of telemetry alone, in a loop without calls between them, so that all of their code is in the processor's caches.

Where every processor of spans collects them for a thread of its own, as here, fastlane makes its spans in another
thread as well: what that takes is in `_process_us`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import openai

import fastlane
from benchmarks._paired import median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._telemetry_blocks import Taken, connected_call, stamped_client, streamed_call, take
from benchmarks._telemetry_other import CHUNKS, FEW_CHUNKS, MANY_CHUNKS, costs, measured
from benchmarks._telemetry_own import functions_us
from benchmarks._telemetry_sides import OTHERS, Discarding, metering, own_side, sdk_side, tracing
from fastlane.telemetry import settings as telemetry_settings
from fastlane.telemetry.settings import TelemetrySettings

_NONE = TelemetrySettings(level="off")
_LEVELS: tuple[Any, ...] = ("call", "attempts", "phases")
_CONNECTED_SIDES = ("none_again", "call", "call_metrics", "phases_metrics", "unsampled")


@contextmanager
def _settings_of_sides() -> Iterator[tuple[dict[str, TelemetrySettings], Discarding]]:
    with ExitStack() as stack:
        sampled, exporter = stack.enter_context(tracing())
        unsampled, nothing = stack.enter_context(tracing(sampled=False))
        meters = stack.enter_context(metering())
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
    client: openai.OpenAI, settings: Mapping[str, TelemetrySettings], exporter: Discarding, **more: Any
) -> dict[str, Taken]:
    sides = {name: own_side(client, one) for name, one in settings.items()}
    sides["call"].begin()
    streamed_call(client)
    sides["call"].flush()
    if exporter.last is None:
        raise RuntimeError("a call's span was not exported")
    sides["sdk"] = sdk_side(client, settings["call"].tracer_provider, exporter.last)
    sides["sdk_unsampled"] = sdk_side(client, settings["unsampled"].tracer_provider, exporter.last)
    return take(own_side(client, _NONE), sides, **more)


def _own(quick: bool) -> dict[str, Figure]:
    rounds = 40 if quick else 250
    with (
        _settings_of_sides() as (settings, exporter),
        stamped_client(fastlane.OpenAI, FEW_CHUNKS) as brief,
        stamped_client(fastlane.OpenAI, CHUNKS) as usual,
        stamped_client(fastlane.OpenAI, MANY_CHUNKS) as long,
        providers(1) as (provider,),
        fastlane.OpenAI(base_url=provider.base_url, api_key="none", max_retries=0) as connected,
    ):
        few = _taken(brief, settings, exporter, calls=5, rounds=rounds)
        many = _taken(long, settings, exporter, calls=1, rounds=rounds // 8)
        direct = _taken(usual, settings, exporter, calls=2, rounds=rounds)
        asked = {name: settings[name] for name in _CONNECTED_SIDES}
        far = _taken(connected, asked, exporter, calls=2, rounds=rounds // 8, call=connected_call(CHUNKS))
        functions = {name: functions_us(usual, settings[name], rounds // 4) for name in (*_LEVELS, "unsampled")}
    figures: dict[str, Figure] = {"none_total_us": median(direct["noop"].base_thread).value}
    for name in few:
        figures |= costs(name, few[name], many[name], direct[name])
    figures["connected_none_total_us"] = median(far["none_again"].base_thread).value
    for name, taken in far.items():
        figures |= {
            f"connected_{name}_call_us": median(taken.thread).value,
            f"connected_{name}_process_us": median(taken.process).value,
        }
    for name, (thread, process) in functions.items():
        figures |= {f"functions_{name}_us": thread.value, f"functions_{name}_process_us": process.value}
    return figures


def measure(quick: bool) -> Report:
    """Measure fastlane's telemetry, then the other instrumentations one after the other."""
    figures = _own(quick)
    rounds = 5 if quick else 40
    for name in OTHERS:
        other = measured(name, rounds)
        figures |= other
        ours = figures["call_metrics_call_us"]
        assert ours is not None
        figures[f"{name}_to_ours_ratio"] = other[f"{name}_call_us"] / ours
    return Report(
        figures=figures,
        reach=(
            Reach(figure="call_call_us", op="<=", target=40),
            Reach(figure="call_metrics_call_us", op="<=", target=40),
            Reach(figure="call_chunk_us", op="<=", target=1),
            Reach(figure="call_metrics_chunk_us", op="<=", target=1),
            Reach(figure="unsampled_call_us", op="<=", target=6),
            Reach(figure="unsampled_metrics_call_us", op="<=", target=6),
        ),
        conditions={
            "chunks": CHUNKS,
            "chunks_of_a_long_stream": MANY_CHUNKS,
            "calls_of_a_block": "5 of 4 chunks, 2 of 200, 1 of 2,000",
            "synchronous": True,
            "garbage_collection": "between blocks",
            "exporters": "count and drop",
        },
    )
