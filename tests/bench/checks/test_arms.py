from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.bench.checks import check
from fastlane.bench.checks._checks import difference_of_shares, same_distribution
from fastlane.bench.findings import find
from fastlane.bench.recorded import RecordedRun, Sample
from tests.bench.checks.answers import about, level
from tests.bench.recorded_runs import a_cell, a_run, an_arm

NO_PLAYS = an_arm("baseline", client="fastlane.OpenAI", plays=())


def own_record(sample: Sample, *, reused: bool) -> dict[str, Any]:
    attempt = {
        "connection_reused": reused,
        "connection_id": "c",
        "wire": {"connect_started_ns": sample.issued_ns},
    }
    return {"attempts": [attempt], "metrics": {"time_to_first_token_s": None}}


def opening(*names: str) -> Any:
    """Arms with these names open a connection for every request, the others for none."""
    return lambda sample: replace(sample, call=own_record(sample, reused=sample.arm not in names))


def with_play(play: str, **fields: Any) -> RecordedRun:
    arm = an_arm("fastlane", client="fastlane.OpenAI", plays=(play,))
    return a_run(arms=(NO_PLAYS, replace(NO_PLAYS, name="baseline-again", role="again"), arm), **fields)


def test_connections_that_a_play_saves_are_its_finding() -> None:
    run = with_play("Connection(http2=True)", change=opening("baseline", "baseline-again"))
    found = check(run)

    (finding,) = about(found, "new connections")
    assert finding.level == "flagged"
    assert "Connection may do so" in finding.sentence
    assert found.refusals() == ()


def test_connections_of_foreign_client_are_flagged() -> None:
    found = check(a_run(arms=("baseline", an_arm("aiohttp", client="other.Client")), change=opening("aiohttp")))

    assert level(found, "new connections", "aiohttp") == "flagged"


def test_connections_that_differ_without_a_reason_are_a_fault() -> None:
    found = check(with_play("RequestEncoding(gzip_level=2)", change=opening("baseline", "baseline-again")))

    assert level(found, "new connections") == "refused"


def test_copy_opening_more_connections_is_refused() -> None:
    assert level(check(a_run(change=opening("baseline-again"))), "new connections", "baseline-again") == "refused"


def test_warm_up_connections_are_not_counted() -> None:
    def cold(sample: Sample) -> Sample:
        return replace(sample, call=own_record(sample, reused=sample.part == "measured" or sample.arm == "baseline"))

    assert level(check(a_run(change=cold)), "new connections") == "passed"


def closing(client: str, closed_by: Any) -> RecordedRun:
    """Return a run in which each request of the baseline opens a connection that one side closes after it."""
    arms = (an_arm("baseline", client=client), an_arm("fastlane", client="fastlane.OpenAI"))
    run = a_run(arms=arms, with_log=True)
    assert run.log is not None
    log = (
        replace(
            each,
            connection_request_number=1 if "/baseline/" in (each.tag or "") else 2,
            connection_closed_by=closed_by if "/baseline/" in (each.tag or "") else None,
        )
        for each in run.log
    )
    return replace(run, log=tuple(log))


@pytest.mark.parametrize(
    ("client", "closed_by", "expected_sentence"),
    [
        ("openai.OpenAI", "client", "its client closed 40 of them, because openai's synchronous client stops reading"),
        ("openai.AsyncOpenAI", "client", "its client closed 40 of them; opening is in"),
        ("openai.OpenAI", "server", "the provider closed 40 of them; opening is in"),
        ("openai.OpenAI", None, "who closed them is not known; opening is in"),
    ],
)
def test_new_connections_name_the_side_that_closed_them(client: str, closed_by: Any, expected_sentence: str) -> None:
    found = about(check(closing(client, closed_by)), "new connections", "baseline")

    assert expected_sentence in found[0].sentence
    assert "[DONE]" not in about(check(closing(client, closed_by)), "new connections", "fastlane")[0].sentence


def test_connections_of_unrecorded_client_come_from_log() -> None:
    assert level(check(a_run()), "new connections", "baseline") == "not checked"
    assert level(check(a_run(with_log=True)), "new connections", "baseline") == "passed"


def failing(share: float, error: str = "InternalServerError 500", arm: str = "fastlane") -> Any:
    def failed(sample: Sample) -> Sample:
        if sample.arm != arm or sample.block % 20 >= share * 20:
            return sample
        return replace(sample, token_ns=(), output_tokens=None, finish_reason=None, error=error)

    return failed


@pytest.mark.parametrize(("share", "expected"), [(0.0, "passed"), (0.05, "passed"), (0.5, "flagged")])
def test_arm_that_fails_more_often_is_flagged_for_it(share: float, expected: str) -> None:
    found = check(a_run(cells=(a_cell(1),), pairs=100, change=failing(share)))

    assert {each.level for each in about(found, "the same errors")} >= {expected}
    assert found.refusals() == ()


