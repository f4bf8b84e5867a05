"""Plays that share what they learn: each pair stands for two processes with one server."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from fastlane._clock import now_ns
from fastlane.knowledge.redis import Redis
from fastlane.plays.rate_limits.bucket import RequestCost
from fastlane.plays.rate_limits.limiter import RateLimiter
from fastlane.plays.rate_limits.queue import RateLimitQueue, RateLimitTicket
from scripts.servers import RedisServer
from tests.waiting import until

NS = 1_000_000_000


@pytest.fixture(autouse=True)
def nothing_is_kept(redis_server: RedisServer) -> None:
    gc.collect()  # what earlier tests have shared through the same server
    redis_server.ask("FLUSHALL")


def limit_queues(server: RedisServer, *, keys: tuple[str, str] = ("k", "k")) -> list[RateLimitQueue]:
    queues = [RateLimitQueue(limiter=RateLimiter(jitter=Random(0))) for _ in keys]
    for queue, key in zip(queues, keys, strict=True):
        queue.share(Redis(server.url), key)
    return queues


def ask(queue: RateLimitQueue, status: int, headers: Mapping[str, str]) -> None:
    ticket = RateLimitTicket(queue, 0, RequestCost(tokens=10), STATED)
    ticket.start(bool)
    if status:
        queue.answered(ticket, status, headers)


def wait_s(queue: RateLimitQueue) -> float:
    with queue.lock:
        now = now_ns()
        return (queue.limiter.ready_ns(now, RequestCost(tokens=10), stated=STATED) - now) / NS


STATED: Any = (("requests", 60.0),)


def test_rate_limit_spent_by_one_process_counts_for_the_other(redis_server: RedisServer) -> None:
    one, other = limit_queues(redis_server)
    for _ in range(3):
        wait_s(other)  # both state the limit
        ask(one, 0, {})

    until(lambda: wait_s(other) > 0)


def test_rate_limits_rest_is_shared_until_a_response(redis_server: RedisServer) -> None:
    one, other = limit_queues(redis_server)
    ticket = RateLimitTicket(other, 0, RequestCost())
    ticket.start(bool)
    ask(one, 429, {"retry-after": "600"})

    until(lambda: wait_s(other) > 50)
    assert wait_s(other) <= 60.5
    with other.lock:
        later = other.limiter.spend(now_ns(), RequestCost())
        other.limiter.answered(now_ns(), later, 200, {})
    assert wait_s(other) < 5
    assert other._redis is not None
    other._redis.exchange()  # reads it once more
    assert wait_s(other) < 5


def test_rate_limits_of_other_models_and_accounts_are_their_own(redis_server: RedisServer) -> None:
    one, other = limit_queues(redis_server, keys=("a", "b"))
    third, _ = limit_queues(redis_server, keys=("a", "a"))
    ask(one, 429, {"retry-after": "600"})

    until(lambda: wait_s(third) > 50)
    assert wait_s(other) == 0
