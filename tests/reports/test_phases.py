from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fastlane import CallRecord
from fastlane.records import (
    AdmissionRecord,
    BoundedOutputRecord,
    ContextTrimmingRecord,
    Cut,
    HedgingRecord,
    PromptCacheRecord,
    RejectedAnswer,
    RequestEncodingRecord,
    UrgencyRecord,
    Usage,
    WireStamps,
)
from tests.reports.made import MS, attempt, failed, record, report

PHASES = (
    "prepare", "wait_for_place", "earlier attempts", "queue", "dns", "connect", "proxy", "tls", "send", "wait",
    "first token", "decode", "body", "tail", "validate", "hand over", "other",
)  # fmt: skip


def phases_of(call: CallRecord) -> dict[str, float]:
    """Seconds of each phase of a call."""
    return {phase: found.total_s for phase, found in report(call).everything.phases.items()}


def milliseconds(found: Mapping[str, float]) -> dict[str, float]:
    return {phase: round(took * 1e3, 6) for phase, took in found.items()}


def test_phases_of_warm_and_cold_calls() -> None:
    assert milliseconds(phases_of(record())) == {
        "prepare": 1, "queue": 1, "send": 2, "wait": 16, "first token": 5, "decode": 20, "tail": 3, "hand over": 2,
        "other": 0,
    }  # fmt: skip
    assert milliseconds(phases_of(record(tokens=(), attempts=(attempt(opened=True),)))) == {
        "prepare": 1, "queue": 1, "dns": 1, "connect": 2, "tls": 4, "send": 2, "wait": 9, "body": 28, "hand over": 2,
        "other": 0,
    }  # fmt: skip


def test_earlier_attempts_are_a_separate_phase() -> None:
    retried = record(attempts=(attempt(), attempt(kind="retry", number=2, at=9)))
    # One that lost began after the attempt that answered.
    hedged = record(attempts=(attempt(kind="hedge", number=2, at=9), attempt()))

    assert milliseconds(phases_of(retried))["earlier attempts"] == 8
    assert "earlier attempts" not in phases_of(hedged)


def test_wait_for_slot_is_not_part_of_prepare() -> None:
    admission = AdmissionRecord(waited_s=0.0006, ahead=3, concurrency=4)
    urgency = UrgencyRecord(urgency="background", admission=admission)
    found = milliseconds(phases_of(record(urgency=urgency)))
    retried = milliseconds(phases_of(record(urgency=urgency, attempts=(attempt(), attempt(number=2, at=9)))))

    assert (found["prepare"], found["wait_for_place"], found["queue"]) == (0.4, 0.6, 1)
    assert round(sum(found.values()), 6) == 50
    assert retried["prepare"] == 1
    assert "wait_for_place" not in retried


STAMPS = [stamp.name for stamp in fields(WireStamps) if stamp.name.endswith("_ns") and stamp.name != "data_ns"]


@given(
    wire=st.fixed_dictionaries(dict.fromkeys(STAMPS, st.integers(0, 50) | st.none())),
    tokens=st.lists(st.integers(0, 50), max_size=3).map(sorted),
)
def test_phases_are_ordered_and_count_each_moment_once(wire: dict[str, int | None], tokens: list[int]) -> None:
    stamps: dict[str, Any] = {name: None if at is None else at * MS for name, at in wire.items()}
    stamped = replace(attempt(), wire=WireStamps(**{**stamps, "started_ns": stamps["started_ns"] or 0}))
    found = phases_of(record(tokens=tuple(tokens), attempts=(stamped,)))

    assert list(found) == [phase for phase in PHASES if phase in found]
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("began", "ended", "took"), [(48.5, 49.5, 1), (46, 49, 1), (40, 47, None), (51, 52, None)])
def test_validate_phase_counts_only_after_the_last_byte(began: float, ended: float, took: float | None) -> None:
    seen = record()
    checked = replace(seen.timeline, validate_started_ns=int(began * MS), validate_ended_ns=int(ended * MS))
    found = milliseconds(phases_of(replace(seen, timeline=checked)))

    assert found.get("validate") == took
    assert found["hand over"] == 2 - (took or 0)


moments = st.lists(st.integers(10, 1_000_000), min_size=1, max_size=150)


@given(moments)
def test_percentiles_are_numpys_and_left_out_of_too_few_values(ended: list[int]) -> None:
    values = [ended_ms / 1e3 for ended_ms in ended]
    found = report(*(record(tokens=(), ended=ended_ms) for ended_ms in ended)).everything.metrics["duration_s"]

    assert found.n == len(values)
    assert found.highest == pytest.approx(max(values))
    assert found.p50 == pytest.approx(float(np.quantile(values, 0.5)))
    assert found.p95 == (None if len(values) < 20 else pytest.approx(float(np.quantile(values, 0.95))))
    assert found.p99 == (None if len(values) < 100 else pytest.approx(float(np.quantile(values, 0.99))))


