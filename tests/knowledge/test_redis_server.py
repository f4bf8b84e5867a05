"""The server that tests run on says why it cannot be had, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import distribution, redis_server as script
from scripts.distribution import UnavailableError
from scripts.redis_server import RedisServer


def test_where_nothing_can_be_installed_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UnavailableError, match="there is no apt-get"), RedisServer():
        pass


def test_what_apt_get_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apt-get"
    program.write_text("#!/bin/sh\necho 'E: no such luck' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(distribution, "_POLICY", tmp_path / "policy")

    with pytest.raises(UnavailableError, match="apt-get could not install one: E: no such luck"):
        script.program()
    assert not (tmp_path / "policy").exists()


def test_only_root_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apt-get"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)

    with pytest.raises(UnavailableError, match="only root can"):
        script.program()


def test_while_a_package_is_installed_no_service_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "policy"
    monkeypatch.setattr(distribution, "_POLICY", policy)

    with distribution.no_services():
        assert subprocess.run([policy], check=False).returncode == 101
    assert not policy.exists()


def test_a_server_that_is_stopped_leaves_nothing(redis_of_its_own: RedisServer) -> None:
    folder = redis_of_its_own.directory
    assert folder.is_dir()

    redis_of_its_own.stop()

    assert not folder.exists()


def test_a_command_finds_its_address_and_its_exit_code_is_passed_on(redis_server: RedisServer) -> None:
    code = "import os, sys; sys.exit(7 if os.environ['REDIS_URL'].startswith('redis://127.0.0.1:') else 1)"

    assert script.main([sys.executable, "-c", code]) == 7
