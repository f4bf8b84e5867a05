"""Real Redis servers for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import Certificates, RedisServer
from tests.programs import running

PASSWORD = "hunter/2?#@ secret"


def _running(**settings: Any) -> Iterator[RedisServer]:
    pytest.importorskip("redis")
    yield from running(RedisServer(**settings))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    yield from _running()


@pytest.fixture
def redis_of_its_own() -> Iterator[RedisServer]:
    """A server that the test may kill."""
    yield from _running()


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
    yield from _running(password=PASSWORD, tls=files)
