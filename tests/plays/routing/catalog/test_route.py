"""What stands in the place of a model's name says all that is asked for, and is a text."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane import ConfigurationError
from fastlane.catalog import Route

ASKED = st.fixed_dictionaries(
    {},
    optional={
        "min_quality": st.floats(allow_nan=False, allow_infinity=False),
        "task": st.text(min_size=1).filter(lambda text: text.encode(errors="ignore").decode() == text),
        "min_pass_rate": st.floats(0, 1),
        "quantile": st.floats(0.01, 0.999),
    },
)


def test_is_the_text_that_asks_for_it() -> None:
    route = Route(task="triage", min_quality=45)

    assert route == "fastlane/auto?min_quality=45&task=triage"
    assert json.dumps({"model": route}) == '{"model": "fastlane/auto?min_quality=45&task=triage"}'
    assert repr(route) == "Route(min_quality=45.0, task='triage')"
    assert Route() == "fastlane/auto"


@settings(max_examples=60, deadline=None)
@given(ASKED)
def test_comes_back_from_its_text(asked: dict[str, Any]) -> None:
    route = Route(**asked)

    parsed = Route.parse(str(route))
    assert parsed == route
    assert parsed is not None
    assert vars(parsed) == vars(route)
    assert hash(route) == hash(str(route))


@settings(max_examples=20, deadline=None)
@given(ASKED)
def test_comes_back_from_pickles_and_copies(asked: dict[str, Any]) -> None:
    route = Route(**asked)

    for again in (pickle.loads(pickle.dumps(route)), copy.deepcopy(route), copy.copy(route)):
        assert type(again) is Route
        assert vars(again) == vars(route)


@pytest.mark.parametrize("model", ["gpt-4.1", "", "fastlane/auto-2", "fastlane/automatic", "fastlane", "openai/auto"])
def test_a_plain_model_asks_for_no_route(model: str) -> None:
    assert Route.parse(model) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fastlane/auto?quality=45", "'quality' is not known .*min_quality, task, min_pass_rate and quantile"),
        ("fastlane/auto?min_quality", "expected .*name=value"),
        ("fastlane/auto?min_quality=high", "min_quality .* must be a number, got 'high'"),
        ("fastlane/auto?min_quality=nan", "min_quality must be a number in the units"),
        ("fastlane/auto?task=", "task must be a text that is not empty"),
        ("fastlane/auto?task=a&task=b", "'task' stands twice"),
        ("fastlane/auto?min_pass_rate=2", "min_pass_rate must be a number from 0 to 1, got 2.0"),
        ("fastlane/auto?quantile=1", "quantile must be a number from 0.01 to 0.999"),
        ("fastlane/auto?task=%ff", "expected .*name=value"),
    ],
)
def test_a_text_that_asks_for_something_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Route.parse(text)


def test_the_order_in_a_text_does_not_matter() -> None:
    assert Route.parse("fastlane/auto?task=triage&min_quality=45.0") == Route(min_quality=45, task="triage")


def test_a_number_is_no_text_and_no_truth() -> None:
    with pytest.raises(ConfigurationError, match="min_quality must be a number"):
        Route(min_quality=True)
    with pytest.raises(ConfigurationError, match="task must be a text"):
        Route(task=7)  # type: ignore[arg-type]


def test_what_it_leaves_open_is_as_others_say() -> None:
    defaults = Route(min_quality=40, task="triage", quantile=0.9)

    assert Route(min_quality=45).over(defaults) == Route(min_quality=45, task="triage", quantile=0.9)
    assert Route().over(Route()) == "fastlane/auto"


def test_a_question_mark_alone_asks_for_nothing() -> None:
    assert Route.parse("fastlane/auto?") == Route()


def test_cannot_be_changed() -> None:
    route = Route(task="triage")

    with pytest.raises(AttributeError, match="make another one"):
        route.task = "summary"
    with pytest.raises(AttributeError, match="make another one"):
        del route.task
