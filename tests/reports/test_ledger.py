from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import CallRecord
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
from fastlane.records.savings import figures
from fastlane.reports.report import ledger_of, openings
from tests.reports.made import ORIGIN, attempt, failed, record

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
    ledger = ledger_of(calls, {})

    assert ledger.calls == len(calls)
    for name in [name for name, figure in figures().items() if figure.unit and figure.only_with is None]:
        known: list[Any] = [call.savings[name].value for call in calls if name in call.savings]
        total = ledger.total(name)
        assert (total is None) == (not known)
        if total is not None:
            assert total.value == pytest.approx(sum(known))
            assert (total.calls, total.unit) == (len(known), figures()[name].unit)
    assert sum(ledger.counts.get("tier", {}).values()) == sum(call.service_tier is not None for call in calls)
    made = ledger.total("hedges_made")
    assert ledger.count("hedge", "won") + ledger.count("hedge", "lost") <= (0 if made is None else made.value)


@given(st.lists(records, max_size=8), st.lists(records, max_size=8))
def test_the_ledger_of_all_calls_is_that_of_some_and_of_the_others(
    some: list[CallRecord], others: list[CallRecord]
) -> None:
    one, other, both = (ledger_of(calls, {}) for calls in (some, others, some + others))

    for name in figures():
        parts = [total for ledger in (one, other) if (total := ledger.total(name)) is not None]
        whole = both.total(name)
        assert (whole is None) == (not parts)
        if whole is not None:
            assert whole.value == pytest.approx(sum(part.value for part in parts))
            assert whole.calls == sum(part.calls for part in parts)


@given(st.lists(records, max_size=8))
def test_what_was_expected_of_caches_is_of_the_calls_that_said_what_was_read(calls: list[CallRecord]) -> None:
    said = [
        call.prompt_cache.expected_tokens
        for call in calls
        if call.prompt_cache is not None
        and call.prompt_cache.expected_tokens is not None
        and call.usage.cached_tokens is not None
    ]
    total = ledger_of(calls, {}).total("cache_expected_tokens")

    assert (total.value if total is not None else None) == (sum(said) if said else None)


def cold(origin: str = ORIGIN, **more: Any) -> CallRecord:
    return record(origin=origin, attempts=(attempt(opened=True, origin=origin),), **more)


def test_a_connection_that_was_found_open_saved_what_opening_one_took_elsewhere() -> None:
    calls = [cold(), record(), record(), failed()]
    ledger = ledger_of(calls, openings(calls))

    assert (ledger.connections_reused, ledger.connections_known, ledger.connections_unpriced) == (3, 4, 0)
    assert ledger.connections_saved_s == pytest.approx(3 * 0.007)


def test_a_total_of_counts_and_estimates_is_an_estimate() -> None:
    counted = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5)
    guessed = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5, estimated=True)
    calls = [record(output=BoundedOutputRecord(rejected=(one,))) for one in (counted, guessed)]
    mixed, certain = ledger_of(calls, {}).total("rejected_tokens"), ledger_of(calls[:1], {}).total("rejected_tokens")

    assert mixed is not None
    assert certain is not None
    assert (mixed.basis, certain.basis) == ("estimated", "reported")
