from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from fastlane import _clock
from fastlane.plays.request_encoding import _verdicts
from fastlane.plays.request_encoding._verdicts import Key, Verdicts
from tests.knowledge.forks import in_child

KEY = Key("https://api.example.com:443", "/chat/completions", "json+gzip")
OTHER = Key("https://api.example.com:443", "/completions", "json+gzip")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed since now, to be set."""
    passed = [0.0]
    monkeypatch.setattr(_verdicts, "wall_ns", lambda: _clock.wall_ns() + round(passed[0] * 1e9))
    return passed


def test_nothing_is_known_at_first() -> None:
    assert Verdicts().get(KEY) is None


@pytest.mark.parametrize(
    ("outcome", "accepts", "lifetime_s"),
    [("accepted", True, 7 * 86_400), ("refused", False, 86_400), ("undecided", False, 86_400), ("broken", False, 600)],
)
def test_a_verdict_holds_for_one_form_at_one_endpoint_and_for_a_while(
    outcome: str, accepts: bool, lifetime_s: float, later: list[float]
) -> None:
    verdicts = Verdicts()

    verdicts.put(KEY, outcome, "Because.")

    verdict = verdicts.get(KEY)
    assert verdict is not None
    assert (verdict.accepts, verdict.reason) == (accepts, "Because.")
    assert verdicts.get(OTHER) is None
    later[0] = lifetime_s - 5
    assert verdicts.get(KEY) == verdict
    later[0] = lifetime_s + 5
    assert verdicts.get(KEY) is None


def test_a_verdict_of_a_clock_that_was_ahead_does_not_hold(later: list[float]) -> None:
    verdicts = Verdicts()
    verdicts.put(KEY, "accepted", "Because.")

    later[0] = -3_600

    assert verdicts.get(KEY) is None


def test_one_failure_may_have_any_reason_and_two_in_a_row_have_one() -> None:
    verdicts = Verdicts()

    verdicts.failed(KEY, "It met 500.", weight=1)
    assert verdicts.get(KEY) is None
    verdicts.answered(KEY)
    verdicts.failed(KEY, "It met 500.", weight=1)
    assert verdicts.get(KEY) is None
    verdicts.failed(KEY, "It met 500.", weight=1)

    verdict = verdicts.get(KEY)
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == ("broken", "It met 500.")


def test_failures_before_a_verdict_do_not_count_after_it() -> None:
    verdicts = Verdicts()
    verdicts.failed(KEY, "It met 500.", weight=1)
    verdicts.put(KEY, "accepted", "It was quoted.")

    verdicts.failed(KEY, "It met 500.", weight=1)

    verdict = verdicts.get(KEY)
    assert verdict is not None
    assert verdict.accepts


def test_only_one_asks_at_a_time() -> None:
    verdicts = Verdicts()
    barrier = threading.Barrier(8)
    began: list[bool] = []

    def begin() -> None:
        barrier.wait()
        began.append(verdicts.begin_asking(KEY))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(began) == [False] * 7 + [True]
    assert verdicts.begin_asking(OTHER)
    verdicts.end_asking(KEY)
    assert verdicts.begin_asking(KEY)


def test_a_file_carries_verdicts_to_another_process(tmp_path: Path) -> None:
    file = str(tmp_path / "deep" / "verdicts.json")
    mine, theirs = Verdicts(), Verdicts()

    mine.put(KEY, "accepted", "It was quoted.", file)

    assert theirs.get(KEY) is None
    assert theirs.get(KEY, file) == mine.get(KEY)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["verdicts.json"]


def test_two_processes_do_not_lose_each_others_verdicts(tmp_path: Path, later: list[float]) -> None:
    file = str(tmp_path / "verdicts.json")
    mine, theirs = Verdicts(), Verdicts()
    mine.put(KEY, "accepted", "It was quoted.", file)
    theirs.put(OTHER, "refused", "It was not.", file)
    later[0] = 10
    theirs.put(KEY, "refused", "No longer.", file)

    third = Verdicts()

    assert third.get(OTHER, file) == theirs.get(OTHER)
    assert third.get(KEY, file) == theirs.get(KEY)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 1, "verdicts": [{}]}',
        '{"version": 1, "verdicts": 3}',
        "\udcff",
    ],
)
def test_a_file_that_cannot_be_read_is_written_anew(
    content: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "verdicts.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    verdicts = Verdicts()

    assert verdicts.get(KEY, str(file)) is None
    verdicts.put(KEY, "accepted", "It was quoted.", str(file))

    assert [each["outcome"] for each in json.loads(file.read_text())["verdicts"]] == ["accepted"]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_file_that_cannot_be_written_costs_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    verdicts = Verdicts()

    verdicts.put(KEY, "accepted", "It was quoted.", str(blocked / "verdicts.json"))

    assert verdicts.get(KEY) is not None
    assert "cannot be written" in caplog.text


def test_what_is_too_old_is_not_kept_in_the_file(tmp_path: Path, later: list[float]) -> None:
    file = tmp_path / "verdicts.json"
    verdicts = Verdicts()
    verdicts.put(KEY, "broken", "It met 500.", str(file))
    later[0] = 3_600

    verdicts.put(OTHER, "accepted", "It was quoted.", str(file))

    assert [each["endpoint"] for each in json.loads(file.read_text())["verdicts"]] == ["/completions"]


def test_whoever_asks_and_never_comes_back_does_not_keep_everybody_from_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = Verdicts()
    assert verdicts.begin_asking(KEY)

    at_ns = _clock.now_ns()
    monkeypatch.setattr(_verdicts, "now_ns", lambda: at_ns + 3_600 * 10**9)

    assert verdicts.begin_asking(KEY)
    assert not verdicts.begin_asking(KEY)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_asks_for_itself_what_its_parent_is_asking() -> None:
    shared = _verdicts.verdicts
    assert shared.begin_asking(KEY)

    assert in_child(lambda: shared.begin_asking(KEY))
    assert not shared.begin_asking(KEY)
    shared.end_asking(KEY)


def test_of_very_many_servers_only_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verdicts, "MOST_KEYS", 10)
    verdicts = Verdicts()

    for number in range(50):
        verdicts.put(KEY._replace(origin=f"https://{number}:443"), "accepted", "Because.")
        verdicts.failed(KEY._replace(origin=f"https://{-1 - number}:443"), "It met 500.", weight=1)

    assert verdicts.get(KEY._replace(origin="https://39:443")) is None
    assert verdicts.get(KEY._replace(origin="https://40:443")) is not None
    assert (len(verdicts._known), len(verdicts._failures)) == (10, 10)


def test_what_a_clock_that_is_ahead_has_written_neither_counts_nor_stays(tmp_path: Path, later: list[float]) -> None:
    file = str(tmp_path / "verdicts.json")
    later[0] = 86_400 * 365
    Verdicts().put(KEY, "accepted", "Of next year.", file)
    later[0] = 0
    mine = Verdicts()

    mine.put(KEY, "refused", "Of today.")
    mine.get(KEY, file)
    assert mine.get(KEY) is not None
    mine.put(OTHER, "accepted", "Of today.", file)

    kept = Verdicts().get(KEY, file)
    assert kept is not None
    assert (kept.outcome, kept.reason) == ("refused", "Of today.")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_file_that_is_no_file_is_neither_waited_for_nor_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    verdicts = Verdicts()

    assert verdicts.get(KEY, str(pipe)) is None
    verdicts.put(KEY, "accepted", "Because.", str(pipe))

    assert pipe.is_fifo()
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]
    assert "cannot be written" in caplog.text


def test_what_a_link_leads_to_is_written_and_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    real, link = tmp_path / "shared" / "verdicts.json", tmp_path / "link.json"
    Verdicts().put(KEY, "accepted", "Because.", str(real))
    real.chmod(0o640)
    link.symlink_to(real)

    Verdicts().put(OTHER, "accepted", "Because.", str(link))

    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert Verdicts().get(OTHER, str(real)) is not None


@pytest.mark.parametrize("name", ["no\0path", "x" * 5_000])
def test_a_path_that_cannot_be_one_costs_no_call(name: str, caplog: pytest.LogCaptureFixture) -> None:
    verdicts = Verdicts()

    assert verdicts.get(KEY, name) is None
    assert verdicts.put(KEY, "accepted", "Because.", name).accepts

    assert "cannot be written" in caplog.text
