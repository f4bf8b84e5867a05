"""What the tests of metrics share: records made by hand."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from fastlane import CallRecord
from fastlane.records import (
    Attempt,
    HedgingRecord,
    PromptCacheRecord,
    RequestEncodingRecord,
    RoutingRecord,
    Timeline,
    Usage,
    WireStamps,
)
from fastlane.telemetry import ExperimentArm
from fastlane.telemetry.metrics import EndedAction, EndedCall
from tests.with_sections import with_sections

MS = 1_000_000


def wire(**changes: Any) -> WireStamps:
    stamps: dict[str, Any] = {
        "started_ns": 5 * MS,
        "connection_wait_started_ns": 5 * MS,
        "dns_started_ns": 6 * MS,
        "dns_ended_ns": 8 * MS,
        "connect_started_ns": 8 * MS,
        "connect_ended_ns": 12 * MS,
        "tls_started_ns": 12 * MS,
        "tls_ended_ns": 20 * MS,
        "send_started_ns": 20 * MS,
        "send_ended_ns": 21 * MS,
        "headers_received_ns": 90 * MS,
        "ended_ns": 400 * MS,
    }
    return WireStamps(**{**stamps, **changes})


def attempt(number: int = 1, **changes: Any) -> Attempt:
    made: dict[str, Any] = {
        "kind": "first",
        "wire": wire(),
        "status_code": 200,
        "model": "m-1",
        "origin": "https://api.example.com:443",
        "connection_reused": False,
        "request_body_bytes": 1_000,
    }
    return Attempt(number=number, **{**made, **changes})


def timeline(**changes: Any) -> Timeline:
    stamps: dict[str, Any] = {
        "started_wall_ns": 1_700_000_000_000_000_000,
        "started_ns": 0,
        "ended_ns": 500 * MS,
        "answer_ended_ns": 400 * MS,
        "first_event_ns": 90 * MS,
        "first_token_ns": 100 * MS,
        "first_token_kind": "content",
        "first_content_token_ns": 100 * MS,
        "token_ns": array("q", [100 * MS, 150 * MS, 300 * MS]),
    }
    return Timeline(**{**stamps, **changes})


def record(**changes: Any) -> CallRecord:
    """A streamed call that opened its connection and was answered at once."""
    made: dict[str, Any] = {
        "call_id": "call-1",
        "method": "POST",
        "endpoint": "/chat/completions",
        "origin": "https://api.example.com:443",
        "model": "m-1",
        "stream": True,
        "outcome": "completed",
        "timeline": timeline(),
        "attempts": (attempt(),),
        "usage": Usage(
            input_tokens=700, cached_tokens=512, cache_write_tokens=64, output_tokens=41, reasoning_tokens=0
        ),
        "response_model": "m-1-2026",
        "finish_reason": "stop",
        "status_code": 200,
        "events": 5,
    }
    return CallRecord(**with_sections({**made, **changes}))


def ended(call: CallRecord | None = None, **changes: Any) -> EndedCall:
    made: dict[str, Any] = {
        "call": SimpleNamespace(record=lambda: record() if call is None else call),
        "operation": "chat",
        "span": None,
        "experiment": None,
        "counts_generic": True,
    }
    return EndedCall(**{**made, **changes})


def ended_action(
    name: str, duration_s: float = 1.0, error: str | None = None, arm: ExperimentArm | None = None
) -> EndedAction:
    return EndedAction(name, duration_s, error, None, arm)


def everything() -> list[EndedCall | EndedAction]:
    """Calls and actions that together have a value for every metric."""
    arm = ExperimentArm(name="http2", arm="on")
    failed = attempt(1, status_code=429, wire=wire(ended_ns=30 * MS))
    retried = attempt(2, kind="retry", form="json+gzip", wire=wire(started_ns=60 * MS), request_body_bytes=300)
    busy = record(
        attempts=(failed, retried),
        request_encoding=RequestEncodingRecord(form="json+gzip", reason="pays", plain_bytes=1_000, sent_bytes=300),
        prompt_cache=PromptCacheRecord(
            family="f", prompt_tokens=700, reusable_tokens=600, expected_tokens=512, cached_tokens=256
        ),
        routing=RoutingRecord(
            asked="fastlane/auto", task=None, min_quality=40.0, min_pass_rate=None, quantile=0.9, reason="fastest",
            candidates=(), chosen="quick", model="quick", provider="openai", predicted_s=0.4,
            predicted_first_token_s=0.1, actual_s=0.5,
        ),
        hedging=HedgingRecord(
            delay_s=0.1, hedged=True, won=True, why_not=None, extra_input_tokens=700
        ),
    )  # fmt: skip
    broken = record(outcome="failed", error="APITimeoutError")
    return [ended(), ended(busy, experiment=arm), ended(broken), ended_action("answer ticket", 1.5, arm=arm)]
