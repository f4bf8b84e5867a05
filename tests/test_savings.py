"""What a call's record says of what was saved on it, each figure with how it is known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import fastlane
from fastlane.emulator import Emulator
from fastlane.records import (
    BoundedOutputRecord,
    ContextTrimmingRecord,
    Cut,
    HedgingRecord,
    PromptCacheRecord,
    RejectedAnswer,
    RequestEncodingRecord,
    Usage,
)
from tests.reports.made import attempt, record, routed

MESSAGES: Any = [{"role": "user", "content": "Is water wet?"}]


def encoded(**more: Any) -> RequestEncodingRecord:
    given: dict[str, Any] = {"form": "json+gzip", "reason": "smaller", "plain_bytes": 9_000, "sent_bytes": 2_000}
    return RequestEncodingRecord(**{**given, "cpu_s": 0.001, **more})


def hedged(**more: Any) -> HedgingRecord:
    return HedgingRecord(**{"delay_s": 0.2, "hedged": True, "won": True, "why_not": None, **more})


CACHE = PromptCacheRecord(
    family="f", prompt_tokens=2_000, reusable_tokens=1_900, expected_tokens=1_792, cached_tokens=1_536
)
COUNTED = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5)
GUESSED = dataclasses.replace(COUNTED, estimated=True)
CUT = Cut(kind="turn", path="messages[1]", tokens=5_000)
TWO_ATTEMPTS = (
    attempt(opened=True, request_body_bytes=1_000, response_body_bytes=None),
    attempt(kind="retry", number=2, at=8, request_body_bytes=1_000, response_body_bytes=70),
)


SAVINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"attempts": TWO_ATTEMPTS},
        {"request_bytes": (2_000, "measured"), "response_bytes": 70, "connection_reused": True},
    ),
    (
        {"request_encoding": encoded()},
        {"encoding_bytes": (7_000, "measured"), "encoding_cpu_s": 0.001},
    ),
    ({"request_encoding": encoded(plain_bytes=100, sent_bytes=120)}, {"encoding_bytes": -20}),
    ({"request_encoding": encoded(form="json")}, {"encoding_bytes": None, "encoding_cpu_s": 0.001}),
    (
        {"prompt_cache": CACHE, "usage": Usage(input_tokens=2_000, cached_tokens=1_536)},
        {"cache_expected_tokens": (1_792, "estimated"), "cache_read_tokens": (1_536, "reported")},
    ),
    # A provider that says nothing of its cache has not read nothing.
    ({"usage": Usage(input_tokens=2_000)}, {"cache_read_tokens": None}),
    ({"usage": Usage(input_tokens=2_000, cached_tokens=0)}, {"cache_read_tokens": 0}),
    (
        {"hedging": hedged(won=True, extra_input_tokens=40, extra_price=0.5)},
        {"hedge": "won", "hedge_tokens": (40, "estimated"), "hedge_price": 0.5},
    ),
    ({"hedging": hedged(won=False)}, {"hedge": "lost"}),
    ({"hedging": hedged(won=None)}, {"hedge": None}),
    ({"hedging": hedged(hedged=False, won=None)}, {"hedge": None}),
    # Money is known only where the catalog has prices.
    ({"routing": routed()}, {"price": None, "fallbacks": 0}),
    ({"routing": routed(price=0.25)}, {"price": 0.25}),
    ({}, {"price": None, "fallbacks": None}),
    (
        {"output": BoundedOutputRecord(rejected=(COUNTED, COUNTED))},
        {"rejected_answers": 2, "rejected_tokens": (30, "reported")},
    ),
    ({"output": BoundedOutputRecord(rejected=(COUNTED, GUESSED))}, {"rejected_tokens": (30, "estimated")}),
    (
        {"output": BoundedOutputRecord(tokens_not_generated=70, ceiling_tokens=90), "service_tier": "flex"},
        {"tokens_not_generated": 70, "tier": "flex"},
    ),
    (
        {"context_trimming": ContextTrimmingRecord(tokens_before=9_000, tokens_after=4_000, cuts=(CUT,))},
        {"trimmed_tokens": 5_000},
    ),
    ({"context_trimming": ContextTrimmingRecord(tokens_before=9, tokens_after=9)}, {"trimmed_tokens": None}),
]


def test_savings_of_a_record_are_what_its_sections_say() -> None:
    for case, savings in SAVINGS:
        found = record(**case).savings
        for name, expected in savings.items():
            value, basis = expected if isinstance(expected, tuple) else (expected, None)
            assert (found[name].value if name in found else None) == value, (name, case)
            assert basis is None or found[name].basis == basis, (name, case)


def test_record_without_attempts_has_no_savings() -> None:
    assert record(attempts=()).savings == {}


def test_savings_are_part_of_the_records_json() -> None:
    data = json.loads(json.dumps(record(request_encoding=encoded(), hedging=hedged()).to_dict()))["savings"]
    assert data["encoding_bytes"] == {"value": 7_000, "unit": "By", "basis": "measured"}
    assert data["hedge"] == {"value": "won", "unit": "", "basis": "measured"}


def test_savings_match_what_the_provider_received(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        for _ in range(2):
            client.chat.completions.create(model="m", messages=MESSAGES)
        first, second = (call.savings for call in client.calls)

    # A client of another test that still runs has the same connections.
    reused = [first["connection_reused"].value, second["connection_reused"].value]
    assert reused == [request.connection_request_number > 1 for request in provider.log()]
    assert second["connection_reused"].value
    sent = [first["request_bytes"].value, second["request_bytes"].value]
    assert sent == [request.bytes_in for request in provider.log()]
    assert int(first["response_bytes"].value) > 100
    assert not {"hedge", "price", "encoding_bytes"} & second.keys()
