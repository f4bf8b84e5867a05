"""Against simulated providers of several kinds, at more than they allow: few refusals, and the limit is used."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fastlane.plays.rate_limits.limiter import RateLimiter
from tests.plays.rate_limits.simulated import Bucket, Provider, Window, run, steady

END_S, FROM_S = 180.0, 60.0

Make = Callable[[float], Bucket]


def small(limit: float) -> Bucket:
    """A bucket that holds a tenth of its limit."""
    return Bucket(limit, holds=0.1 * limit)


def offer(
    provider: Provider,
    *,
    replicas: int = 1,
    per_s: float = 20.0,
    tokens: int = 100,
    seed: int = 0,
    level: str = "interactive",
    **more: Any,
) -> tuple[float, float, float]:
    """Return the share of refusals, that of the first half minute, and what was admitted each second from then on."""
    limiters = [RateLimiter(jitter=Random(seed + number)) for number in range(replicas)]
    run(provider, limiters, steady(per_s, END_S, tokens, seed=seed, level=level), until_s=END_S, seed=seed, **more)
    early, refused_early = sum(at_s < 30 for at_s, _ in provider.admitted), sum(at_s < 30 for at_s in provider.refused)
    refused = len(provider.refused) / (len(provider.refused) + len(provider.admitted))
    used = sum(at_s >= FROM_S for at_s, _ in provider.admitted) / (END_S - FROM_S)
    return refused, refused_early / (early + refused_early), used


@pytest.mark.parametrize(
    ("kind", "level", "per_s", "slow_s", "least"),
    [
        (Bucket, "interactive", 2.0, 2.0, 0.95),
        (Bucket, "background", 10.0, 6.0, 0.95),
        (Window, "interactive", 10.0, 6.0, 0.95),
        (small, "background", 10.0, 0.1, 0.9),
        # It is empty within six seconds, and its responses tell of it six seconds late.
        (small, "interactive", 10.0, 6.0, 0.7),
    ],
)
def test_limit_is_used_and_hardly_anything_is_refused(
    kind: Make, level: str, per_s: float, slow_s: float, least: float
) -> None:
    provider = Provider(kind(per_s * 60), None)
    refused, _, used = offer(provider, per_s=2 * per_s, level=level, first_token_s=(slow_s / 4, slow_s))

    assert refused <= 0.01
    assert used >= least * per_s


@pytest.mark.parametrize(
    ("kind", "replicas", "most", "early"),
    [
        (Bucket, 8, 0.01, 0.02),
        (small, 3, 0.01, 0.02),
        (Window, 8, 0.02, 0.02),
    ],
)
def test_replicas_share_a_limit_without_knowing_each_other(
    kind: Make, replicas: int, most: float, early: float
) -> None:
    """They start together. Of a limit that each second has its share of, they do not know each other's seconds."""
    refused, refused_early, used = offer(Provider(kind(600), None), replicas=replicas, seed=1)

    assert refused <= most
    assert refused_early <= early
    assert used >= 9.3


def test_token_limit_applies_when_it_is_reached_first() -> None:
    provider = Provider(Bucket(600), Bucket(60_000))
    refused, _, _ = offer(provider, per_s=2, tokens=1_000)
    tokens = sum(tokens for at_s, tokens in provider.admitted if at_s >= FROM_S)

    assert refused <= 0.01
    assert tokens >= 0.93 * 60_000 * (END_S - FROM_S) / 60


@pytest.mark.parametrize(
    ("has_retry_after", "stated", "most", "least"),
    [(False, (), 0.03, 8.5), (True, (), 0.03, 8.5), (True, (("requests", 600.0),), 0.01, 9.8)],
    ids=["learned from 429", "learned from Retry-After", "stated"],
)
def test_rate_is_learned_or_stated_without_headers(
    has_retry_after: bool, stated: Any, most: float, least: float
) -> None:
    provider = Provider(Bucket(600), None, has_headers=False, has_retry_after=has_retry_after)
    refused, _, used = offer(provider, stated=stated)

    assert refused <= most
    assert used >= least


def test_less_than_the_limit_is_not_held_back() -> None:
    jobs = steady(4, END_S, 100)
    provider = Provider(Bucket(600), Bucket(60_000))
    run(provider, [RateLimiter(jitter=Random(0))], jobs, until_s=END_S + 30)

    assert provider.refused == []
    assert all(job.sent_s == job.at_s for job in jobs)


def test_interactive_requests_are_not_delayed_by_background() -> None:
    flood = steady(20, END_S, 100, level="background", seed=1)
    waited_for = steady(1, END_S, 100, seed=2)
    provider = Provider(Bucket(600), Bucket(60_000))
    jobs = sorted(flood + waited_for, key=lambda job: job.at_s)
    run(provider, [RateLimiter(jitter=Random(0))], jobs, until_s=END_S)

    assert len(provider.refused) <= 5
    assert all(job.sent_s is not None and job.sent_s == job.at_s for job in waited_for if job.at_s < END_S - 1)
