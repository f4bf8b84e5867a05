"""Spans of calls to a provider whose delays are known: none lasts less than what it stands for, or is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import fastlane
from fastlane.emulator import Dialect, Emulator, RequestLog, preset
from fastlane.emulator.wire import Wire
from tests.telemetry.conftest import CapturedTelemetry, Listening, attributes_of, seconds

ROUND_TRIP_TIME_S = 0.04
MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


def answered_after(captured: CapturedTelemetry) -> float:
    """From the first byte that was sent to the head of the answer: a busy thread stamps the last one late."""
    return seconds(captured.the("HTTP send_request")) + seconds(captured.the("HTTP wait_for_response"))


def of_the_call(captured: CapturedTelemetry) -> dict[str, Any]:
    """The attributes of the call's own span."""
    return attributes_of(captured.the("chat"))


def log_seconds(start_ns: int | None, end_ns: int | None) -> float:
    assert start_ns is not None
    assert end_ns is not None
    return (end_ns - start_ns) / 1e9


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


def read(client: fastlane.OpenAI, *, messages: Any = MESSAGES, **wishes: object) -> None:
    """Read a stream to its end."""
    headers = {f"x-emulator-{name.replace('_', '-')}": str(value) for name, value in wishes.items()}
    options: dict[str, Any] = {"extra_headers": headers, "stream_options": {"include_usage": True}}
    for _chunk in client.chat.completions.create(model="any", messages=messages, stream=True, **options):
        pass


@pytest.fixture
def captured(listening: Listening) -> CapturedTelemetry:
    return listening(level="phases")


def log_of_call(provider: Emulator, captured: CapturedTelemetry, **wishes: Any) -> tuple[RequestLog, ...]:
    """Capture the spans of one streamed call on a connection that was open; the provider's log of it."""
    with fastlane.OpenAI(base_url=provider.base_url, api_key="any") as client:
        read(client)
        provider.clear()
        captured.clear()
        read(client, **wishes)
    return provider.log()


def test_every_span_lies_within_its_parent(provider: Emulator, captured: CapturedTelemetry) -> None:
    log_of_call(provider, captured, fault="status=429;retry_after=0.05;times=1", tag="within", output_tokens=5)

    by_id = {span.context.span_id: span for span in captured.spans if span.context}
    children = [span for span in captured.spans if span.parent is not None]
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


def test_decode_lasts_from_the_first_token_to_the_last(provider: Emulator, captured: CapturedTelemetry) -> None:
    (request,) = log_of_call(provider, captured, token_ms=30, output_tokens=6)

    # The provider's first may be delayed more than its last, but never by all that lies between them.
    assert log_seconds(request.token_ns[0], request.token_ns[-1]) >= 0.1
    found, decode_s = of_the_call(captured), seconds(captured.the("decode"))
    assert decode_s >= 0.05
    assert found["fastlane.decode.duration"] == pytest.approx(decode_s)
    assert found["fastlane.decode.tokens_per_second"] == pytest.approx(5 / decode_s)
    assert found["gen_ai.usage.output_tokens"] == request.output_tokens == 6
    assert found["gen_ai.usage.input_tokens"] == request.prompt_tokens


def test_first_call_takes_the_round_trips_of_its_connection(
    far_provider: Emulator, captured: CapturedTelemetry
) -> None:
    with fastlane.OpenAI(base_url=far_provider.base_url, api_key="any") as client:
        read(client, output_tokens=2)
        cold, setup_s = of_the_call(captured), seconds(captured.the("HTTP connection_setup"))
        captured.clear()
        read(client, output_tokens=2)
    warm = of_the_call(captured)

    # The wire's own TCP handshake is seen in TLS, since a loopback connection is accepted at once.
    assert setup_s >= 2 * ROUND_TRIP_TIME_S
    assert cold["fastlane.wire.duration"] >= 2 * ROUND_TRIP_TIME_S
    assert cold["fastlane.time_to_first_token"] >= 3 * ROUND_TRIP_TIME_S
    assert not captured.named("HTTP connection_setup")
    assert answered_after(captured) >= ROUND_TRIP_TIME_S
    assert warm["fastlane.connection.reused"] is True
    assert "fastlane.wire.tls.duration" not in warm


def test_send_duration_includes_flow_control_waits(far_provider: Emulator, captured: CapturedTelemetry) -> None:
    windows = 4
    long = [{"role": "user", "content": "wet " * (windows * 65_536 // 4)}]
    (request,) = log_of_call(far_provider, captured, messages=long)

    assert request.bytes_in > windows * 65_536
    assert seconds(captured.the("HTTP send_request")) >= windows * ROUND_TRIP_TIME_S
    assert answered_after(captured) >= (windows + 1) * ROUND_TRIP_TIME_S
    assert attributes_of(captured.the("POST"))["http.request.body.size"] == request.bytes_in
