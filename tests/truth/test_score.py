"""Errors are what was reported less what was true, request by request."""

from __future__ import annotations

import math

import pytest

from tests.truth import ClientTimes, ServedRequest, TruthLog, score

MS = 1_000_000


def answer(
    tag: str = "a", *, ttft_ms: float = 50, gap_ms: float = 0.5, tokens: int = 5, late_ms: float = 0
) -> ServedRequest:
    due = 1_000 * MS + round(ttft_ms * MS)
    return ServedRequest(
        tag=tag,
        answer_id=tag,
        received_ns=1_000 * MS,
        role_ns=due,
        sent_ns=tuple(due + round((at * gap_ms + late_ms) * MS) for at in range(tokens)),
        ended_ns=due + 1_000 * MS,
        due_ns=due,
        gap_ns=round(gap_ms * MS),
    )


def reading(tag: str = "a", *, ttft_ms: float = 50, tpot_ms: float | None = 0.5, chunks: int = 5) -> ClientTimes:
    each = None if tpot_ms is None else tpot_ms / 1e3
    return ClientTimes(tag=tag, time_to_first_token_s=ttft_ms / 1e3, time_per_output_token_s=each, chunks=chunks)


def test_errors_are_of_what_the_server_did() -> None:
    log, slow = TruthLog(answers=(answer(),)), TruthLog(answers=(answer(gap_ms=1.0),))
    exact, wrong = score([reading()], log), score([reading(chunks=4), reading("b")], log)

    assert (exact.requests, exact.unmatched, exact.wrong_counts) == (1, 0, 0)
    assert exact.ttft_error_p99_ms == pytest.approx(0, abs=1e-6)
    assert exact.tpot_error_p99 == pytest.approx(0, abs=1e-9)
    assert (wrong.requests, wrong.unmatched, wrong.wrong_counts) == (1, 1, 1)
    assert score([reading(tpot_ms=1.0)], slow).tpot_error_p50 == pytest.approx(0)
    assert score([reading(tpot_ms=0.5)], slow).tpot_error_p50 == pytest.approx(0.5)
    assert score([reading(tpot_ms=None)], log).tpot_error_p50 == math.inf
    assert score([reading(ttft_ms=math.inf)], log).ttft_error_p99_ms == math.inf


def test_late_server_is_distinguished_from_late_client() -> None:
    found = score([reading(ttft_ms=57)], TruthLog(answers=(answer(late_ms=7),)))

    assert found.ttft_error_p99_ms == pytest.approx(0, abs=1e-6)
    assert found.server_late_p50_ms == pytest.approx(7)
    assert found.too_busy
    assert not score([reading()], TruthLog(answers=(answer(),))).too_busy
