from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.records import AdmissionRecord, UrgencyRecord
from fastlane.records.timeline import WireStamps
from fastlane.reports.phases import PHASES, Phase, opening_of, phases_of
from tests.reports.made import MS, ORIGIN, attempt, record


def milliseconds(found: Mapping[Phase, float]) -> dict[Phase, float]:
    return {phase: round(took * 1e3, 6) for phase, took in found.items()}


def test_the_phases_of_a_warm_stream() -> None:
    assert milliseconds(phases_of(record())) == {
        "prepare": 1, "queue": 1, "send": 2, "wait": 16, "first token": 5, "decode": 20, "tail": 3, "hand over": 2,
        "other": 0,
    }  # fmt: skip


def test_the_phases_of_a_cold_answer_that_is_not_streamed() -> None:
    assert milliseconds(phases_of(record(tokens=(), attempts=(attempt(opened=True),)))) == {
        "prepare": 1, "queue": 1, "dns": 1, "connect": 2, "tls": 4, "send": 2, "wait": 9, "body": 28, "hand over": 2,
        "other": 0,
    }  # fmt: skip


def test_what_went_before_the_attempt_that_answered_is_a_phase_of_its_own() -> None:
    attempts = (attempt(), attempt(kind="retry", number=2, at=9))

    assert milliseconds(phases_of(record(attempts=attempts)))["earlier attempts"] == 8


def test_the_wait_for_a_place_is_taken_out_of_prepare() -> None:
    admission = AdmissionRecord(waited_s=0.0006, ahead=3, concurrency=4)
    urgency = UrgencyRecord(urgency="background", admission=admission)
    found = milliseconds(phases_of(record(urgency=urgency)))
    retried = milliseconds(phases_of(record(urgency=urgency, attempts=(attempt(), attempt(number=2, at=9)))))

    assert (found["prepare"], found["wait_for_place"], found["queue"]) == (0.4, 0.6, 1)
    assert round(sum(found.values()), 6) == 50
    assert retried["prepare"] == 1
    assert "wait_for_place" not in retried


def test_a_hedge_that_lost_began_after_the_attempt_that_answered() -> None:
    attempts = (attempt(kind="hedge", number=2, at=9), attempt())

    assert "earlier attempts" not in phases_of(record(attempts=attempts))


@given(steps=st.lists(st.integers(0, 40), min_size=5, max_size=5), opened=st.booleans(), streamed=st.booleans())
def test_phases_stand_in_their_order_and_add_up_to_the_call(steps: list[int], opened: bool, streamed: bool) -> None:
    at = float(steps[0])
    sent = at + (10 if opened else 3)
    head, first, last, done = (sent + moment for moment in accumulate(steps[1:]))
    seen = record(
        tokens=(first, last) if streamed else (),
        ended=done + 2,
        attempts=(attempt(at=at, opened=opened, head=head),),
    )
    found = phases_of(seen)

    assert list(found) == [phase for phase in PHASES if phase in found]
    assert sum(found.values()) == pytest.approx(seen.duration_s, abs=1e-9)


STAMPS = [stamp.name for stamp in fields(WireStamps) if stamp.name.endswith("_ns") and stamp.name != "data_ns"]


@given(
    wire=st.fixed_dictionaries(dict.fromkeys(STAMPS, st.integers(0, 50) | st.none())),
    tokens=st.lists(st.integers(0, 50), max_size=3).map(sorted),
)
def test_each_moment_of_a_call_counts_once_however_its_stamps_overlap(
    wire: dict[str, int | None], tokens: list[int]
) -> None:
    stamps: dict[str, Any] = {name: None if at is None else at * MS for name, at in wire.items()}
    stamped = replace(attempt(), wire=WireStamps(**{**stamps, "started_ns": stamps["started_ns"] or 0}))
    found = phases_of(record(tokens=tuple(tokens), attempts=(stamped,)))

    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("began", "ended", "took"), [(48.5, 49.5, 1), (46, 49, 1), (40, 47, None), (51, 52, None)])
def test_checking_an_answer_is_a_phase_as_far_as_it_came_after_the_last_byte(
    began: float, ended: float, took: float | None
) -> None:
    seen = record()
    checked = replace(seen.timeline, validate_started_ns=int(began * MS), validate_ended_ns=int(ended * MS))
    found = milliseconds(phases_of(replace(seen, timeline=checked)))

    assert found.get("validate") == took
    assert found["hand over"] == 2 - (took or 0)


def test_only_an_attempt_that_waited_for_a_connection_says_what_opening_one_takes() -> None:
    assert opening_of(record()) == []
    assert opening_of(record(attempts=(attempt(opened=True), attempt(kind="retry", at=20)))) == [(ORIGIN, 0.007)]
