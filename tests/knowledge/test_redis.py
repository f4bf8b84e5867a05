"""Counters and values shared through real servers, and without any."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from fastlane import RateLimits
from fastlane.errors import ConfigurationError, MissingExtraError
from fastlane.knowledge import redis as module
from fastlane.knowledge.redis import Redis, client_of
from scripts.servers import RedisCluster, RedisServer
from tests.knowledge.forks import in_child
from tests.programs import running
from tests.waiting import until

SECRET = "hunter2"
AWAY = f"redis://user:{SECRET}@127.0.0.1:1/0"


class Reader:
    """What one process has read."""

    def __init__(self, redis: Redis, key: str) -> None:
        self.redis = redis
        self.counts: dict[str, float] = {}
        self.pauses: list[float] = []
        redis.watch(key, counts=self.read_counts, pause=self.read_pause)

    def read_counts(self, key: str, counts: Mapping[str, float]) -> None:
        for field, count in counts.items():
            self.counts[field] = self.counts.get(field, 0.0) + count

    def read_pause(self, key: str, left_s: float, now_ns: int) -> None:
        self.pauses.append(left_s)


@pytest.fixture
def name() -> str:
    return f"test:{uuid4().hex}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    pytest.importorskip("redis")
    yield from running(RedisCluster())


@pytest.fixture(params=["plain", "unix", "tls", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue({"tls": "guarded_redis", "cluster": "cluster"}.get(request.param, "redis_server"))
    found: str = server.unix_url if request.param == "unix" else server.url
    return found


def test_redis_shares_counters_and_pauses_on_every_server(url: str, name: str) -> None:
    one, other = (Reader(Redis(url), name) for _ in range(2))
    one.redis.add(name, {"a": 2, "b": 0.5})
    other.redis.add(name, {"a": 3})
    one.redis.pause(name, 100)

    until(lambda: one.counts == {"a": 3} and other.counts == {"a": 2, "b": 0.5})
    until(lambda: len(other.pauses) == 1)
    assert 0 < other.pauses[0] <= 100
    one.redis.add(name, {"a": 1})
    until(lambda: other.counts == {"a": 3, "b": 0.5})
    assert one.counts == {"a": 3}
    assert (len(one.pauses), len(other.pauses)) == (0, 1)


def test_redis_late_reader_gets_this_minute_and_the_last(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Redis(redis_server.url)
    for minutes in (-2, -1, 0):
        now = time.time_ns() + minutes * 60 * 10**9
        monkeypatch.setattr(module, "wall_ns", lambda: now)  # noqa: B023 - used before the next
        first.add(name, {str(minutes): 1})
        first.exchange()
    late = Reader(Redis(redis_server.url), name)

    until(lambda: late.counts == {"-1": 1, "0": 1})


def test_unreachable_redis_is_logged_once_and_never_blocks(name: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("redis")
    redis = Redis(AWAY)
    reader = Reader(redis, name)
    began_s = time.monotonic()
    for _ in range(2_000):
        redis.add(name, {"a": 1})
    took_s = time.monotonic() - began_s

    until(lambda: redis._failures > 3)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["Redis at redis://127.0.0.1:1 is unreachable; using local state. (ConnectionError)"]
    assert SECRET not in caplog.text + repr(redis)
    assert not reader.counts
    assert took_s < 2


def test_redis_that_comes_back_is_used_again(
    redis_of_its_own: RedisServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (Reader(Redis(redis_of_its_own.url), name) for _ in range(2))
    one.redis.add(name, {"a": 5})
    until(lambda: other.counts == {"a": 5})
    redis_of_its_own.kill()
    until(lambda: one.redis._failures > 0 and other.redis._failures > 0)
    with caplog.at_level(logging.INFO, logger="fastlane"):
        redis_of_its_own.start()
        until(lambda: one.redis._failures == 0)
        one.redis.add(name, {"a": 3})

        # It has lost its data, and counts from 0.
        until(lambda: other.counts == {"a": 8})
    assert "is reachable again." in caplog.text


class Failing:
    def read(self, key: str, counts: Mapping[str, float]) -> None:
        raise ValueError(SECRET)


def test_redis_receiver_that_raises_does_not_keep_it_from_others(
    redis_server: RedisServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    redis, failing = Redis(redis_server.url), Failing()
    redis.watch(name, counts=failing.read)
    reader = Reader(redis, name)
    other = Redis(redis_server.url)
    other.add(name, {"a": 1})

    until(lambda: reader.counts == {"a": 1})
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


def test_redis_without_receivers_stops_polling_and_is_freed_and_disconnected(cluster: RedisCluster, name: str) -> None:
    def is_connected() -> bool:
        return any(name in server.ask("CLIENT", "LIST") for server in cluster.servers)

    redis = Redis(f"{cluster.url}?client_name={name}")
    reader, gone = Reader(redis, "nothing"), weakref.ref(redis)
    redis.exchange()
    client = redis._client  # kept until the end, so that no garbage collection closes its connections
    assert is_connected()
    del reader
    gc.collect()
    until(lambda: not redis._is_planned)  # noqa: F821 - it is deleted after this
    del redis

    until(lambda: gc.collect() >= 0 and gone() is None)
    until(lambda: client and not is_connected())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_redis_child_reconnects_and_adds_only_its_counts(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, other = (Reader(Redis(redis_server.url), name) for _ in range(2))
    parent.redis.add(name, {"parent": 1})
    until(lambda: other.counts == {"parent": 1})
    monkeypatch.setattr(module, "_EVERY_S", 0.5)
    parent.redis.exchange()
    time.sleep(0.1)
    parent.redis.add(name, {"late": 1})

    def child() -> bool:
        parent.redis.add(name, {"child": 1})
        parent.redis.exchange()
        return True

    assert in_child(child)
    until(lambda: other.counts == {"parent": 1, "late": 1, "child": 1})
    until(lambda: parent.counts == {"child": 1})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_waits_until_the_library_is_not_at_work(
    redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("redis")
    is_at_work, make_connection = threading.Event(), library.ConnectionPool.make_connection

    def slow(pool: Any) -> Any:
        """Hold the pool's lock for a while."""
        is_at_work.set()
        time.sleep(0.3)
        return make_connection(pool)

    parent, other = Redis(redis_server.url), Reader(Redis(redis_server.url), name)
    monkeypatch.setattr(library.ConnectionPool, "make_connection", slow)
    parent.add(name, {"parent": 1})
    assert is_at_work.wait(60)

    def child() -> bool:
        parent.add(name, {"child": 1})
        parent.exchange()
        return True

    assert in_child(child)
    until(lambda: other.counts == {"parent": 1, "child": 1})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://", "redis://localhost:6379"),
        (f"redis://:{SECRET}@cache.internal:7000/3", "redis://cache.internal:7000"),
        (f"redis://user:{SECRET}@[::1]:7000", "redis://::1:7000"),
        (f"redis://cache.internal?password={SECRET}", "redis://cache.internal:6379"),
        (f"rediss://user:{SECRET}@cache.internal:6380/0", "rediss://cache.internal:6380"),
        (f"unix://:{SECRET}@/run/redis.sock?db=2", "unix:///run/redis.sock"),
        (f"redis+cluster://u:{SECRET}@cache.internal:7000", "redis+cluster://cache.internal:7000"),
    ],
)
def test_redis_address_is_shown_without_its_password(url: str, shown: str) -> None:
    pytest.importorskip("redis")

    assert client_of(url)[1] == f"Redis at {shown}"


