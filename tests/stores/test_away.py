"""A line that does not work is tried again with growing pauses, and said once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence

import pytest

from fastlane.knowledge.stores import _shared
from fastlane.knowledge.stores._batches import Batch
from fastlane.knowledge.stores._shared import SharedStore

FIRST_S, MOST_S = 0.01, 0.04


class Line:
    """A line that fails some times, works for once, and fails again."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.at_s: list[float] = []
        """When it was tried."""
        self.hung_up = 0
        self.enough = threading.Event()

    def exchange(self, batches: Sequence[bytes]) -> Iterable[tuple[Batch | None, float]]:
        self.at_s.append(time.monotonic())
        if len(self.at_s) >= 2 * self.failures:
            self.enough.set()
        if len(self.at_s) == self.failures + 1:
            return ()
        raise ConnectionError("with a password in it")

    def say(self, batches: Sequence[bytes]) -> None:
        raise AssertionError("there is nothing to say, and nobody to say it to")

    def hang_up(self) -> None:
        self.hung_up += 1


def test_it_is_said_once_that_it_is_away_and_once_that_it_is_back_and_tried_less_and_less(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_shared, "_FIRST_PAUSE_S", FIRST_S)
    monkeypatch.setattr(_shared, "_MOST_PAUSE_S", MOST_S)
    monkeypatch.setattr(_shared, "_EVERY_S", FIRST_S)
    line = Line(failures=5)
    with caplog.at_level(logging.INFO, logger="fastlane"):
        store = SharedStore(lambda: line, name="redis://here")
        store.start()
        assert line.enough.wait(30)
        store.close()

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert said[0].startswith("the shared store redis://here is away (ConnectionError)")
    assert said[1] == "the shared store redis://here is back"
    assert said[2] == said[0]
    assert "password" not in caplog.text
    pauses = [after - before for before, after in zip(line.at_s, line.at_s[1:], strict=False)]
    # Each is up to half as long as it could be, so that not all processes come at once.
    least = [0.5 * min(MOST_S, FIRST_S * 2**failures) for failures in range(5)]
    assert all(pause >= shortest for pause, shortest in zip(pauses, least, strict=False))
    assert line.hung_up >= 9


def test_who_closes_it_waits_for_nothing_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared, "_LAST_WORDS_S", 20.0)
    asked, go_on = threading.Event(), threading.Event()

    class Stuck(Line):
        def exchange(self, batches: Sequence[bytes]) -> Iterable[tuple[Batch | None, float]]:
            asked.set()
            go_on.wait(30)
            raise ConnectionError

    store = SharedStore(lambda: Stuck(0), name="redis://here")
    store.start()
    assert asked.wait(30)
    began_s = time.monotonic()
    store.close()

    assert time.monotonic() - began_s < 10
    go_on.set()


def test_of_two_entries_of_one_millisecond_the_earlier_is_before_the_later() -> None:
    pytest.importorskip("redis")
    from fastlane.knowledge.stores._redis import _before

    assert _before(b"1700000000000-7") == "1700000000000-6"
    assert _before(b"1700000000000-0") == "1699999999999"  # with whatever number


@pytest.mark.parametrize(
    ("url", "is_checked"),
    [
        ("rediss://cache.internal", True),
        ("rediss://cache.internal?ssl_check_hostname=false", False),
        ("rediss://cache.internal?ssl_cert_reqs=none", False),
    ],
)
def test_whose_certificate_it_is_is_checked_unless_the_address_says_otherwise(url: str, is_checked: bool) -> None:
    pytest.importorskip("redis")
    from fastlane.knowledge.stores._redis import RedisAddress

    assert RedisAddress(url).connection().check_hostname is is_checked
