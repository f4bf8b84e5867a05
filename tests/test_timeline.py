from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane import CallRecord
from fastlane.records import Timeline, Usage, WireStamps

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def timeline(**stamps: Any) -> CallRecord:
    tokens = array("q", stamps.pop("token_ns", ()))
    first = tokens[0] if tokens else None
    given_stamps = {"started_wall_ns": 0, "started_ns": 0, "ended_ns": 10 * SECOND, "first_token_ns": first, **stamps}
    made = Timeline(token_ns=tokens, **given_stamps)
    names: dict[str, Any] = dict.fromkeys(("call_id", "method", "endpoint", "origin", "model"), "-")
    return CallRecord(**names, stream=bool(tokens), outcome="completed", timeline=made)


def counted(call: CallRecord, output_tokens: int | None) -> CallRecord:
    return replace(call, usage=Usage(output_tokens=output_tokens))


@st.composite
def streamed(draw: st.DrawFn) -> CallRecord:
    """A stream whose stamps are in the order in which things happen."""
    started = draw(st.integers(0, 10**15))
    gaps = draw(st.lists(st.integers(0, 10**10), min_size=1, max_size=200))
    tokens = []
    now = started
    for gap in gaps:
        now += gap
        tokens.append(now)
    kind = draw(st.sampled_from(["content", "reasoning", "tool_call", "refusal", "audio"]))
    content = draw(st.none() | st.sampled_from(tokens))
    return timeline(
        started_ns=started,
        first_event_ns=tokens[0],
        first_token_kind=kind,
        first_content_token_ns=tokens[0] if kind == "content" else content,
        token_ns=tokens,
        answer_ended_ns=now + draw(st.integers(0, 10**9)),
        ended_ns=now + draw(st.integers(0, 10**10)),
    )


def test_every_metric_of_a_stream_by_hand() -> None:
    stamps = [3 * SECOND, 3 * SECOND + 500 * MILLISECOND, 4 * SECOND, 5 * SECOND]
    stream = timeline(
        started_ns=1 * SECOND,
        first_event_ns=2 * SECOND,
        first_token_kind="reasoning",
        first_content_token_ns=4 * SECOND,
        token_ns=stamps,
        answer_ended_ns=6 * SECOND,
        ended_ns=7 * SECOND,
    )

    assert stream.time_to_first_token_s == 2.0
    assert stream.time_to_first_content_token_s == 3.0
    assert stream.inter_token_latencies_s == (0.5, 0.5, 1.0)
    assert stream.timeline.last_token_ns == 5 * SECOND
    assert stream.api_end_to_end_s == 4.0
    assert stream.duration_s == 6.0
    # (5 s - 3 s) / (9 - 1): the provider's count of tokens, not the four events.
    assert counted(stream, 9).time_per_output_token_s == 0.25
    assert counted(stream, 9).decode_rate == 4.0


def test_unstreamed_answer_ends_at_last_byte_without_tokens() -> None:
    whole = timeline(started_ns=1 * SECOND, answer_ended_ns=3 * SECOND, ended_ns=4 * SECOND)

    assert whole.api_end_to_end_s == 2.0
    assert whole.duration_s == 3.0
    assert whole.time_to_first_token_s is None
    assert whole.time_to_first_content_token_s is None
    assert whole.inter_token_latencies_s == ()
    assert whole.timeline.last_token_ns is None
    assert counted(whole, 100).time_per_output_token_s is None
    assert counted(whole, 100).decode_rate is None


@settings(deadline=None)
@given(streamed(), st.integers(2, 100_000))
def test_pace_times_tokens_plus_first_token_is_end_to_end(stream: CallRecord, output_tokens: int) -> None:
    pace = counted(stream, output_tokens).time_per_output_token_s
    if len(stream.timeline.token_ns) < 2:
        assert pace is None
        return
    first, end_to_end = stream.time_to_first_token_s, stream.api_end_to_end_s
    assert pace is not None
    assert first is not None
    assert end_to_end is not None

    assert pace * (output_tokens - 1) + first == pytest.approx(end_to_end, rel=1e-9, abs=1e-9)
    rate = counted(stream, output_tokens).decode_rate
    assert rate is None if pace == 0 else rate == pytest.approx(1 / pace)


NEW_CONNECTION = {
    "connect_started_ns": 1, "connect_ended_ns": 3, "tls_started_ns": 3, "tls_ended_ns": 6, "send_started_ns": 6,
    "send_ended_ns": 10, "headers_received_ns": 15, "ended_ns": 21,
}  # fmt: skip
LOOKED_UP = {
    "connection_wait_started_ns": 1, "dns_started_ns": 3, "dns_ended_ns": 7, "connect_started_ns": 7,
    "connect_ended_ns": 12, "send_started_ns": 12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("stamps", "phases"),
    [
        (NEW_CONNECTION, {"queue_s": 1, "connect_s": 2, "tls_s": 3, "send_s": 4, "wait_s": 5}),
        # A reused one.
        ({"send_started_ns": 2, "send_ended_ns": 3}, {"queue_s": 2, "connect_s": None, "tls_s": None, "wait_s": None}),
        (LOOKED_UP, {"queue_s": 3, "connection_wait_s": 2, "dns_s": 4, "connect_s": 5}),
    ],
)
def test_phases_of_an_attempt_by_hand(stamps: dict[str, int], phases: dict[str, float | None]) -> None:
    given: dict[str, Any] = {name: at_s * SECOND for name, at_s in stamps.items()}
    wire = WireStamps(started_ns=0, **given)

    assert {name: getattr(wire, name) for name in phases} == phases
