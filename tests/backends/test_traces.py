"""What Phoenix and MLflow show of an application's calls is what its records say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from fastlane import CallRecord
from fastlane.records import Attempt
from scripts.backends._application import ACTION, MODEL
from scripts.backends._servers import SeenSpan
from tests.backends.kept import MODEL_CALLS, Driven, Kept

pytestmark = pytest.mark.timeout(600)

# Of all the times that are compared here, Phoenix keeps whole microseconds.
CLOSE_S = 0.001


def with_records(driven: Driven) -> Iterator[tuple[SeenSpan, CallRecord]]:
    """Each call's span and its record."""
    calls = sorted(driven.notes.calls, key=lambda record: record.timeline.started_wall_ns)
    return zip(driven.model_calls, calls, strict=True)


def with_attempts(driven: Driven) -> Iterator[tuple[SeenSpan, Attempt, CallRecord]]:
    """Each request's span, and what the record says of it."""
    for span, record in with_records(driven):
        attempts = sorted(record.attempts, key=lambda attempt: attempt.number)
        posts = [child for child in driven.spans.children(span) if child.name == "POST"]
        yield from ((post, attempt, record) for post, attempt in zip(posts, attempts, strict=True))


def chains(driven: Driven) -> list[SeenSpan]:
    return [span for span in driven.spans if span.name.startswith("invoke_workflow ")]


def test_each_call_is_one_model_call_span(kept: Kept) -> None:
    assert {span.name.partition(" ")[0] for span in kept.call.spans} == {"invoke_workflow", "chat"}
    for driven in (kept.phases, kept.call):
        assert len(driven.model_calls) == len(driven.notes.calls) >= 4
        for span, record in with_records(driven):
            assert span.name == f"chat {MODEL}"
            assert abs(span.start_ns - record.timeline.started_wall_ns) < 1_000_000
            assert span.attributes.get("gen_ai.response.id") == record.response_id


def test_request_and_phase_spans_are_not_model_calls(kept: Kept) -> None:
    others = {span.name: span for span in kept.phases.spans if span.kind not in MODEL_CALLS}

    assert len(others) >= 12
    for name, span in others.items():
        assert span.kind == ("CHAIN" if name.startswith("invoke_workflow ") else "UNKNOWN")
        assert span.tokens == {}
        assert span.model is None


def test_user_action_is_a_chain_with_its_calls_below_it(kept: Kept) -> None:
    for driven in (kept.phases, kept.call):
        spans = chains(driven)
        shown = Counter((span.name, len(driven.named(span, "chat "))) for span in spans)
        noted = Counter((f"invoke_workflow {one.name}", len(one.call_ids)) for one in driven.notes.actions)
        assert shown == noted
        assert {span.kind for span in spans} == {"CHAIN"}
    assert Counter(span.name for span in chains(kept.phases))[f"invoke_workflow {ACTION}"] >= 10


def test_tokens_and_cache_reads_are_those_of_the_record(kept: Kept) -> None:
    read = 0
    for span, record in with_records(kept.phases):
        usage = record.usage
        noted = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
        }
        # A backend may leave out what is 0.
        assert {name: count for name, count in span.tokens.items() if count} == {
            name: count for name, count in noted.items() if count
        }
        read += span.tokens.get("cache_read", 0)
    assert read > 50_000


def test_call_span_duration_matches_its_record(kept: Kept) -> None:
    for driven in (kept.phases, kept.call):
        for span, record in with_records(driven):
            assert span.duration_s == pytest.approx(record.duration_s, abs=CLOSE_S)


def test_phase_span_durations_match_the_record(kept: Kept) -> None:
    compared = Counter[str]()
    for post, attempt, record in with_attempts(kept.phases):
        shown = {span.name.partition(" localhost")[0]: span.duration_s for span in kept.phases.spans.below(post)}
        wire, tokens = attempt.wire, record.timeline.token_ns
        noted = {
            "DNS lookup": wire.dns_s,
            "TLS client handshake": wire.tls_s,
            "HTTP send_request": wire.send_s,
            "HTTP wait_for_response": wire.wait_s,
        }
        if attempt is record.last_attempt and len(tokens) > 1:
            noted["decode"] = (tokens[-1] - tokens[0]) / 1e9
        for name, seconds in noted.items():
            if seconds is None:
                assert name not in shown
            else:
                assert shown[name] == pytest.approx(seconds, abs=CLOSE_S)
                compared[name] += 1
    assert compared["DNS lookup"] >= 2
    assert compared["decode"] >= 20


def test_retried_request_span_fails_and_call_span_does_not(kept: Kept) -> None:
    call = kept.phases.span("retried")
    first, second = kept.phases.named(call, "POST")

    assert (call.failed, first.failed, second.failed) == (False, True, False)
    assert first.attributes["http.response.status_code"] == 429
    assert second.attributes["http.request.resend_count"] == 1
    assert call.attributes["fastlane.attempt.count"] == 2


def test_hedge_span_overlaps_first_and_loser_is_not_failed(kept: Kept) -> None:
    call = kept.phases.span("hedged")
    first, second = kept.phases.named(call, "POST")

    assert not any(span.failed for span in (call, first, second))
    assert first.start_ns < second.start_ns < first.end_ns
    assert first.attributes["fastlane.attempt.outcome"] == "cancelled"
    assert second.attributes["fastlane.attempt.kind"] == "hedge"


def test_failed_call_and_its_action_have_failed_spans(kept: Kept) -> None:
    call = kept.phases.span("failed")
    action = kept.phases.spans.parent(call)

    assert action is not None
    assert call.failed
    assert action.failed
    assert call.attributes["error.type"] == "AuthenticationError"


def test_no_prompt_answer_key_header_or_query_is_stored(kept: Kept) -> None:
    assert kept.files_with_a_secret == ()
