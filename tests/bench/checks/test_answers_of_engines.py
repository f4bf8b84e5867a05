"""Oddities of real engines are handled and reported."""

from __future__ import annotations

from dataclasses import replace

from fastlane.bench.checks import check
from fastlane.bench.recorded import Sample
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import a_run, changed


def one_in_twenty(sample: Sample) -> bool:
    return sample.part == "measured" and sample.block % 20 == 1


def test_usage_that_never_comes_is_unknown_and_no_zero() -> None:
    run = a_run(change=lambda each: replace(each, input_tokens=None, cached_tokens=None, output_tokens=None))
    found = check(run)

    assert found.refusals() == ()
    assert level(found, "cached tokens") == "not checked"
    assert level(found, "usage against own count") == "not checked"


def test_limit_of_tokens_that_is_ignored_is_refused() -> None:
    run = a_run(tokens=200, change=lambda each: replace(each, asked_output_tokens=64, least_output_tokens=None))
    (finding,) = about(check(run), "tokens asked for")

    assert finding.level == "refused"
    assert "at most 64" in finding.sentence


def test_few_early_stops_are_flagged_not_refused() -> None:
    def early(sample: Sample) -> Sample:
        if not one_in_twenty(sample):
            return sample
        stamps = sample.token_ns[:8]
        return replace(sample, token_ns=stamps, output_tokens=8, finish_reason="stop")

    found = check(a_run(pairs=100, change=early))

    assert level(found, "tokens asked for") == "flagged"
    assert found.refusals() == ()


def test_interrupted_answer_is_no_answer() -> None:
    def interrupted(sample: Sample) -> Sample:
        # The stream ends with [DONE] as if it were whole, and says no finish_reason.
        return replace(sample, finish_reason=None, output_tokens=None) if one_in_twenty(sample) else sample

    run = a_run(pairs=100, change=interrupted)
    found = check(run)

    assert level(found, "answers cut off") == "flagged"


def test_missing_finish_reasons_are_flagged_not_refused() -> None:
    found = check(a_run(change=lambda each: replace(each, finish_reason=None)))

    assert level(found, "answers cut off") == "flagged"
    assert found.refusals() == ()


def test_connection_close_after_each_stream_is_flagged() -> None:
    found = check(a_run(change=lambda each: replace(each, call=own_record(each, reused=False))))

    assert level(found, "new connections", "baseline") == "flagged"
    assert found.refusals() == ()


def own_record(sample: Sample, *, reused: bool) -> dict[str, object]:
    attempt = {"connection_reused": reused, "connection_id": "c", "wire": {"connect_started_ns": sample.issued_ns}}
    return {"attempts": [attempt], "metrics": {"time_to_first_token_s": None}}


def test_four_tokens_per_chunk_are_flagged() -> None:
    found = check(a_run(tokens=16, change=lambda each: replace(each, output_tokens=64, asked_output_tokens=64)))

    (finding,) = about(found, "chunks against tokens")
    assert finding.level == "flagged"
    assert "holds 4 tokens" in finding.sentence


def test_streamed_reasoning_flags_first_content_token() -> None:
    run = a_run(change=lambda each: replace(each, first_content_ns=each.token_ns[5], reasoning_tokens=5))
    (finding,) = about(check(run), "reasoning in the answers")

    assert finding.level == "flagged"
    assert finding.sentence.startswith("40 of 40")


def test_hidden_reasoning_flags_time_per_token() -> None:
    run = a_run(change=lambda each: replace(each, output_tokens=132, reasoning_tokens=100, asked_output_tokens=200))
    (finding,) = about(check(run), "reasoning in the answers")

    assert finding.level == "flagged"
    assert "too small" in finding.sentence


def test_successful_answers_without_output_are_refused() -> None:
    run = a_run(change=lambda each: replace(each, token_ns=(), output_tokens=0, first_content_ns=None))

    assert level(check(run), "answers cut off") == "refused"


def test_truncated_prompt_is_flagged() -> None:
    found = check(a_run(input_tokens=5_000, change=lambda each: replace(each, input_tokens=2_048)))

    assert level(found, "usage against own count") == "flagged"


def test_usage_within_ten_percent_of_estimate_passes() -> None:
    found = check(a_run(input_tokens=5_000, change=lambda each: replace(each, input_tokens=5_500)))

    assert level(found, "usage against own count") == "passed"


def test_answer_at_length_limit_without_usage_passes() -> None:
    """A token that is no more than a part of a character comes in no chunk of its own."""

    def of_an_engine(sample: Sample) -> Sample:
        return replace(
            sample,
            output_tokens=None,
            asked_output_tokens=32,
            least_output_tokens=32,
            token_ns=sample.token_ns[:31],
            finish_reason="length",
        )

    found = check(changed(a_run(tokens=32), of_an_engine))

    assert level(found, "tokens asked for") == "passed"
    stopped = check(changed(a_run(tokens=32), lambda each: replace(of_an_engine(each), finish_reason="stop")))
    assert level(stopped, "tokens asked for") == "refused"
