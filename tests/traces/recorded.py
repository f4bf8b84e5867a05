"""Files of spans as fastlane's telemetry makes them, written by OpenTelemetry's own SDK and exporter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context

START_NS = 1_790_000_000_000_000_000
MODEL = "gpt-oss-120b"


class Recorder:
    """Makes spans at given moments: milliseconds after START_NS."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("fastlane", "0.1.0")

    def span(
        self,
        name: str,
        start_ms: float,
        end_ms: float,
        *,
        parent: Span | None = None,
        client: bool = False,
        error: str | None = None,
        link: tuple[Span, str] | None = None,
        **attributes: Any,
    ) -> Span:
        """A span that has ended; `__` in the names of attributes stands for a dot."""
        span = self._tracer.start_span(
            name,
            context=set_span_in_context(parent) if parent is not None else None,
            kind=SpanKind.CLIENT if client else SpanKind.INTERNAL,
            start_time=START_NS + int(start_ms * 1e6),
            attributes={key.replace("__", "."): value for key, value in attributes.items()},
            links=[Link(link[0].get_span_context(), {"fastlane.link.reason": link[1]})] if link else [],
        )
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(START_NS + int(end_ms * 1e6))
        return span

    def attempt(
        self,
        chat: Span,
        at: float,
        *,
        number: int = 1,
        kind: str = "first",
        cold: bool = False,
        wait: float = 90.0,
        first: float = 8.0,
        decode: float | None = 200.0,
        status: int = 200,
        outcome: str = "completed",
        after: Span | None = None,
    ) -> tuple[Span, float]:
        """One HTTP request with its phases, and the moment of its end."""
        error = str(status) if status >= 400 else None
        connecting = 62.0 if cold else 0.0
        sent = at + connecting + 1.3
        end = sent + wait + (0.0 if error else first + (decode or 0.0))
        post = self.span(
            "POST",
            at,
            end,
            parent=chat,
            client=True,
            error=error,
            link=(after, kind) if after is not None else None,
            http__request__method="POST",
            url__full="https://api.example.com/v1/chat/completions",
            server__address="api.example.com",
            http__response__status_code=status,
            network__protocol__version="2",
            network__peer__address="192.0.2.7",
            fastlane__attempt__number=number,
            fastlane__attempt__kind=kind,
            fastlane__attempt__outcome="failed" if error else outcome,
            fastlane__connection__reused=not cold,
            fastlane__connection__id="192.0.2.40:51812",
            http__request__body__size=48_213,
        )
        if cold:
            setup = self.span("HTTP connection_setup api.example.com:443", at, at + 62, parent=post)
            self.span("DNS lookup api.example.com", at, at + 9, parent=setup, dns__question__name="api.example.com")
            self.span("socket connect 192.0.2.7:443", at + 9, at + 31, parent=setup)
            self.span(
                "TLS client handshake api.example.com", at + 31, at + 62, parent=setup, tls__protocol__version="1.3"
            )
        self.span("HTTP send_request", at + connecting + 0.3, sent, parent=post)
        self.span("HTTP wait_for_response", sent, sent + wait, parent=post)
        if error is None:
            self.span("first_token", sent + wait, sent + wait + first, parent=post)
            if decode is not None and outcome == "completed":
                self.span("decode", sent + wait + first, end, parent=post)
        return post, end

    def chat(
        self,
        start: float,
        end: float,
        *,
        parent: Span | None = None,
        model: str = MODEL,
        ttft: float | None = 110.0,
        decode: float | None = 200.0,
        phases: dict[str, float] | None = None,
        server: float | None = None,
        error: str | None = None,
        **attributes: Any,
    ) -> Span:
        """The span of a call; durations in milliseconds."""
        span_fields: dict[str, Any] = {
            "gen_ai__operation__name": "chat",
            "gen_ai__provider__name": "openai",
            "gen_ai__request__model": model,
            "gen_ai__request__stream": True,
            "server__address": "api.example.com",
            "fastlane__attempt__count": 1,
        }
        if error is None:
            span_fields |= {
                "gen_ai__response__model": model,
                "gen_ai__usage__input_tokens": 10_500,
                "gen_ai__usage__cache_read__input_tokens": 9_600,
                "gen_ai__usage__output_tokens": 84,
                "gen_ai__response__finish_reasons": ["stop"],
                "fastlane__stream__end": "completed",
            }
        if ttft is not None and error is None:
            span_fields |= {"fastlane__time_to_first_token": ttft / 1e3, "fastlane__first_token__kind": "content"}
        if decode is not None and error is None:
            span_fields |= {
                "fastlane__decode__duration": decode / 1e3,
                "fastlane__decode__tokens_per_second": 83 / decode * 1e3,
            }
        for name, length in (phases or {}).items():
            span_fields[f"fastlane__wire__{name}__duration"] = length / 1e3
        if server is not None:
            span_fields["fastlane__server__wait__duration"] = server / 1e3
        return self.span(
            f"chat {model}", start, end, parent=parent, client=True, error=error, **(span_fields | attributes)
        )


