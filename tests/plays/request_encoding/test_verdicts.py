"""What is remembered of the bodies that providers take, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.knowledge import table
from fastlane.knowledge.table import Table
from fastlane.plays.request_encoding import verdicts
from fastlane.plays.request_encoding.verdicts import (
    Key,
    Outcome,
    Verdict,
    begin_probe,
    decide_on,
    end_probe,
    note_answer,
    note_failure,
    verdict_on,
)

KEY = Key("https://example.com:443", "/v1/chat/completions", "json+gzip")


class Clock:
    now_s = 1_000.0

    def __call__(self) -> int:
        return round(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(verdicts, "now_ns", made)
    monkeypatch.setattr(table, "now_ns", made)
    Table.clear_all()
    yield made
    Table.clear_all()


@pytest.mark.parametrize(
    ("outcome", "seconds"), [("accepted", 604_800), ("refused", 86_400), ("undecided", 86_400), ("broken", 600)]
)
def test_verdict_holds_for_its_time(clock: Clock, outcome: Outcome, seconds: float) -> None:
    verdict = decide_on(KEY, Verdict(outcome, "because"))

    clock.now_s += seconds - 1
    assert verdict_on(KEY) == verdict
    assert verdict_on(KEY._replace(form="msgpack")) is None
    clock.now_s += 2
    assert verdict_on(KEY) is None


def test_two_failures_in_a_row_are_the_forms_fault(clock: Clock) -> None:
    note_failure(KEY, "once")
    note_answer(KEY)
    note_failure(KEY, "again")
    assert verdict_on(KEY) is None

    note_failure(KEY, "a call was given up", weight=0.5)
    note_failure(KEY, "and another", weight=0.5)
    assert verdict_on(KEY) == Verdict("broken", "and another")


def test_one_call_probes_at_a_time(clock: Clock) -> None:
    assert begin_probe(KEY)
    assert not begin_probe(KEY)
    end_probe(KEY)
    assert begin_probe(KEY)
    clock.now_s += 61
    assert begin_probe(KEY)
