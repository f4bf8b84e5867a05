"""What a fast path needs of openai or its HTTP client is asked once, and what is missing is said once."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastlane.decode import probes as _seams
from fastlane.decode.probes import holds

SEAM = "openai.Nothing"


@pytest.fixture(autouse=True)
def nothing_asked_yet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_seams, "_found", {})
    caplog.set_level(logging.WARNING, logger="fastlane")


def test_a_seam_that_is_not_is_one_warning_that_names_it_and_what_it_means(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        holds(SEAM, lambda: False)
    (record,) = caplog.records

    assert (record.name, record.levelno) == ("fastlane", logging.WARNING)
    assert record.getMessage().startswith(f"{SEAM} is not what this version of fastlane expects: ")
    assert "the stock client's own path" in record.getMessage()


def test_a_check_that_fails_counts_as_no_and_the_warning_says_how_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[None] = []

    def check() -> bool:
        asked.append(None)
        raise AttributeError("the name of something private")

    assert [holds(SEAM, check) for _ in range(3)] == [False] * 3
    assert len(asked) == 1
    (record,) = caplog.records
    assert "(AttributeError)" in record.getMessage()


def test_an_interrupt_amid_a_check_decides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        holds(SEAM, interrupted)

    assert holds(SEAM, lambda: True) is True
    assert caplog.records == []


def test_each_seam_stands_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    assert holds("openai.One", lambda: True) is True
    assert holds("openai.Two", lambda: False) is False
    assert holds("openai.Three", lambda: False) is False

    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["openai.Two", "openai.Three"]


@pytest.mark.parametrize("is_so", [True, False])
def test_threads_that_ask_at_once_hear_the_same(is_so: bool) -> None:
    together = threading.Barrier(8)

    def ask(_: int) -> bool:
        together.wait(30)
        return holds(SEAM, lambda: is_so)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [is_so] * 8
    assert _seams._found == {SEAM: is_so}
