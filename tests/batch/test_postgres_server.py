"""The server that tests run on says why it cannot be had, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import postgres_server as script
from scripts.distribution import UnavailableError
from scripts.postgres_server import PostgresServer


def test_where_nothing_can_be_installed_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(script, "_DIRECTORIES", (f"{tmp_path}/*",))

    with pytest.raises(UnavailableError, match="there is no apt-get"), PostgresServer():
        pass


def test_where_it_may_run_as_nobody_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(script, "_USERS", ("no-such-user",))

    with pytest.raises(UnavailableError, match="refuses to run as root"):
        script._user()


def test_a_server_that_is_stopped_leaves_nothing(postgres_of_its_own: PostgresServer) -> None:
    folder = postgres_of_its_own.directory
    assert folder.is_dir()

    postgres_of_its_own.stop()

    assert not folder.exists()
