"""Spans of calls to a provider whose delays are known: none lasts less than what it stands for, or is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import sleep
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fastlane
from fastlane.emulator import Dialect, Emulator, RequestLog, preset
from fastlane.emulator.wire import Wire
from fastlane.telemetry import TelemetrySettings, settings as telemetry_settings

ROUND_TRIP_TIME_S = 0.04
MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


class Spans(NamedTuple):
    """All spans of one call."""

    spans: Sequence[ReadableSpan]

    @property
    def chat(self) -> ReadableSpan:
        """The call's own."""
        (root,) = [span for span in self.spans if span.parent is None]
        return root

    def named(self, name: str) -> list[ReadableSpan]:
        """Those whose names begin so, in order of time."""
        found = [span for span in self.spans if span.name.startswith(name)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def seconds(self, name: str) -> float:
        """How long the only one of this name took."""
        (span,) = self.named(name)
        return seconds(span)

    def answered_after(self) -> float:
        """From the first byte that was sent to the head of the answer: a busy thread stamps the last one late."""
        (send,), (wait,) = self.named("HTTP send_request"), self.named("HTTP wait_for_response")
        return seconds(send) + seconds(wait)

    def attribute(self, name: str) -> Any:
        """What the call's own says."""
        return (self.chat.attributes or {})[name]


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def between(one: ReadableSpan, other: ReadableSpan) -> float:
    """Seconds from the end of one to the start of the other."""
    assert one.end_time is not None
    assert other.start_time is not None
    return (other.start_time - one.end_time) / 1e9


def log_seconds(start_ns: int | None, end_ns: int | None) -> float:
    assert start_ns is not None
    assert end_ns is not None
    return (end_ns - start_ns) / 1e9


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """What is exported at the level at which everything is."""
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry_settings.use(TelemetrySettings(level="phases", tracer_provider=tracers))
    yield exporter
    telemetry_settings.use(None)
    tracers.shutdown()


@pytest.fixture(scope="module")
def running_far_provider() -> Iterator[Emulator]:
    """A provider at a distance, which takes 64 KiB of a body at once."""
    wire = Wire(round_trip_time_s=ROUND_TRIP_TIME_S, slow_start=False)
    with Emulator(
        model=replace(preset("instant"), dialect=Dialect(initial_window_bytes=65_536)), wire=wire
    ) as provider:
        yield provider


@pytest.fixture
def far_provider(running_far_provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    for name, value in running_far_provider.environment.items():
        monkeypatch.setenv(name, value)
    running_far_provider.clear()
    return running_far_provider


def read(client: fastlane.OpenAI, *, pause_s: float = 0.0, messages: Any = MESSAGES, **wishes: object) -> None:
    """Read a stream to its end."""
    headers = {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in wishes.items()}
    options: dict[str, Any] = {"extra_headers": headers, "stream_options": {"include_usage": True}}
    for _chunk in client.chat.completions.create(model="any", messages=messages, stream=True, **options):
        if pause_s:
            sleep(pause_s)


def spans_and_log(
    provider: Emulator, exporter: InMemorySpanExporter, **wishes: Any
) -> tuple[Spans, tuple[RequestLog, ...]]:
    """The spans of one streamed call on a connection that was open, and the provider's log of it."""
    with fastlane.OpenAI(base_url=provider.base_url, api_key="any") as client:
        read(client)
        provider.clear()
        exporter.clear()
        read(client, **wishes)
    return Spans(exporter.get_finished_spans()), provider.log()


def test_every_span_lies_within_its_parent(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, _ = spans_and_log(
        provider, exporter, fault="status=429;retry_after=0.05;times=1", tag="within", output_tokens=5
    )

    by_id = {span.context.span_id: span for span in spans.spans}
    children = [span for span in spans.spans if span.parent is not None]
    assert len(children) > 5
    for span in children:
        assert span.parent is not None
        parent = by_id[span.parent.span_id]
        assert span.start_time is not None
        assert span.end_time is not None
        assert (parent.start_time or 0) <= span.start_time <= span.end_time, span.name
        # The thread that sends may come to say so only after another has seen the answer.
        if span.name not in ("HTTP send_request", "HTTP wait_for_response"):
            assert span.end_time <= (parent.end_time or 0), span.name


def test_prefill_time_counts_as_server_wait(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, (request,) = spans_and_log(provider, exporter, prefill_ms=120, output_tokens=3)

    prefill_s = log_seconds(request.body_complete_ns, request.headers_sent_ns)
    assert prefill_s >= 0.12
    assert spans.answered_after() >= 0.08
    assert spans.attribute("fastlane.server.wait.duration") + spans.attribute("fastlane.wire.send.duration") >= 0.08
    # (On a busy machine, either side notes what happened some time after.)
    assert spans.attribute("fastlane.time_to_first_token") >= 0.1


def test_early_head_counts_as_first_token_wait(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, _ = spans_and_log(provider, exporter, prefill_ms=150, output_tokens=3, fault="early_role")

    assert spans.seconds("first_token") >= 0.05
    assert (
        spans.attribute("fastlane.time_to_first_token") >= spans.attribute("gen_ai.response.time_to_first_chunk") + 0.05
    )


def test_decode_lasts_from_the_first_token_to_the_last(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, (request,) = spans_and_log(provider, exporter, token_ms=30, output_tokens=6)

    # The provider's first may be delayed more than its last, but never by all that lies between them.
    assert log_seconds(request.token_ns[0], request.token_ns[-1]) >= 0.1
    assert spans.seconds("decode") >= 0.05
    assert spans.attribute("fastlane.decode.duration") == pytest.approx(spans.seconds("decode"))
    assert spans.attribute("fastlane.decode.tokens_per_second") == pytest.approx(5 / spans.seconds("decode"))
    assert spans.attribute("gen_ai.usage.output_tokens") == request.output_tokens == 6
    assert spans.attribute("gen_ai.usage.input_tokens") == request.prompt_tokens


def test_slow_application_lengthens_only_the_call_span(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, _ = spans_and_log(provider, exporter, pause_s=0.2, token_ms=5, output_tokens=9)

    assert seconds(spans.chat) >= 2.0
    assert spans.seconds("decode") < 2.0
    assert spans.seconds("POST") < seconds(spans.chat)


def test_retry_span_starts_after_the_retry_after_wait(provider: Emulator, exporter: InMemorySpanExporter) -> None:
    spans, requests = spans_and_log(provider, exporter, fault="status=429;retry_after=0.15;times=1", tag="retry")

    first, second = spans.named("POST")
    assert [request.status for request in requests] == [429, 200]
    assert between(first, second) >= 0.15
    assert spans.attribute("fastlane.retry.wait.duration") == pytest.approx(between(first, second))
    assert spans.attribute("fastlane.attempt.count") == 2
    assert not [span for span in spans.named("decode") if span.parent != second.context]


def test_first_call_takes_the_round_trips_of_its_connection(
    far_provider: Emulator, exporter: InMemorySpanExporter
) -> None:
    with fastlane.OpenAI(base_url=far_provider.base_url, api_key="any") as client:
        read(client, output_tokens=2)
        cold = Spans(exporter.get_finished_spans())
        exporter.clear()
        read(client, output_tokens=2)
    warm = Spans(exporter.get_finished_spans())

    # The wire's own TCP handshake is seen in TLS, since a loopback connection is accepted at once.
    assert cold.seconds("HTTP connection_setup") >= 2 * ROUND_TRIP_TIME_S
    assert cold.attribute("fastlane.wire.duration") >= 2 * ROUND_TRIP_TIME_S
    assert cold.attribute("fastlane.time_to_first_token") >= 3 * ROUND_TRIP_TIME_S
    assert not warm.named("HTTP connection_setup")
    assert warm.answered_after() >= ROUND_TRIP_TIME_S
    assert warm.attribute("fastlane.connection.reused") is True
    assert "fastlane.wire.tls.duration" not in (warm.chat.attributes or {})


def test_send_duration_includes_flow_control_waits(far_provider: Emulator, exporter: InMemorySpanExporter) -> None:
    windows = 4
    spans, (request,) = spans_and_log(
        far_provider, exporter, messages=[{"role": "user", "content": "wet " * (windows * 65_536 // 4)}]
    )

    assert request.bytes_in > windows * 65_536
    assert spans.seconds("HTTP send_request") >= windows * ROUND_TRIP_TIME_S
    assert spans.answered_after() >= (windows + 1) * ROUND_TRIP_TIME_S
    (post,) = spans.named("POST")
    assert (post.attributes or {})["http.request.body.size"] == request.bytes_in