def fewer_refused(sample: Sample) -> Sample:
    """Half of the reference's and its copy's requests are turned away, and a tenth of the arm's."""
    shares = {"baseline": 0.5, "baseline-again": 0.5, "fastlane": 0.1}
    return failing(shares[sample.arm], "RateLimitError 429", sample.arm)(sample)  # type: ignore[no-any-return]


def test_arm_that_is_turned_away_less_often_has_a_result() -> None:
    """A play that reduces 429s does what it is for: its cell is valid, and the difference has an interval."""
    run = a_run(cells=(a_cell(1),), pairs=200, change=fewer_refused)
    found = check(run, find(run))

    assert found.refusals() == ()
    assert found.valid(run.header.cells[0].name)
    finding = about(found, "the same errors")[-1]
    assert finding.level == "flagged"
    assert "10 % of fastlane's requests" in finding.sentence
    assert "50 % of baseline's" in finding.sentence
    assert "-40 percentage points [-4" in finding.sentence
    assert "(429)" in finding.sentence


def test_copy_failing_more_often_is_refused_alone() -> None:
    run = a_run(cells=(a_cell(1),), pairs=100, change=failing(0.5, arm="baseline-again"))
    found = check(run)

    assert level(found, "the same errors", "baseline-again") == "refused"
    assert found.valid(run.header.cells[0].name, "fastlane")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 80), st.integers(1, 80), st.integers(0, 80), st.integers(1, 80))
def test_interval_of_a_difference_of_shares_holds_it(first: int, of_first: int, second: int, of_second: int) -> None:
    first, second = min(first, of_first), min(second, of_second)
    low, high = difference_of_shares(first, of_first, second, of_second)

    assert -1 <= low <= second / of_second - first / of_first <= high <= 1


def test_all_arms_failing_alike_is_flagged() -> None:
    def failed(sample: Sample) -> Sample:
        return failing(0.5, arm=sample.arm)(sample)  # type: ignore[no-any-return]

    found = check(a_run(cells=(a_cell(1),), pairs=100, change=failed))

    assert about(found, "the same errors", "baseline")[0].level == "flagged"
    assert found.refusals() == ()


def shorter(sample: Sample) -> Sample:
    if sample.arm != "fastlane":
        return sample
    return replace(sample, token_ns=sample.token_ns[:24], output_tokens=24, least_output_tokens=None)


def test_unexplained_shorter_answers_are_refused() -> None:
    assert level(check(with_play("Connection()", change=shorter)), "the same lengths of answers") == "refused"


def test_answers_that_a_play_shortens_are_its_finding() -> None:
    found = check(with_play("BoundedOutput(tokens=24)", change=shorter))

    assert level(found, "the same lengths of answers") == "flagged"


def test_unknown_play_changing_lengths_is_flagged() -> None:
    assert level(check(with_play("MyOwn()", change=shorter)), "the same lengths of answers") == "flagged"


def test_prompts_that_differ_within_pairs_are_refused() -> None:
    def other(sample: Sample) -> Sample:
        return replace(sample, meant_input_tokens=501) if sample.arm == "fastlane" else sample

    assert level(check(a_run(change=other)), "the same prompts") == "refused"


@pytest.mark.parametrize(("play", "expected"), [("ContextTrimming()", "flagged"), ("Connection()", "refused")])
def test_changed_prompt_tokens_need_an_explaining_play(play: str, expected: str) -> None:
    def fewer(sample: Sample) -> Sample:
        return replace(sample, input_tokens=400) if sample.arm == "fastlane" else sample

    assert level(check(with_play(play, change=fewer)), "the same prompts") == expected


def cached(sample: Sample) -> Sample:
    return replace(sample, cached_tokens=384 if sample.arm == "fastlane" else 0)


@pytest.mark.parametrize(("play", "expected"), [("PromptCache()", "flagged"), ("Connection()", "refused")])
def test_cache_that_one_arm_hits_more_often_wants_a_reason(play: str, expected: str) -> None:
    assert level(check(with_play(play, change=cached)), "cached tokens") == expected


def test_forbidden_cache_hit_is_refused() -> None:
    run = with_play("PromptCache()", cells=(a_cell(caching_forbidden=True),), change=cached)
    found = check(run)

    assert level(found, "cache hits where none may be") == "refused"
    assert level(found, "cache hits where none may be", "baseline") == "passed"


def test_unreported_cache_is_not_checked() -> None:
    run = a_run(cells=(a_cell(caching_forbidden=True),), change=lambda each: replace(each, cached_tokens=None))

    assert level(check(run), "cache hits where none may be") == "not checked"


def test_empty_or_constant_distributions_do_not_differ() -> None:
    assert same_distribution([], [1.0]) == 1.0
    assert same_distribution([3.0, 3.0], [3.0]) == 1.0
