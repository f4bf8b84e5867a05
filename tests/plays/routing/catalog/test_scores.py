"""What evaluations say of a model."""

from __future__ import annotations

import pytest

from fastlane import ConfigurationError
from fastlane.catalog import CatalogModel, Score
from fastlane.plays.routing.catalog.scores import clears


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
        (None, 45, None, Score(), "its quality is not known, and 45 is required"),
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
