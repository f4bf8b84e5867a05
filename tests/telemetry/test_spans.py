"""The spans of a call say what its record says, at every level, with every number on the call's own."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import httpx2
import openai
import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

import fastlane
from fastlane import BoundedOutput, Connection, Hedging, RequestEncoding
from fastlane.emulator import Emulator
from fastlane.telemetry import experiment
from tests.attempts.scripted import (
    KINDS,
    Asked,
    Upstream,
    answer,
    break_off_after,
    refuse,
    routing,
    say_nothing,
    used_to,
)
from tests.telemetry.conftest import Listening, attributes_of, seconds
from tests.transport.connect_proxy import ConnectProxy

MESSAGES: list[Any] = [{"role": "user", "content": "Name a river."}]
LEVELS = ("call", "attempts", "phases")


def stream_one(client: Any, **more: Any) -> None:
    for _ in client.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **more
    ):
        pass


# The tree


def test_warm_streamed_call_has_six_spans_in_its_workflow(arguments: dict[str, Any], listening: Listening) -> None:
    with fastlane.OpenAI(**arguments) as client:
        stream_one(client)
        captured = listening(level="phases")
        with fastlane.user_action("answer ticket"):
            stream_one(client)
    workflow, call = captured.the("invoke_workflow"), captured.the("chat")
    assert workflow.name == "invoke_workflow answer ticket"
    assert workflow.parent is None
    assert captured.below(workflow) == ["chat m"]
    assert call.kind is SpanKind.CLIENT
    request = captured.the("POST")
    assert captured.children(call)[-1] is request
    assert request.kind is SpanKind.CLIENT
    assert [name for name in captured.below(request) if not name.startswith("HTTP wait_for_connection")] == [
        "HTTP send_request",
        "HTTP wait_for_response",
        "first_token",
        "decode",
    ]


def test_cold_call_shows_how_its_connection_was_opened(provider: Emulator, listening: Listening) -> None:
    captured = listening(level="phases")
    settings = {"api_key": "sk-test", "base_url": provider.base_url, "only_plays": [Connection(max_connections=7)]}
    with fastlane.OpenAI(**settings) as client:  # type: ignore[arg-type]
        stream_one(client)
        record = client.last_call
    assert record is not None
    host = provider.base_url.split("/")[2]
    setup = captured.the("HTTP connection_setup")
    assert setup.name.endswith(host)
    assert [name.rpartition(" ")[0] for name in captured.below(setup)] == ["socket connect", "TLS client handshake"]
    wire = record.attempts[0].wire
    assert seconds(captured.the("TLS client handshake")) == pytest.approx(wire.tls_s, abs=1e-6)
    assert seconds(captured.the("socket connect")) == pytest.approx(wire.connect_s, abs=1e-6)
    assert attributes_of(captured.the("POST"))["fastlane.connection.reused"] is False
    assert attributes_of(captured.the("chat"))["fastlane.wire.tls.duration"] == pytest.approx(wire.tls_s)


def test_proxy_has_a_span_and_a_phase_of_its_own(provider: Emulator, listening: Listening) -> None:
    captured = listening(level="phases")
    with ConnectProxy() as proxy:
        with fastlane.OpenAI(api_key="sk-test", base_url=provider.base_url, proxy=proxy.url) as client:
            stream_one(client)
            record = client.last_call
        assert record is not None
        below = captured.below(captured.the("HTTP connection_setup"))
        assert below[0] == f"proxy connect {proxy.address}"
        assert [name.rpartition(" ")[0] for name in below[1:]] == ["TLS client handshake"]
    proxy_s = record.attempts[0].wire.proxy_s
    assert seconds(captured.the("proxy connect")) == pytest.approx(proxy_s, abs=1e-6)
    assert attributes_of(captured.the("chat"))["fastlane.wire.proxy.duration"] == pytest.approx(proxy_s)


@pytest.mark.parametrize("level", LEVELS)
def test_every_number_is_on_the_span_of_the_call_at_every_level(
    level: str, arguments: dict[str, Any], listening: Listening
) -> None:
    captured = listening(level=level)
    with fastlane.OpenAI(**arguments) as client:
        stream_one(client, temperature=0, max_tokens=50, seed=7, user="a-user")
        record = client.last_call
    assert record is not None
    call = captured.the("chat")
    assert (len(captured.named("POST")) > 0) == (level != "call")
    assert (len(captured.named("first_token")) > 0) == (level == "phases")
    found = attributes_of(call)
    timeline = record.timeline
    assert call.start_time == timeline.started_wall_ns
    assert seconds(call) == pytest.approx(record.duration_s, abs=1e-6)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.seed": 7,
        "gen_ai.response.model": record.response_model,
        "gen_ai.response.id": record.response_id,
        "fastlane.request.id": record.request_id,
        "gen_ai.response.finish_reasons": (record.finish_reason,),
        "gen_ai.usage.input_tokens": record.usage.input_tokens,
        "gen_ai.usage.output_tokens": record.usage.output_tokens,
        "openai.api.type": "chat_completions",
        "server.address": "127.0.0.1",
        "fastlane.stream.end": "completed",
        "fastlane.stream.chunks": record.events,
        "fastlane.attempt.count": 1,
    }
    wire = record.attempts[0].wire
    assert timeline.first_token_ns is not None
    assert wire.send_ended_ns is not None
    for request in captured.named("POST"):
        assert str(attributes_of(request)["url.full"]).endswith("/v1/chat/completions")
    assert {name: found.get(name) for name in expected} == expected
    durations = {
        "fastlane.time_to_first_token": record.time_to_first_token_s,
        "fastlane.time_to_first_content_token": record.time_to_first_content_token_s,
        "fastlane.api_end_to_end.duration": record.api_end_to_end_s,
        "fastlane.wire.send.duration": wire.send_s,
        "fastlane.prepare.duration": (wire.started_ns - timeline.started_ns) / 1e9,
        "fastlane.server.wait.duration": max(0.0, (timeline.first_token_ns - wire.send_ended_ns) / 1e9),
    }
    for name, value in durations.items():
        assert found[name] == pytest.approx(value), name


def test_unstreamed_call_has_no_time_to_first_token(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(level="phases")
    with fastlane.OpenAI(**arguments) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)
    assert captured.named("first_token") == captured.named("decode") == []
    found = attributes_of(captured.the("chat"))
    assert not [name for name in found if "first_token" in name or "decode" in name or "chunk" in name]
    assert found["gen_ai.usage.output_tokens"] > 0


def test_requests_without_a_model_have_no_span(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(level="phases")
    with fastlane.OpenAI(**arguments) as client:
        client.models.list()
        client.embeddings.create(model="e", input="x")
        client.completions.create(model="c", prompt="x")
        client.responses.create(model="r", input="x")
    assert [span.name for span in captured.spans if span.parent is None] == [
        "embeddings e",
        "text_completion c",
        "chat r",
    ]
    assert attributes_of(captured.the("chat"))["openai.api.type"] == "responses"


def test_application_spans_and_calls_nest_in_user_actions(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(level="call")
    tracer = captured.tracer_provider.get_tracer("app")
    with (
        fastlane.OpenAI(**arguments) as client,
        fastlane.user_action("outer"),
        tracer.start_as_current_span("plan"),
        fastlane.user_action("inner"),
    ):
        stream_one(client)
        with tracer.start_as_current_span("render"):
            pass
    outer, inner = captured.the("invoke_workflow outer"), captured.the("invoke_workflow inner")
    assert captured.below(outer) == ["plan"]
    assert captured.below(captured.the("plan")) == ["invoke_workflow inner"]
    assert captured.below(inner) == ["chat m", "render"]
    assert attributes_of(outer)["fastlane.interaction.calls"] == attributes_of(inner)["fastlane.interaction.calls"] == 1
    assert attributes_of(outer)["fastlane.application.duration"] == pytest.approx(seconds(outer), abs=1e-6)


def test_failed_action_has_error_class_and_cancelled_has_none(listening: Listening) -> None:
    captured = listening()
    with pytest.raises(ValueError, match="secret"), fastlane.user_action("bad"):
        raise ValueError("secret text")

    async def cancelled() -> None:
        async with fastlane.user_action("left"):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    bad, left = captured.the("invoke_workflow bad"), captured.the("invoke_workflow left")
    assert (bad.status.status_code, bad.status.description) == (StatusCode.ERROR, "ValueError")
    assert attributes_of(bad)["error.type"] == "ValueError"
    assert left.status.status_code is StatusCode.UNSET
    assert not bad.events
    assert "error.type" not in attributes_of(left)


# Attempts


@pytest.mark.parametrize("kind", KINDS)
def test_retry_is_a_second_request_that_links_to_the_first(
    kind: str, upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, _ = upstreams
    captured = listening(level="phases")
    with Asked(kind, near.url, max_retries=1) as asked:
        near.scripts = [refuse(429, ("retry-after-ms", "300"), code="slow_down"), answer("ok")]
        assert asked.text("m", stream=True) == "ok"
    first, second = captured.named("POST")
    assert captured.children(captured.the("chat"))[-2:] == [first, second]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "429")
    assert attributes_of(first)["error.type"] == "429"
    assert attributes_of(first)["http.response.status_code"] == 429
    assert attributes_of(first)["fastlane.attempt.outcome"] == "failed"
    assert second.status.status_code is StatusCode.UNSET
    assert attributes_of(second)["http.request.resend_count"] == 1
    assert attributes_of(second)["fastlane.attempt.kind"] == "retry"
    (link,) = second.links
    assert first.context is not None
    assert link.context.span_id == first.context.span_id
    assert dict(link.attributes or {}) == {"fastlane.link.reason": "retry"}
    call = captured.the("chat")
    assert call.status.status_code is StatusCode.UNSET
    assert attributes_of(call)["fastlane.attempt.count"] == 2
    # From the end of the first answer, which may come a little after the pause has begun.
    assert attributes_of(call)["fastlane.retry.wait.duration"] >= 0.2
    assert captured.below(first)[-2:] == ["HTTP send_request", "HTTP wait_for_response"]


@pytest.mark.parametrize("kind", KINDS)
def test_hedge_span_is_parallel_and_the_loser_is_no_error(
    kind: str, upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, _ = upstreams
    with Asked(kind, near.url, Hedging(budget=1.0, minimum_delay_s=0.05)) as asked:
        used_to(asked, near, model="m")
        captured = listening(level="attempts")
        near.scripts = [say_nothing, answer("second")]
        assert asked.text("m", stream=True) == "second"
    first, second = captured.named("POST")
    assert attributes_of(first)["fastlane.attempt.outcome"] == "cancelled"
    assert first.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes_of(first)
    assert attributes_of(second)["fastlane.attempt.kind"] == "hedge"
    assert "http.request.resend_count" not in attributes_of(second)
    assert [dict(link.attributes or {}) for link in second.links] == [{"fastlane.link.reason": "hedge"}]
    found = attributes_of(captured.the("chat"))
    assert (found["fastlane.hedge.sent"], found["fastlane.hedge.won"]) == (True, True)
    assert "hedge" in found["fastlane.optimizations"]


@pytest.mark.parametrize("level", ["call", "attempts"])
@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_call_that_falls_back_has_one_span_of_the_last_model(
    kind: str, level: str, propagate: bool, upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, far = upstreams
    captured = listening(level=level, propagate=propagate)
    near.scripts = [refuse(503)]
    with Asked(kind, near.url, routing(near, far)) as asked:
        asked.text(stream=True)
    call = captured.the("chat far-1")
    assert call.status.status_code is StatusCode.UNSET
    assert attributes_of(call)["gen_ai.request.model"] == attributes_of(call)["gen_ai.response.model"] == "far-1"
    assert attributes_of(call)["server.port"] == int(far.url.rpartition(":")[2].partition("/")[0])
    assert attributes_of(call)["fastlane.route.reason"] == "fastest"
    assert attributes_of(call)["fastlane.route.fallbacks"] == ("near: server",)
    if level == "attempts":
        first, second = captured.children(call)
        assert (attributes_of(first)["error.type"], attributes_of(first)["fastlane.attempt.model"]) == ("503", "near-1")
        assert [dict(link.attributes or {}) for link in second.links] == [{"fastlane.link.reason": "fallback"}]
    assert len({span.context.trace_id for span in captured.spans if span.context}) == 1


# Ends


def test_failed_call_span_has_class_and_status_but_no_message(
    upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, _ = upstreams
    captured = listening(level="phases")
    near.scripts = [refuse(400, code="the-secret-code", param="the-secret")]
    with Asked("sync", near.url) as asked, pytest.raises(openai.BadRequestError):
        asked.text("m")
    call = captured.the("chat")
    assert (call.status.status_code, call.status.description) == (StatusCode.ERROR, "BadRequestError (400)")
    assert attributes_of(call)["error.type"] == "BadRequestError"
    assert not any(span.events for span in captured.spans)
    assert "secret" not in str([span.to_json() for span in captured.spans])


def test_broken_stream_span_is_an_error_and_closed_is_not(
    upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, _ = upstreams
    captured = listening(level="phases")
    near.may_break.set()
    near.scripts = [break_off_after("Some ")]
    with Asked("sync", near.url) as asked:
        # (Older versions of openai let the HTTP library's own errors through.)
        with pytest.raises((openai.APIConnectionError, httpx.TransportError, httpx2.TransportError)):
            asked.text("m", stream=True)
        stream = asked.client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        next(stream)
        stream.close()
    broken, closed = captured.named("chat")
    assert broken.status.status_code is StatusCode.ERROR
    assert attributes_of(broken)["fastlane.stream.end"] == "error"
    assert attributes_of(broken)["gen_ai.response.finish_reasons"] == ("error",)
    assert closed.status.status_code is StatusCode.UNSET
    assert attributes_of(closed)["fastlane.stream.end"] == "client_stop"
    assert "error.type" not in attributes_of(closed)


def test_call_without_attempt_has_a_span(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(level="phases")
    odd: Any = [{"role": "user", "content": object()}]
    with fastlane.OpenAI(**arguments) as client, pytest.raises(TypeError):
        client.chat.completions.create(model="m", messages=odd)
    call = captured.the("chat")
    assert attributes_of(call)["error.type"] == "TypeError"
    assert captured.below(call) == []


class Ticket(BaseModel):
    title: str


def test_check_of_a_structured_answer_is_a_span(upstreams: tuple[Upstream, Upstream], listening: Listening) -> None:
    near, _ = upstreams
    captured = listening(level="phases")
    near.scripts = [answer('{"title":"Leak"}')]
    with Asked("sync", near.url, BoundedOutput()) as asked:
        asked.client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Ticket)
    assert attributes_of(captured.the("validate"))["fastlane.output.verdict"] == "valid"
    found = attributes_of(captured.the("chat"))
    assert (found["fastlane.output.valid"], found["fastlane.output.repair_count"]) == (True, 0)
    assert found["gen_ai.output.type"] == "json"
    assert found["fastlane.validate.duration"] == pytest.approx(seconds(captured.the("validate")), abs=1e-6)


def test_encoded_body_span_has_both_sizes(provider: Emulator, listening: Listening) -> None:
    captured = listening(level="attempts")
    plays = [Connection(), RequestEncoding(forms=("msgpack+gzip",))]
    messages: list[Any] = [{"role": "user", "content": "river " * 5_000}]
    with fastlane.OpenAI(api_key="k", base_url=provider.base_url, only_plays=plays) as client:
        client.chat.completions.create(model="m", messages=messages)
    found = attributes_of(captured.named("POST")[-1])
    assert found["fastlane.http.request.encoding"] == "msgpack+gzip"
    assert found["http.request.body.size"] < found["fastlane.http.request.body.uncompressed_size"]
    assert {"msgpack", "gzip"} <= set(attributes_of(captured.the("chat"))["fastlane.optimizations"])


# Sampling, settings


@pytest.mark.parametrize(("sampler", "level"), [(ALWAYS_OFF, "phases"), (ALWAYS_ON, "off")], ids=["unsampled", "off"])
def test_unsampled_call_is_measured_and_disabled_is_not(
    arguments: dict[str, Any], listening: Listening, sampler: Sampler, level: str
) -> None:
    captured = listening(sampler, level=level)
    with fastlane.OpenAI(**arguments) as client, fastlane.user_action("quiet"):
        stream_one(client)
        assert client.last_call is not None
    assert captured.spans == []
    assert bool(captured.points()) == (level != "off")


def test_experiment_calls_have_their_arm_as_attribute(arguments: dict[str, Any], listening: Listening) -> None:
    captured = listening(level="attempts")
    with fastlane.OpenAI(**arguments) as client:
        for arm in ("baseline", "http2"):
            with experiment("transport", arm, unit="customer 7"), fastlane.user_action("ask"):
                stream_one(client)
    units = set()
    for span in [*captured.named("chat"), *captured.named("invoke_workflow")]:
        found = attributes_of(span)
        assert found["feature_flag.key"] == found["fastlane.experiment.name"] == "transport"
        assert found["feature_flag.result.variant"] == found["fastlane.experiment.arm"]
        units.add(found["fastlane.experiment.unit_id_hash"])
    assert len(units) == 1
    assert "customer" not in str(units)
    assert [attributes_of(span)["fastlane.experiment.arm"] for span in captured.named("chat")] == ["baseline", "http2"]


@pytest.mark.parametrize("asked_for", [False, True])
def test_trace_context_is_sent_only_if_enabled(
    asked_for: bool, upstreams: tuple[Upstream, Upstream], listening: Listening
) -> None:
    near, _ = upstreams
    seen: list[tuple[str | None, str | None]] = []

    def note(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
        seen.append((stream.header("traceparent"), stream.header("baggage")))
        answer("ok")(upstream, stream, body)

    near.usually = note
    captured = listening(level="call", propagate=asked_for)
    with Asked("sync", near.url) as asked:
        asked.text("m")
        asked.text("m", stream=True)
    contexts = [span.context for span in captured.named("chat")]
    sent = [f"00-{one.trace_id:032x}-{one.span_id:016x}-{int(one.trace_flags):02x}" for one in contexts if one]
    assert seen == [(header if asked_for else None, None) for header in sent]
