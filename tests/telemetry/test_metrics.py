from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context

from fastlane import AsyncOpenAI, OpenAI, user_action
from fastlane.records import HedgingRecord, PromptCacheRecord, Usage
from fastlane.records.section import LONG_SECONDS, SECONDS, SHORT_SECONDS
from fastlane.telemetry import ExperimentArm, experiment
from fastlane.telemetry.metrics import all_metrics
from tests.telemetry.conftest import CapturedTelemetry
from tests.telemetry.measuring import MS, attempt, ended, ended_action, everything, record, wire

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}

GENERIC = {
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.operation.time_per_output_chunk",
    "gen_ai.client.token.usage",
}


def test_streamed_call_records_each_duration_metric(meters: CapturedTelemetry) -> None:
    meters.tell(ended())

    assert meters.values("fastlane.client.time_to_first_token") == {(False,): 0.1}
    assert meters.values("fastlane.client.wire.duration") == {
        (False, "queue"): 0.001,
        (False, "dns"): 0.002,
        (False, "connect"): 0.004,
        (False, "tls"): 0.008,
        (False, "send"): 0.001,
    }
    assert meters.values("fastlane.client.decode.rate") == {(): pytest.approx(200.0)}
    assert meters.values("fastlane.client.stream.max_chunk_gap") == {(): 0.15}
    assert meters.values("gen_ai.client.operation.duration") == {(): 0.5}
    assert meters.values("gen_ai.client.operation.time_to_first_chunk") == {(): 0.09}
    assert meters.values("gen_ai.client.operation.time_per_output_chunk") == {(): pytest.approx(0.1)}
    assert meters.values("gen_ai.client.token.usage") == {("input",): 700, ("output",): 41}


def test_calls_are_labeled_by_model_server_and_experiment(meters: CapturedTelemetry) -> None:
    meters.tell(ended(experiment=ExperimentArm(name="http2", arm="on", unit_id_hash="5f")))

    points = meters.points()
    usual = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-1",
        "gen_ai.response.model": "m-1-2026",
        "server.address": "api.example.com",
    }
    arm = {"fastlane.experiment.name": "http2", "fastlane.experiment.arm": "on"}
    assert points["gen_ai.client.operation.duration"][0].attributes == {**usual, "server.port": 443}
    assert points["fastlane.client.time_to_first_token"][0].attributes == {
        **usual,
        **arm,
        "fastlane.connection.reused": False,
    }


def test_missing_wire_phase_has_no_data_point(meters: CapturedTelemetry) -> None:
    warm = wire(
        connection_wait_started_ns=None, dns_started_ns=None, dns_ended_ns=None, connect_started_ns=None,
        connect_ended_ns=None, tls_started_ns=None, tls_ended_ns=None,
    )  # fmt: skip
    meters.tell(ended(record(attempts=(attempt(wire=warm, connection_reused=True),))))

    assert meters.values("fastlane.client.wire.duration") == {(True, "send"): 0.001}
    assert meters.values("fastlane.client.time_to_first_token") == {(True,): 0.1}


def test_real_calls_and_actions_are_measured_as_recorded(meters: CapturedTelemetry, arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client, user_action("answer ticket"), experiment("http2", "on"):
        list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **ASK))
        client.chat.completions.create(**ASK)
        client.models.list()
        streamed, whole, _ = client.calls
    with suppress(KeyError), user_action("broken"):
        raise KeyError

    chats_s = pytest.approx(streamed.duration_s + whole.duration_s)
    outputs = [call.usage.output_tokens or 0 for call in (streamed, whole)]
    assert meters.values("fastlane.client.attempts") == {("first", "completed", "on", "http2"): 2}
    assert meters.values("gen_ai.client.operation.duration") == {(): chats_s}
    assert meters.values("gen_ai.client.token.usage")["output",] == sum(outputs)
    assert meters.values("fastlane.interaction.duration").keys() == {("answer ticket",), ("KeyError", "broken")}
    labels = [point.attributes for points in meters.points().values() for point in points]
    ids = {streamed.call_id, streamed.request_id, streamed.response_id}
    assert not [one for one in labels if ids & set(one.values())]
    of_other_clients = "http.client.open_connections"  # which tests before this one have left
    assert meters.points().keys() <= {of_other_clients, *[metric.name for metric in all_metrics()]}
    # Of the stream alone.
    (point,) = meters.points()["fastlane.client.time_to_first_token"]
    (first_chunk,) = meters.points()["gen_ai.client.operation.time_to_first_chunk"]
    assert first_chunk.count == 1
    assert (point.count, point.sum) == (1, streamed.time_to_first_token_s)


def test_another_instrumentations_metrics_are_not_recorded_twice(meters: CapturedTelemetry) -> None:
    meters.tell(ended(counts_generic=False))

    assert "fastlane.client.time_to_first_token" in meters.points()
    assert not [name for name in meters.points() if name.startswith("gen_ai.")]
    meters.tell(ended())
    assert {name for name in meters.points() if name.startswith("gen_ai.")} == GENERIC


def test_tokens_that_were_only_estimated_are_no_usage(meters: CapturedTelemetry) -> None:
    meters.tell(ended(record(usage=Usage(input_tokens=7, output_tokens=9, estimated=True))))

    assert not [name for name in meters.points() if "token" in name and name.startswith("gen_ai.client")]


@pytest.mark.parametrize(
    ("outcome", "error", "error_labels"),
    [
        ("failed", "RateLimitError", ("RateLimitError",)),
        ("truncated", None, ("truncated",)),
        ("cancelled", "CancelledError", ()),
        ("stopped", None, ()),
    ],
)
def test_failed_calls_have_an_error_class_and_cancelled_do_not(
    meters: CapturedTelemetry, outcome: Any, error: str | None, error_labels: tuple[str, ...]
) -> None:
    meters.tell(ended(record(outcome=outcome, error=error)))

    assert meters.values("gen_ai.client.operation.duration") == {error_labels: 0.5}


