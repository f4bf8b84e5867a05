"""Against providers of several kinds, at more than they allow: few refusals, and the limit is used."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.rate_limits.limiter import RateLimiter
from fastlane.providers.facts import Counts
from tests.plays.rate_limits.simulated import Bucket, Counter, Job, Provider, Quantized, Sliding, Window, run, steady

END_S, FROM_S = 180.0, 60.0

Make = Callable[[float], Counter]
KINDS: dict[str, Make] = {"bucket": Bucket, "window": Window, "quantized": Quantized}


def offer(
    provider: Provider,
    *,
    replicas: int = 1,
    per_s: float,
    tokens: int = 100,
    seed: int = 0,
    first_token_s: tuple[float, float] = (0.2, 1.5),
    others: list[tuple[float, int]] | None = None,
    requests_per_minute: float | None = None,
) -> tuple[float, float]:
    """The share of refusals, and what was admitted each second from the second minute on."""
    pacers = [RateLimiter(jitter=Random(seed + number)) for number in range(replicas)]
    stated: list[tuple[Counts, float]] = [] if requests_per_minute is None else [("requests", requests_per_minute)]
    jobs = steady(per_s, END_S, tokens, seed=seed)
    run(provider, pacers, jobs, until_s=END_S, seed=seed, first_token_s=first_token_s, others=others, stated=stated)
    admitted = [at_s for at_s, _ in provider.admitted if at_s >= FROM_S]
    refused = len(provider.refused)
    return refused / (refused + len(provider.admitted)), len(admitted) / (END_S - FROM_S)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1_000), per_s=st.sampled_from([2.0, 10.0]), slow_s=st.sampled_from([0.1, 2.0, 6.0]))
def test_hardly_anything_is_refused_and_the_limit_is_used(kind: str, seed: int, per_s: float, slow_s: float) -> None:
    provider = Provider(KINDS[kind](per_s * 60), None)
    refused, used = offer(provider, per_s=2 * per_s, seed=seed, first_token_s=(slow_s / 4, slow_s))

    assert refused <= 0.02
    assert used >= 0.9 * per_s


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1_000), per_s=st.sampled_from([2.0, 10.0]))
def test_windows_that_end_now_are_kept_to_if_not_used_up(seed: int, per_s: float) -> None:
    # Which nobody documents: what comes back, nobody says until it is asked for.
    refused, used = offer(Provider(Sliding(per_s * 60), None), per_s=2 * per_s, seed=seed)

    assert refused <= 0.02
    assert used >= 0.4 * per_s


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1_000), holds=st.sampled_from([0.05, 0.2, 1.0]))
def test_a_bucket_may_hold_as_much_as_it_likes(seed: int, holds: float) -> None:
    refused, used = offer(Provider(Bucket(600, holds=600 * holds), None), per_s=20, seed=seed)

    assert refused <= 0.02
    assert used >= 9.3


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_where_tokens_are_the_nearer_limit_they_are_kept_to(seed: int) -> None:
    provider = Provider(Bucket(600), Bucket(60_000))
    refused, _ = offer(provider, per_s=2, tokens=1_000, seed=seed)
    tokens = sum(tokens for at_s, tokens in provider.admitted if at_s >= FROM_S)

    assert refused <= 0.02
    assert tokens >= 0.93 * 60_000 * (END_S - FROM_S) / 60


@pytest.mark.parametrize(("kind", "most"), [("bucket", 0.02), ("window", 0.03)])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_replicas_that_know_nothing_of_each_other_share_a_limit(kind: str, most: float, seed: int) -> None:
    refused, used = offer(Provider(KINDS[kind](600), None), replicas=3, per_s=20, seed=seed)

    assert refused <= most
    assert used >= 9.3


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_others_with_the_same_account_are_made_room_for(seed: int) -> None:
    others = [(number / 4, 100) for number in range(int(END_S * 4))]
    refused, used = offer(Provider(Bucket(600), None), per_s=20, seed=seed, others=others)

    assert refused <= 0.02
    assert used >= 5.4


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1_000), has_retry_after=st.booleans())
def test_without_any_header_refusals_teach_a_pace(seed: int, has_retry_after: bool) -> None:
    provider = Provider(Bucket(600), None, has_headers=False, has_retry_after=has_retry_after)
    refused, used = offer(provider, per_s=20, seed=seed)

    assert refused <= 0.03
    assert used >= 8.5


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_a_limit_that_the_application_states_needs_no_header(seed: int) -> None:
    provider = Provider(Bucket(600), None, has_headers=False)
    refused, used = offer(provider, per_s=20, seed=seed, requests_per_minute=600)

    assert refused <= 0.01
    assert used >= 9.8


def test_less_than_the_limit_is_not_held_back_at_all() -> None:
    jobs = steady(4, END_S, 100)
    provider = Provider(Bucket(600), Bucket(60_000))
    run(provider, [RateLimiter(jitter=Random(0))], jobs, until_s=END_S + 30)

    assert provider.refused == []
    assert all(job.sent_s == job.at_s for job in jobs)


def test_a_burst_that_fits_is_not_held_back() -> None:
    jobs = [Job(1.0, 10), *(Job(10.0, 10) for _ in range(200))]
    provider = Provider(Window(600), None)
    run(provider, [RateLimiter(jitter=Random(0))], jobs, until_s=60)

    assert provider.refused == []
    assert all(job.sent_s == job.at_s for job in jobs)


def test_calls_that_somebody_waits_for_go_at_once_beside_a_flood_of_background() -> None:
    flood = steady(20, END_S, 100, level="background", seed=1)
    waited_for = steady(1, END_S, 100, seed=2)
    provider = Provider(Bucket(600), Bucket(60_000))
    run(provider, [RateLimiter(jitter=Random(0))], sorted(flood + waited_for, key=lambda job: job.at_s), until_s=END_S)

    assert len(provider.refused) <= 5
    assert all(job.sent_s is not None and job.sent_s == job.at_s for job in waited_for if job.at_s < END_S - 1)
