"""FASTLANE_LOG."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fastlane import ConfigurationError, Connection, OpenAI
from fastlane.engine import flow_log
from tests.call_peer import JSON, CallPeer, Reply, ours
from tests.waiting import SYNC, Form

SECRET = "a secret in the prompt"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Put the loggers' levels back."""
    loggers = (logging.getLogger("fastlane"), flow_log.log)
    before = [(one, one.level) for one in loggers]
    yield
    for one, level in before:
        one.setLevel(level)


def ask(peer: CallPeer, form: Form) -> None:
    arguments: Any = {"model": "m", "messages": [{"role": "user", "content": SECRET}], "extra_query": {"key": "hidden"}}
    peer.replies[:] = [Reply(0), Reply(500, (JSON, ("retry-after-ms", "1")), b'{"error": {"message": "secretly"}}')]
    with ours(peer, form, max_retries=2) as client:
        client.chat.completions.create(**arguments)


def test_debug_logs_each_effect_and_no_prompt_key_or_query(
    one_peer: CallPeer, form: Form, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FASTLANE_LOG", "debug")

    ask(one_peer, form)

    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    sends = [at for at, line in enumerate(logged) if "Send" in line]
    results = [logged[at + 1].strip().partition(" in ")[0] for at in sends]
    assert results == ["-> RemoteProtocolError", "-> 500", "-> 200"]
    assert any("Sleep 0.001 s, for compat.responses" in line for line in logged)
    assert all("engine.flow.send_attempt" in line for line in logged if "Send" in line)
    sent, paused = (next(line for line in logged if word in line) for word in ("Send", "Sleep"))
    assert len(sent) - len(sent.lstrip()) > 2
    assert len(paused) - len(paused.lstrip()) > 2
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("fastlane")]
    for secret in (SECRET, "sk-", "hidden", "secretly", "Rhine"):
        assert not [line for line in lines if secret in line]


def test_info_level_logs_plays_but_no_flow(
    one_peer: CallPeer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FASTLANE_LOG", "info")

    ask(one_peer, SYNC)

    logged = [record.getMessage() for record in caplog.records if record.name == "fastlane.flow"]
    assert len(logged) == 1
    assert "play: Connection" in logged[0]


def test_flow_log_is_off_without_the_variable(one_peer: CallPeer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    ask(one_peer, SYNC)

    assert not [record for record in caplog.records if record.name == "fastlane.flow"]


def test_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_LOG", "loud")

    with pytest.raises(ConfigurationError, match="FASTLANE_LOG: expected info or debug, got 'loud'"):
        OpenAI(api_key="sk-test", only_plays=[Connection()])
