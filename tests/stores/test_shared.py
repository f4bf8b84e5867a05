"""Stores on a real server: everybody hears everybody else once, and nobody waits for a server that is in trouble."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import quote

import pytest
import redis

from fastlane.knowledge.stores import _shared
from fastlane.knowledge.stores._shared import SharedStore
from fastlane.knowledge.stores._store import store_of
from scripts.redis_server import RedisServer
from tests.stores.conftest import PASSWORD, Join, eventually, store_threads

# Forking beside threads is what is tested here; Python 3.12 and newer warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
TICKS_S = 0.15  # in which whatever comes twice has come twice
UNSENDABLE: dict[str, object] = {
    "a key that is a number": {1: 2},
    "an object": {"object": object()},
    "no event": 5,
    "too long": {"text": "x" * 5_000},
    "half a character": {"text": "\ud800"},
}


@contextlib.contextmanager
def user(server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(server.url)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(autouse=True)
def shorter_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared, "_EVERY_S", 0.02)
    monkeypatch.setattr(_shared, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(_shared, "_LOOK_S", 0.05)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_one_publishes_the_other_hears_in_order_with_its_age(redis_server: RedisServer, join: Join) -> None:
    one, other = join(redis_server.url), join(redis_server.unix_url)
    for number in range(100):
        one.store.publish({"number": number, "text": "ü", "list": [1.5, None]})

    assert eventually(lambda: len(other.heard) == 100)
    assert [event for event, _ in other.heard] == [
        {"number": number, "text": "ü", "list": [1.5, None]} for number in range(100)
    ]
    assert all(0 <= age_s < 30 for _, age_s in other.heard)
    assert one.heard == []
    assert one.store.state == other.store.state == "connected"
    assert one.store.traffic.sent == other.store.traffic.received == 100


def test_another_namespace_is_another_world(redis_server: RedisServer, join: Join, namespace: str) -> None:
    stranger = store_of(redis_server.url, namespace=f"{namespace}-2")
    stranger.publish({"number": 1})
    one, other = join(redis_server.url), join(redis_server.url)
    one.store.publish({"number": 2})

    assert eventually(lambda: other.numbers == [2])
    stranger.close()


def publish_and_listen(url: str, namespace: str, name: int, everybody: int, each: int, end: Connection) -> None:
    store = store_of(url, namespace=namespace)
    heard: list[tuple[int, int]] = []
    store.subscribe(lambda event, age_s: heard.append((event["name"], event["number"])))
    for number in range(each):
        store.publish({"name": name, "number": number})
        if number % 10 == 0:
            time.sleep(0.02)
    eventually(lambda: len(heard) >= (everybody - 1) * each)
    time.sleep(TICKS_S)
    end.send(heard)
    store.close()


def test_eight_replicas_hear_each_event_of_every_other_once(redis_server: RedisServer, namespace: str) -> None:
    each, context = 60, multiprocessing.get_context("fork")
    ends = [context.Pipe(duplex=False) for _ in range(8)]
    replicas: list[threading.Thread | multiprocessing.process.BaseProcess] = []
    for name, (_, end) in enumerate(ends):
        kind = context.Process if name < 5 else threading.Thread  # processes first: they are copies of this one
        replicas.append(kind(target=publish_and_listen, args=(redis_server.url, namespace, name, 8, each, end)))
        replicas[-1].start()

    for name, (end, _) in enumerate(ends):
        heard = end.recv()
        expected = [(other, number) for other in range(8) if other != name for number in range(each)]
        assert sorted(heard) == expected
    for replica in replicas:
        replica.join()


def test_a_replica_that_comes_later_hears_what_was_before(redis_server: RedisServer, join: Join) -> None:
    one = join(redis_server.url, listens=False)
    for number in range(1_000):
        one.store.publish({"number": number})
    assert eventually(lambda: one.store.traffic.sent == 1_000)
    time.sleep(0.1)

    late = join(redis_server.url)

    assert eventually(lambda: late.numbers == list(range(1_000)))
    assert all(0.1 <= age_s < 30 for _, age_s in late.heard)


def test_of_a_long_past_the_latest_events_are_kept_and_heard(
    redis_server: RedisServer, join: Join, namespace: str
) -> None:
    one = join(redis_server.url, listens=False, history=64)
    published = 0
    while one.store.traffic.sent < 4_000:  # some of which are dropped where this machine is slower than this loop
        for _ in range(500):
            one.store.publish({"number": published})
            published += 1
        assert eventually(lambda: not one.store._outbox.queue)
    one.store.close()

    late = join(redis_server.url, history=64)

    assert eventually(lambda: late.numbers[-1:] == [published - 1])
    assert 64 <= len(late.heard) < 64 + 32
    assert late.numbers == list(range(published - len(late.heard), published))
    with user(redis_server) as client:
        assert client.xlen(f"{namespace}:events") <= 64 + 100  # nodes of a stream go as a whole
        assert 80_000 < client.ttl(f"{namespace}:events") <= 86_400


def test_what_nobody_can_read_is_skipped(redis_server: RedisServer, join: Join, namespace: str) -> None:
    one, other = join(redis_server.url), join(redis_server.url)
    with user(redis_server) as client:
        key = f"{namespace}:events"
        client.xadd(key, {"something": "else"})
        for batch in (b"", b"\xff\xfe", b"[]", b'{"version":99,"sender":"x","first":0,"events":[[0,{"number":1}]]}'):
            client.xadd(key, {"batch": batch, "other": b"field"})
        client.xadd(key, {"batch": b'{"version":1,"sender":"x","first":0,"events":[[0,{"number":2}],7,[0,[]]]}'})
    one.store.publish({"number": 3})

    assert eventually(lambda: set(other.numbers) == {2, 3})
    assert other.store.traffic.unreadable == 5
    assert other.store.state == "connected"


def test_a_receiver_that_raises_misses_its_event_and_no_other(
    redis_server: RedisServer, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = join(redis_server.url), join(redis_server.url, listens=False)
    heard = []
    other.store.subscribe(lambda event, age_s: heard.append(10 // event["number"]))
    for number in (0, 1, 0, 2):
        one.store.publish({"number": number})

    assert eventually(lambda: heard == [10, 5])
    assert other.store.traffic.failed == 2
    assert [message for message in warnings(caplog) if "ZeroDivisionError" in message] == warnings(caplog)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("event", UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_cannot_be_sent_is_refused_and_counted(event: object, redis_server: RedisServer, join: Join) -> None:
    one = join(redis_server.url)
    one.store.publish(event)  # type: ignore[arg-type]

    assert one.store.traffic.refused == 1
    assert not one.store._outbox.queue


def test_a_server_that_is_killed_is_warned_of_once_and_found_again(
    redis_of_its_own: RedisServer, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one, other = join(redis_of_its_own.url), join(redis_of_its_own.url)
    one.store.publish({"number": 1})
    assert eventually(lambda: other.numbers == [1])

    redis_of_its_own.kill()
    assert eventually(lambda: len(warnings(caplog)) == 2)  # one for each store
    assert one.store.state == other.store.state == "away"
    one.store.publish({"number": 2})
    redis_of_its_own.start()

    assert eventually(lambda: other.numbers == [1, 2])
    other.store.publish({"number": 3})
    assert eventually(lambda: one.numbers == [3])
    assert len(warnings(caplog)) == 2
    assert sum("is back" in record.getMessage() for record in caplog.records) == 2


def test_an_answer_that_is_lost_makes_nobody_hear_an_event_twice(redis_server: RedisServer, join: Join) -> None:
    one, other = join(redis_server.url), join(redis_server.url)
    assert eventually(lambda: one.store.state == other.store.state == "connected")
    with user(redis_server) as client:
        for number in range(300):
            one.store.publish({"number": number})
            if number % 15 == 0:  # by the server, wherever in a round trip the two are
                client.client_kill_filter(_type="normal", skipme=True)
            time.sleep(0.002)

    assert eventually(lambda: len(other.numbers) >= 300)
    time.sleep(TICKS_S)
    assert other.numbers == list(range(300))


def test_a_server_without_memory_of_what_was_is_listened_to_from_its_beginning(
    redis_server: RedisServer, join: Join, namespace: str
) -> None:
    one, other = join(redis_server.url), join(redis_server.url)
    one.store.publish({"number": 1})
    assert eventually(lambda: other.numbers == [1])

    with user(redis_server) as client:
        client.delete(f"{namespace}:events")
    one.store.publish({"number": 2})

    assert eventually(lambda: other.numbers == [1, 2])


def test_a_server_that_refuses_is_away_until_it_does_not(
    redis_server: RedisServer, join: Join, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with user(redis_server) as client:
        client.set(f"{namespace}:events", "somebody else's")
        one, other = join(redis_server.url), join(redis_server.url)
        one.store.publish({"number": 1})
        assert eventually(lambda: len(warnings(caplog)) == 2)
        assert one.store.state == "away"
        client.delete(f"{namespace}:events")

    assert eventually(lambda: other.numbers == [1])


def test_a_server_with_tls_and_a_password_is_spoken_to(guarded_redis: RedisServer, join: Join) -> None:
    one, other = join(guarded_redis.url), join(guarded_redis.url)
    one.store.publish({"number": 1})

    assert eventually(lambda: other.numbers == [1])


@pytest.mark.parametrize("what", ["password", "certificate"])
def test_what_is_wrong_with_the_way_there_is_warned_of_without_the_password(
    what: str, guarded_redis: RedisServer, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    right = guarded_redis.url
    wrong = {"password": right.replace(":hunter", ":wrong-hunter"), "certificate": right.partition("?")[0]}
    one = join(wrong[what])
    assert eventually(lambda: len(warnings(caplog)) == 1)

    expected = {"password": "AuthenticationError", "certificate": "ConnectionError"}
    where, error = f"rediss://127.0.0.1:{guarded_redis.port}", expected[what]
    consequence = "this process goes on with what it knows by itself, and tries again"
    assert warnings(caplog) == [f"the shared store {where} is away ({error}): {consequence}"]
    assert one.store.state == "away"
    assert not any(part in caplog.text for part in ("hunter", PASSWORD, quote(PASSWORD, safe="")))


def test_nobody_waits_for_a_server_that_answers_nothing(join: Join, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = join(f"redis://127.0.0.1:{server.getsockname()[1]}?socket_timeout=0.3")
        began = time.monotonic()
        for number in range(10_000):
            one.store.publish({"number": number})
        one.store.close()

        assert time.monotonic() - began < 2
        assert 10_000 - 2 * 4_096 <= one.store.traffic.dropped <= 10_000 - 4_096  # as many may be on their way


def test_a_server_that_answers_nothing_is_away(join: Join, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = join(f"redis://127.0.0.1:{server.getsockname()[1]}?socket_timeout=0.1")

        assert eventually(lambda: len(warnings(caplog)) == 1)
        assert "is away (TimeoutError)" in warnings(caplog)[0]
        assert one.store.state == "away"


def test_from_a_slow_server_everything_comes_later(
    redis_server: RedisServer, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = join(redis_server.url), join(redis_server.url)
    one.store.publish({"number": 1})
    assert eventually(lambda: other.numbers == [1])
    with user(redis_server) as client:
        client.client_pause(300)
    one.store.publish({"number": 2})

    assert eventually(lambda: other.numbers == [1, 2])
    assert warnings(caplog) == []


def test_what_is_published_last_is_sent_before_the_store_is_closed(redis_server: RedisServer, join: Join) -> None:
    one, other = join(redis_server.url), join(redis_server.url)
    assert eventually(lambda: one.store.state == "connected")
    one.store.publish({"number": 1})
    one.store.close()
    one.store.close()
    one.store.publish({"number": 2})
    one.store.start()

    assert eventually(lambda: other.numbers == [1])
    assert one.store.state == "closed"
    time.sleep(TICKS_S)
    assert other.numbers == [1]


def test_the_thread_of_a_store_that_nobody_has_any_more_ends(redis_server: RedisServer, namespace: str) -> None:
    def used_and_left() -> tuple[weakref.ref[SharedStore], set[threading.Thread]]:
        before = store_threads()
        store = store_of(redis_server.url, namespace=namespace)
        assert isinstance(store, SharedStore)
        store.subscribe(lambda event, age_s: store.publish(event))  # which makes it a cycle
        assert eventually(lambda: store.state == "connected")
        return weakref.ref(store), store_threads() - before

    store, threads = used_and_left()
    assert len(threads) == 1

    assert eventually(lambda: gc.collect() >= 0 and store() is None)
    assert eventually(lambda: not threads & store_threads())


def test_a_child_process_goes_on_by_itself_and_hears_nothing_again(redis_server: RedisServer, join: Join) -> None:
    parent, other = join(redis_server.url), join(redis_server.url)
    other.store.publish({"number": 1})
    parent.store.publish({"number": 2})
    assert eventually(lambda: parent.numbers == [1] and other.numbers == [2])
    parent.store.publish({"number": 3})  # which is in the queue when the child begins

    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            began_as = parent.store.state
            parent.store.publish({"number": 4})
            eventually(lambda: len(parent.heard) >= 2)
            time.sleep(TICKS_S)
            os.write(writing, json.dumps([began_as, parent.numbers]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    assert eventually(lambda: 4 in parent.numbers)
    parent.store.publish({"number": 5})
    with os.fdopen(reading) as said:
        state_at_first, heard_by_child = json.load(said)
    os.waitpid(child, 0)

    assert parent.numbers == [1, 4]
    assert sorted(other.numbers) == [2, 3, 4, 5]
    assert heard_by_child == [1, 5]
    assert state_at_first == "away"


def test_a_child_process_never_begins_with_a_lock_that_a_receiver_held(redis_server: RedisServer, join: Join) -> None:
    one, other = join(redis_server.url), join(redis_server.url, listens=False)
    learning = threading.Lock()

    def learn(event: Mapping[str, Any], age_s: float) -> None:
        with learning:
            time.sleep(0.001)

    other.store.subscribe(learn)
    codes = []
    for _ in range(8):
        for number in range(40):
            one.store.publish({"number": number})
        received = other.store.traffic.received
        assert eventually(lambda: other.store.traffic.received > received)  # noqa: B023 - it is over before the next
        if (child := os.fork()) == 0:
            try:
                taken = learning.acquire(timeout=3)
            finally:
                os._exit(0 if taken else 1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    assert codes == [0] * 8


AT_EXIT = """
import sys
from fastlane.knowledge.stores._store import store_of

store = store_of(sys.argv[1], namespace=sys.argv[2])
store.subscribe(print)
while store.state != "connected":
    pass
store.publish({"number": 1})
away = store_of("redis://127.0.0.1:1")
away.publish({"number": 2})
"""


def test_a_process_ends_without_noise_and_what_it_has_published_is_sent(
    redis_server: RedisServer, join: Join, namespace: str
) -> None:
    other = join(redis_server.url)

    command = [sys.executable, "-X", "dev", "-c", AT_EXIT, redis_server.url, namespace]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert [line for line in ended.stderr.splitlines() if "redis://127.0.0.1:1 is away" not in line] == []
    assert ended.stdout == ""
    assert eventually(lambda: other.numbers == [1])
