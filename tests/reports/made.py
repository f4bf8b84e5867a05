"""Records of calls as a test says, times in milliseconds since the call was issued."""

from __future__ import annotations

from array import array
from typing import Any

import fastlane
from fastlane import CallRecord
from fastlane.records import Attempt, RoutingRecord, Timeline, WireStamps
from fastlane.reports import Report
from tests.with_sections import with_sections

MS = 1_000_000
ORIGIN = "https://api.example.com:443"


def attempt(
    *, kind: Any = "first", at: float = 1, opened: bool = False, head: float | None = 20, **more: Any
) -> Attempt:
    """One that waited 1 ms, opened a connection in 1 + 2 + 4 ms if it had to, and sent in 2 ms."""
    dns = at + 1
    sent_from = dns + 7 if opened else dns
    opening: dict[str, Any] = {}
    if opened:
        moments = {
            "dns_started_ns": dns,
            "dns_ended_ns": dns + 1,
            "connect_started_ns": dns + 1,
            "connect_ended_ns": dns + 3,
            "tls_started_ns": dns + 3,
            "tls_ended_ns": dns + 7,
        }
        opening = {name: int(moment * MS) for name, moment in moments.items()}
    wire = WireStamps(
        started_ns=int(at * MS),
        send_started_ns=int(sent_from * MS),
        send_ended_ns=int((sent_from + 2) * MS),
        headers_received_ns=None if head is None else int(head * MS),
        **opening,
    )
    given: dict[str, Any] = {
        "number": 1,
        "kind": kind,
        "wire": wire,
        "origin": ORIGIN,
        "connection_reused": not opened,
        "request_body_bytes": 1_000,
        "response_body_bytes": 300,
        **more,
    }
    return Attempt(**given)


def record(
    *, tokens: tuple[float, ...] = (25, 35, 45), ended: float = 50, issued_s: float = 0, **more: Any
) -> CallRecord:
    """A stream with output at these milliseconds, its last byte 2 ms before its end; without any: no stream."""
    shift = int(issued_s * 1e9)
    stamps = array("q", [shift + int(moment * MS) for moment in tokens])
    timeline = Timeline(
        started_wall_ns=1_700_000_000_000 * MS + shift,
        started_ns=shift,
        ended_ns=shift + int(ended * MS),
        answer_ended_ns=shift + int((ended - 2) * MS),
        first_token_ns=stamps[0] if tokens else None,
        first_token_kind="content" if tokens else None,
        first_content_token_ns=stamps[0] if tokens else None,
        token_ns=stamps,
    )
    given: dict[str, Any] = {
        "call_id": "a-1",
        "method": "POST",
        "endpoint": "/chat/completions",
        "origin": ORIGIN,
        "model": "m",
        "stream": bool(tokens),
        "outcome": "completed",
        "timeline": timeline,
        "attempts": (attempt(),),
        "transport": "fastlane",
        **more,
    }
    return CallRecord(**with_sections(given))


def failed(**more: Any) -> CallRecord:
    """A call that came to nothing after 5 ms."""
    given: dict[str, Any] = {
        "outcome": "failed", "error": "InternalServerError", "status_code": 500, "tokens": (), "ended": 5, **more
    }  # fmt: skip
    return record(**given)


def routed(**more: Any) -> RoutingRecord:
    given: dict[str, Any] = {
        "asked": "fastlane/auto", "task": None, "min_quality": None, "min_pass_rate": None, "quantile": 0.5,
        "reason": "fastest", "candidates": (), "chosen": "near", "model": "near", "provider": "p", "predicted_s": 1.0,
        "predicted_first_token_s": 0.2, "actual_s": 0.9,
    }  # fmt: skip
    return RoutingRecord(**{**given, **more})


class RecordedClient(fastlane.OpenAI):
    """A client that has made the calls of these records."""

    records: tuple[CallRecord, ...] = ()

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        return self.records


CLIENT = RecordedClient(api_key="sk-test")


def report(*records: CallRecord, **filters: Any) -> Report:
    """The report of a client that has made these calls."""
    CLIENT.records = records
    return CLIENT.report(**filters)
