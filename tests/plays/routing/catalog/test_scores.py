"""What evaluations say of a model."""

from __future__ import annotations

import threading

import pytest

from fastlane import ConfigurationError
from fastlane.plays.routing.catalog.models import CatalogModel
from fastlane.plays.routing.catalog.scores import Score, Scoreboard, clears, score, scoreboard


def model(quality: float | None = 50) -> CatalogModel:
    return CatalogModel(name="m", quality=quality, first_token_s=((1_000, 0.5),), tokens_per_s=100)


@pytest.mark.parametrize(("passed", "count"), [(3, 2), (-1, 2), (True, 1), (1.0, 2)])
def test_a_score_that_cannot_be_is_refused(passed: int, count: int) -> None:
    with pytest.raises(ConfigurationError, match="passed is not the larger"):
        Score(passed, count)


@pytest.mark.parametrize(
    ("quality", "bar", "rate", "measured", "why"),
    [
        (33.3, 45, None, Score(), "quality 33.3 is below 45"),
        (45, 45, None, Score(), None),
        (None, 45, None, Score(), "its quality is not known, and 45 is asked for"),
        (None, None, None, Score(), None),
        (50, 45, None, Score(0, 100), None),
        (50, 45, 0.8, Score(), None),
        (33, 45, 0.8, Score(58, 60), None),
        (50, 45, 0.8, Score(41, 60), "passed 41 of 60, below 0.8"),
        (50, 45, 0.8, Score(0, 19), None),
        (50, 45, 0.8, Score(16, 20), None),
        (50, 45, 0.8, Score(15, 20), "passed 15 of 20, below 0.8"),
        (40, 45, 0.8, Score(15, 19), "quality 40 is below 45"),
        (None, None, 0.8, Score(15, 19), None),
    ],
)
def test_what_clears_a_bar(
    quality: float | None, bar: float | None, rate: float | None, measured: Score, why: str | None
) -> None:
    assert clears(model(quality), min_quality=bar, min_pass_rate=rate, measured=measured) == why


@pytest.mark.parametrize("rate", [0.5, 0.8, 0.9, 0.95, 0.99, 1.0])
def test_a_model_that_has_never_failed_never_fails(rate: float) -> None:
    reasons = {
        clears(model(), min_quality=45, min_pass_rate=rate, measured=Score(count, count))
        for count in range(0, 2_000, 7)
    }

    assert reasons == {None}


def test_at_a_rate_of_one_a_single_failure_is_enough() -> None:
    why = clears(model(), min_quality=45, min_pass_rate=1.0, measured=Score(999, 1_000))

    assert why == "passed 999 of 1000, below 1"


def test_what_is_scored_is_counted() -> None:
    board = Scoreboard()
    board.score("triage", "small", True)
    board.score("triage", "small", False)
    board.score("summary", "small", True)

    assert board.of("triage", "small") == Score(1, 2)
    assert board.of("triage", "large") == Score()
    assert board.version == 3


def test_the_public_one_is_that_of_the_process() -> None:
    before = scoreboard.of("of this test", "small")

    score("of this test", "small", True)

    assert scoreboard.of("of this test", "small") == before.plus(Score(1, 1))


def test_old_evaluations_fade() -> None:
    board = Scoreboard()
    for _ in range(5_000):
        board.score("triage", "small", True)
    for _ in range(1_000):
        board.score("triage", "small", False)

    measured = board.of("triage", "small")
    assert 500 <= measured.count <= 1_000
    assert measured.passed < 0.5 * measured.count


def test_the_board_does_not_grow_without_end() -> None:
    board = Scoreboard()
    for number in range(10_001):
        board.score("triage", f"model-{number}", True)
        board.score("triage", "model-0", True)

    assert board.of("triage", "model-1") == Score()
    assert board.of("triage", "model-0").count > 500  # it was scored over and over, and never forgotten
    assert board.of("triage", "model-10000") == Score(1, 1)


def test_what_is_forgotten_is_a_change() -> None:
    board = Scoreboard()
    board.score("triage", "small", True)
    before = board.version

    board.clear()

    assert board.of("triage", "small") == Score()
    assert board.version != before


def test_threads_lose_no_evaluation() -> None:
    board = Scoreboard()

    def evaluate() -> None:
        for _ in range(200):
            board.score("triage", "small", True)

    threads = [threading.Thread(target=evaluate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert board.of("triage", "small") == Score(800, 800)


@pytest.mark.parametrize(
    ("task", "name", "passed", "said"),
    [
        ("", "small", True, "task must be a text that is not empty, got an empty text"),
        (None, "small", True, "task must be a text that is not empty, got a NoneType"),
        ("triage", 7, True, "model must be a text that is not empty, got a int"),
        ("triage", "small", "the secret answer", "passed must be True or False, got a str"),
        ("triage", "small", 0.7, "passed must be True or False, got a float"),
        ("triage", "small", None, "passed must be True or False, got a NoneType"),
    ],
)
def test_what_is_no_evaluation_is_refused_and_not_quoted(task: str, name: str, passed: bool, said: str) -> None:
    board = Scoreboard()

    with pytest.raises(ConfigurationError) as caught:
        board.score(task, name, passed)

    assert str(caught.value) == said
    assert board.version == 0


def test_an_evaluation_may_be_what_equals_a_truth() -> None:
    board = Scoreboard()
    board.score("triage", "small", 1)  # type: ignore[arg-type]
    board.score("triage", "small", 0)  # type: ignore[arg-type]

    assert board.of("triage", "small") == Score(1, 2)