@contextmanager
def recording(path: Path) -> Iterator[Recorder]:
    """Spans made inside are in the file afterwards."""
    provider = TracerProvider(
        resource=Resource({"service.name": "airline", "service.version": "3.1"}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(FileSpanExporter(path), max_queue_size=200_000))
    try:
        yield Recorder(provider)
    finally:
        provider.shutdown()


def everyday(path: Path) -> Path:
    """One user action with a routed call and a retried one, a hedge, a fallback, a failure and a cold call."""
    with recording(path) as made:
        action = made.span(
            "invoke_workflow answer ticket", 0, 1_060, gen_ai__operation__name="invoke_workflow",
            fastlane__interaction__name="answer ticket", fastlane__application__duration=1.06,
        )  # fmt: skip
        made.span("load the booking", 1, 38, parent=action)
        chat = made.chat(
            40, 404, parent=action, ttft=163, phases={"dns": 9, "connect": 22, "tls": 31, "send": 1}, server=98,
            fastlane__route__reason="fastest", fastlane__route__requested_model="fastlane/auto",
            fastlane__route__candidate_count=5, fastlane__cache__expected_read_tokens=9_856,
            fastlane__optimizations=["http2", "prompt_cache"],
        )  # fmt: skip
        made.span("prepare", 40, 42, parent=chat)
        made.attempt(chat, 42, cold=True)
        again = made.chat(
            420, 1_010, parent=action, ttft=412, fastlane__attempt__count=2, phases={"send": 1}, server=98
        )
        refused, ended = made.attempt(again, 421, wait=40, status=429)
        made.attempt(again, ended + 240, number=2, kind="retry", after=refused, wait=120)
        made.span("validate", 1_000, 1_008, parent=again, fastlane__output__verdict="valid")
        made.span("render", 1_012, 1_058, parent=action)

        hedged = made.chat(1_500, 2_060, ttft=330, fastlane__attempt__count=2, fastlane__hedge__sent=True)
        late, _ = made.attempt(hedged, 1_501, wait=540, decode=None, first=0, outcome="cancelled")
        made.attempt(hedged, 1_720, number=2, kind="hedge", after=late, wait=95)

        routed = made.chat(
            2_500, 2_880, ttft=161, model="small-model", fastlane__attempt__count=2, fastlane__route__reason="fastest"
        )
        left, _ = made.attempt(routed, 2_501, wait=55, status=503)
        made.attempt(routed, 2_562, number=2, kind="fallback", after=left)

        failed = made.chat(3_000, 3_031, error="AuthenticationError")
        made.attempt(failed, 3_001, wait=28, status=401)

        made.chat(
            3_500, 3_880, ttft=171, decode=201, phases={"queue": 4, "dns": 9, "connect": 22, "tls": 31, "send": 2},
            server=96, fastlane__prepare__duration=0.006, fastlane__validate__duration=0.004,
            fastlane__connection__reused=False,
        )  # fmt: skip
        made.chat(4_000, 4_212, ttft=None, decode=None, phases={"send": 2}, fastlane__api_end_to_end__duration=0.21)
    return path
