"""A real Redis server for the tests of stores, and what they do with stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fastlane.knowledge.stores._shared import SharedStore
from fastlane.knowledge.stores._store import store_of
from scripts.redis_server import Certificates, RedisServer, RedisUnavailableError

PASSWORD = "hunter/2?#@ nobody"


def _running(server: RedisServer) -> Iterator[RedisServer]:
    pytest.importorskip("redis")
    try:
        server.start()
    except RedisUnavailableError as error:
        server.stop()
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    yield from _running(RedisServer())


@pytest.fixture
def redis_of_its_own() -> Iterator[RedisServer]:
    """A server that the test may kill."""
    yield from _running(RedisServer())


@pytest.fixture(scope="session")
def guarded_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server with TLS and a password."""
    trustme = pytest.importorskip("trustme")
    folder: Path = tmp_path_factory.mktemp("certificates")
    files = Certificates(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    authority = trustme.CA()
    shown = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(files.authority))
    shown.cert_chain_pems[0].write_to_path(str(files.certificate))
    shown.private_key_pem.write_to_path(str(files.key))
    yield from _running(RedisServer(password=PASSWORD, tls=files))


class Replica:
    """A store, and what it has heard."""

    def __init__(self, store: SharedStore, *, listens: bool = True) -> None:
        self.store = store
        self.heard: list[tuple[Mapping[str, Any], float]] = []
        if listens:
            store.subscribe(self._hear)

    def _hear(self, event: Mapping[str, Any], age_s: float) -> None:
        self.heard.append((event, age_s))

    @property
    def numbers(self) -> list[int]:
        return [event["number"] for event, _ in self.heard]


Join = Callable[..., Replica]


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid4().hex}"


@pytest.fixture
def join(namespace: str) -> Iterator[Join]:
    """Makes replicas of one namespace, which are closed after the test."""
    replicas: list[Replica] = []

    def join(url: str, *, listens: bool = True, **settings: Any) -> Replica:
        store = store_of(url, namespace=namespace, **settings)
        assert isinstance(store, SharedStore)
        replicas.append(Replica(store, listens=listens))
        return replicas[-1]

    yield join
    for replica in replicas:
        replica.store.close()


def eventually(condition: Callable[[], bool], limit_s: float = 30.0) -> bool:
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def store_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "fastlane store"}
