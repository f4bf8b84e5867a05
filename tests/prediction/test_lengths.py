from __future__ import annotations

import pytest

from fastlane.knowledge.prediction._lengths import Lengths
from fastlane.knowledge.prediction._upstream import Upstream

BRIEF = Upstream("brief", "https://one.example:443")
CHATTY = Upstream("chatty", "https://two.example:443")


def test_a_task_has_the_usual_length_of_the_catalog_until_answers_were_seen() -> None:
    assert Lengths({"triage": 40.0}).of("triage").expected(BRIEF, 1.0) == 40.0


def test_a_model_that_thinks_aloud_has_longer_answers() -> None:
    assert Lengths({"triage": 40.0}).of("triage").expected(CHATTY, 3.0) == 120.0


def test_lengths_are_learned_for_each_task() -> None:
    lengths = Lengths({})
    for _ in range(60):
        lengths.note("label", BRIEF, 1.0, 10)
        lengths.note("report", BRIEF, 1.0, 1_000)
    assert lengths.of("label").expected(BRIEF, 1.0) == pytest.approx(10, rel=0.2)
    assert lengths.of("report").expected(BRIEF, 1.0) == pytest.approx(1_000, rel=0.2)


def test_what_one_model_has_shown_of_a_task_counts_for_others() -> None:
    lengths = Lengths({})
    for _ in range(60):
        lengths.note("label", BRIEF, 1.0, 10)
    assert lengths.of("label").expected(CHATTY, 3.0) == pytest.approx(30, rel=0.3)


def test_one_endless_answer_does_not_make_all_seem_long() -> None:
    lengths = Lengths({"label": 10.0})
    for _ in range(50):
        lengths.note("label", BRIEF, 1.0, 10)
    lengths.note("label", BRIEF, 1.0, 100_000)
    assert lengths.of("label").expected(BRIEF, 1.0) < 15


def test_tasks_beyond_the_thousandth_are_one() -> None:
    lengths = Lengths({})
    for number in range(2_000):
        lengths.note(f"task {number}", BRIEF, 1.0, 50)
    assert len(lengths._tasks) <= 1_000