counts = st.none() | st.integers(0, 10_000)
prices = st.none() | st.floats(0, 10, allow_nan=False)
seconds = st.floats(0, 10, allow_nan=False)

records = st.builds(
    record,
    outcome=st.sampled_from(["completed", "failed", "closed"]),
    usage=st.builds(Usage, input_tokens=counts, cached_tokens=counts, output_tokens=counts),
    request_encoding=st.none()
    | st.builds(
        RequestEncodingRecord,
        form=st.sampled_from(["json", "json+gzip"]),
        reason=st.just("x"),
        plain_bytes=st.integers(0, 9_000),
        sent_bytes=st.integers(0, 9_000),
        cpu_s=seconds,
    ),
    prompt_cache=st.none()
    | st.builds(
        PromptCacheRecord,
        family=st.just("f"),
        prompt_tokens=st.just(5),
        reusable_tokens=st.just(5),
        expected_tokens=counts,
        cached_tokens=counts,
    ),
    context_trimming=st.none()
    | st.builds(
        ContextTrimmingRecord,
        tokens_before=st.integers(500, 900),
        tokens_after=st.integers(0, 500),
        cuts=st.sampled_from([(), (Cut(kind="turn", path="messages[1]", tokens=7),)]),
    ),
    output=st.none()
    | st.builds(
        BoundedOutputRecord,
        tokens_not_generated=counts,
        rejected=st.lists(
            st.builds(
                RejectedAnswer,
                verdict=st.just("invalid"),
                problem=st.just("x"),
                input_tokens=counts,
                output_tokens=counts,
            ),
            max_size=2,
        ).map(tuple),
    ),
    hedging=st.none()
    | st.builds(
        HedgingRecord,
        delay_s=seconds,
        hedged=st.booleans(),
        won=st.none() | st.booleans(),
        why_not=st.none(),
        extra_input_tokens=counts,
        extra_price=prices,
    ),
    service_tier=st.none() | st.sampled_from(["default", "flex"]),
)


@given(st.lists(records, max_size=12))
def test_every_total_is_the_sum_of_what_the_calls_say(calls: list[CallRecord]) -> None:
    ledger = report(*calls).ledger

    assert ledger.calls == len(calls)
    numbers = {
        name
        for call in calls
        for name, entry in call.savings.items()
        if not isinstance(entry.value, str | bool) and name != "cache_expected_tokens"
    }
    assert numbers <= {total.name for total in ledger.totals}
    for total in ledger.totals:
        known: list[Any] = [call.savings[total.name].value for call in calls if total.name in call.savings]
        if total.name != "cache_expected_tokens":  # which counts beside what was read alone
            assert total.value == pytest.approx(sum(known))
            assert total.calls == len(known)
    assert sum(ledger.counts.get("tier", {}).values()) == sum(call.service_tier is not None for call in calls)
    expected = [
        call.prompt_cache.expected_tokens
        for call in calls
        if call.prompt_cache is not None
        and call.prompt_cache.expected_tokens is not None
        and call.usage.cached_tokens is not None
    ]
    cache = ledger.total("cache_expected_tokens")
    assert (None if cache is None else cache.value) == (sum(expected) if expected else None)
    made = ledger.total("hedges_made")
    assert ledger.count("hedge", "won") + ledger.count("hedge", "lost") <= (0 if made is None else made.value)


@given(st.lists(records, max_size=8), st.lists(records, max_size=8))
def test_ledger_of_all_calls_is_the_sum_of_parts(some: list[CallRecord], others: list[CallRecord]) -> None:
    one, other, both = (report(*calls).ledger for calls in (some, others, some + others))

    for name in {total.name for ledger in (one, other, both) for total in ledger.totals}:
        parts = [total for ledger in (one, other) if (total := ledger.total(name)) is not None]
        whole = both.total(name)
        assert (whole is None) == (not parts)
        if whole is not None:
            assert whole.value == pytest.approx(sum(part.value for part in parts))
            assert whole.calls == sum(part.calls for part in parts)


def test_reused_connection_saves_measured_opening_time() -> None:
    ledger = report(record(attempts=(attempt(opened=True),)), record(), record(), failed()).ledger

    assert (ledger.connections_reused, ledger.connections_known, ledger.connections_unpriced) == (3, 4, 0)
    assert ledger.connections_saved_s == pytest.approx(3 * 0.007)


def test_total_of_counts_and_estimates_is_an_estimate() -> None:
    counted = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5)
    guessed = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5, estimated=True)
    calls = [record(output=BoundedOutputRecord(rejected=(one,))) for one in (counted, guessed)]
    mixed, certain = (report(*some).ledger.total("rejected_tokens") for some in (calls, calls[:1]))

    assert mixed is not None
    assert certain is not None
    assert (mixed.basis, certain.basis) == ("estimated", "reported")
