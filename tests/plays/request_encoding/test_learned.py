"""What is remembered of the bodies that providers take, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastlane.knowledge import table
from fastlane.knowledge.table import Table
from fastlane.plays.request_encoding import learned
from fastlane.plays.request_encoding.learned import (
    FormKey,
    FormVerdict,
    Outcome,
    begin_trial,
    decide_on,
    end_trial,
    expected_share,
    learn_share,
    note_answer,
    note_failure,
    verdict_on,
)

KEY = FormKey("https://example.com:443", "/v1/chat/completions", "json+gzip")


class Clock:
    now_s = 1_000.0

    def __call__(self) -> int:
        return round(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(learned, "now_ns", made)
    monkeypatch.setattr(table, "now_ns", made)
    Table.clear_all()
    yield made
    Table.clear_all()


@pytest.mark.parametrize(("outcome", "seconds"), [("accepted", 604_800), ("refused", 86_400), ("broken", 600)])
def test_verdict_holds_for_its_time(clock: Clock, outcome: Outcome, seconds: float) -> None:
    verdict = FormVerdict(outcome, "because")
    decide_on(KEY, verdict)

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

    note_failure(KEY, "once more")
    assert verdict_on(KEY) == FormVerdict("broken", "once more")


def test_one_call_tries_a_form_at_a_time(clock: Clock) -> None:
    assert begin_trial(KEY)
    assert not begin_trial(KEY)
    end_trial(KEY)
    assert begin_trial(KEY)
    clock.now_s += 901
    assert begin_trial(KEY)


def test_share_of_bodies_is_learned_and_forgotten(clock: Clock) -> None:
    first = expected_share(KEY)

    learn_share(KEY, 0.9)
    learn_share(KEY, 1.2)

    assert first < 0.9 < expected_share(KEY) < 1
    clock.now_s += 601
    assert expected_share(KEY) == first