@pytest.mark.parametrize(
    "url",
    [
        object(),
        f"redis://:{SECRET}/5@cache.internal",
        f"redis://:1?{SECRET}@cache.internal",
        f"redis://:1#{SECRET}@cache.internal",
        f"redis://cache.internal:{SECRET}",
        f"redis://cache.internal?{SECRET}={SECRET}",
        f"redis://cache.internal?protocol={SECRET}&nonsense=1",
        f"redis://[{SECRET}",
        f"REDIS //{SECRET}",
        SECRET,
        "unix://",
    ],
)
def test_invalid_redis_url_is_refused_without_secrets(url: Any) -> None:
    pytest.importorskip("redis")
    with pytest.raises(ConfigurationError, match="redis://") as caught:
        RateLimits(store=url)

    error: BaseException | None = caught.value
    while error is not None:  # What it came from is shown by some loggers.
        assert SECRET not in f"{error}{error!r}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("url", "is_checked"),
    [
        ("rediss://cache.internal", True),
        ("rediss://cache.internal?ssl_check_hostname=false", False),
        ("rediss://cache.internal?ssl_cert_reqs=none", False),
    ],
)
def test_redis_certificate_is_checked_unless_disabled(url: str, is_checked: bool) -> None:
    pytest.importorskip("redis")

    assert client_of(url)[0]().connection_pool.make_connection().check_hostname is is_checked


def test_redis_package_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    with pytest.raises(MissingExtraError, match=r"fastlane-llm\[redis\]"):
        RateLimits(store="redis://localhost")