def test_attempts_are_counted_by_kind_and_outcome(meters: CapturedTelemetry) -> None:
    refused = attempt(1, status_code=429, wire=wire(ended_ns=30 * MS))
    broken = attempt(2, kind="retry", status_code=None, error="ConnectError", wire=wire(started_ns=50 * MS))
    late = attempt(3, kind="retry", given_up="late", wire=wire(started_ns=500 * MS))
    last = attempt(4, kind="retry", wire=wire(started_ns=500 * MS))
    meters.tell(ended(record(attempts=(refused, broken, late, last))))

    assert meters.values("fastlane.client.attempts") == {
        ("429", "first", "failed"): 1,
        ("ConnectError", "retry", "failed"): 1,
        ("retry", "late"): 1,
        ("retry", "completed"): 1,
    }
    waited_s = (50 - 30 + 500 - 400 + 500 - 400) / 1e3
    assert meters.values("fastlane.client.retry.wait.duration") == {(): pytest.approx(waited_s)}


def test_hedges_are_counted_by_result_with_extra_tokens(meters: CapturedTelemetry) -> None:
    hedge = HedgingRecord(delay_s=0.1, hedged=True, won=True, why_not=None, extra_input_tokens=70)
    lost = replace(hedge, won=False)
    none = HedgingRecord(delay_s=None, hedged=False, won=None, why_not="off")
    meters.tell(*(ended(record(hedging=hedging)) for hedging in (hedge, hedge, lost, none)))

    assert meters.values("fastlane.client.hedges") == {("won",): 2, ("lost",): 1}
    assert meters.values("fastlane.client.hedge.extra_tokens") == {("input",): 210}


def test_cached_tokens_are_counted_only_if_reported(meters: CapturedTelemetry) -> None:
    cache = PromptCacheRecord(
        family="f", prompt_tokens=700, reusable_tokens=600, expected_tokens=512, cached_tokens=256
    )
    silent = replace(cache, expected_tokens=None, cached_tokens=None)
    meters.tell(ended(record(prompt_cache=silent)))
    before = meters.points()
    meters.tell(ended(record(prompt_cache=cache)), ended(record(prompt_cache=cache)))

    assert not [name for name in before if "cache" in name]
    assert meters.values("fastlane.client.cache.expected_tokens") == {(): 1024}
    assert meters.values("fastlane.client.cache.read_tokens") == {(): 512}


def test_all_metrics_have_documented_buckets_and_labels(meters: CapturedTelemetry) -> None:
    meters.tell(*everything())

    points = meters.points()
    assert meters.values("fastlane.router.decisions") == {("on", "http2", "quick", "fastest"): 1}
    assert meters.values("fastlane.interaction.duration") == {("on", "http2", "answer ticket"): 1.5}
    assert points["fastlane.client.time_to_first_token"][0].explicit_bounds == SECONDS
    assert points["fastlane.client.wire.duration"][0].explicit_bounds == SHORT_SECONDS
    assert points["fastlane.interaction.duration"][0].explicit_bounds == LONG_SECONDS
    assert points["gen_ai.client.operation.duration"][0].explicit_bounds[0] == 0.01
    assert points["gen_ai.client.operation.duration"][0].explicit_bounds[-1] == pytest.approx(81.92)
    assert points["gen_ai.client.token.usage"][0].explicit_bounds[-1] == 67_108_864
    assert all(tuple(sorted(set(metric.buckets))) == metric.buckets for metric in all_metrics())


def test_exemplars_reference_the_span_of_their_call(meters: CapturedTelemetry) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    mine, others = tracer.start_span("chat"), tracer.start_span("scrape")
    mine.end()
    meters.tell(ended(span=mine.get_span_context()))
    meters.tell(ended_action("without a span"))
    token = attach(set_span_in_context(others))
    try:
        points = meters.points()
    finally:
        detach(token)

    (exemplar,) = points["fastlane.client.time_to_first_token"][0].exemplars
    assert exemplar.trace_id == mine.get_span_context().trace_id
    assert exemplar.span_id == mine.get_span_context().span_id
    assert exemplar.value == 0.1
    assert not points["fastlane.interaction.duration"][0].exemplars


def open_here(meters: CapturedTelemetry, port: int) -> dict[tuple[Any, ...], float]:
    found = {}
    for point in meters.points().get("http.client.open_connections", ()):
        if point.attributes["server.port"] == port:
            found[point.attributes["http.connection.state"],] = point.value
    return found


def test_open_connections_are_active_during_a_call_then_idle(
    meters: CapturedTelemetry, arguments: dict[str, Any]
) -> None:
    with OpenAI(**arguments) as client:
        port = client.base_url.port or 0
        client.chat.completions.create(**ASK)
        idle = open_here(meters, port)
        with client.chat.completions.create(stream=True, **ASK) as stream:
            next(stream)
            during = open_here(meters, port)

    assert idle["active",] == 0
    assert idle["idle",] >= 1
    assert sum(during.values()) == sum(idle.values())


@pytest.mark.asyncio
async def test_connections_of_a_loop_are_counted_from_other_threads(
    meters: CapturedTelemetry, arguments: dict[str, Any]
) -> None:
    async with AsyncOpenAI(**arguments) as client:
        port = client.base_url.port or 0
        await client.chat.completions.create(**ASK)
        found = await asyncio.to_thread(open_here, meters, port)

    assert sum(found.values()) >= 1
