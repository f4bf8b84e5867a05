"""The options of a call are those that openai's own constructor gives."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai._models import FinalRequestOptions
from openai._types import NotGiven

from fastlane.compat.requests import post_options


def stock_options(path: str, body: Any, given: dict[str, Any]) -> Any:
    return FinalRequestOptions.construct(method="post", url=path, json_data=body, content=None, files=None, **given)


def described(options: Any) -> Any:
    """All that there is to it; each "not given" is an object of its own."""
    values = {name: "not given" if type(value) is NotGiven else value for name, value in options.__dict__.items()}
    hidden = ("__pydantic_extra__", "__pydantic_private__")
    return list(values.items()), options.model_fields_set, [getattr(options, name) for name in hidden]


GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "headers": {"headers": {"a": "b", "c": openai.Omit()}},
    "headers that are not given": {"headers": {"a": "b", "c": openai.NOT_GIVEN}},
    "what is not given": {"timeout": openai.NOT_GIVEN, "headers": openai.NOT_GIVEN},
    "nothing in everything": {"headers": None, "params": {}, "extra_json": None, "timeout": None},
    "everything": {
        "headers": {"a": "b"},
        "params": {"c": 1, "d": openai.NOT_GIVEN},
        "extra_json": {"e": [1]},
        "timeout": 3.0,
        "max_retries": 4,
        "idempotency_key": "k",
        "follow_redirects": False,
        "post_parser": str,
    },
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize(
    "body", [{}, {"a": 1, "b": openai.NOT_GIVEN, "c": {"d": openai.NOT_GIVEN}, "e": openai.Omit()}]
)
def test_they_are_those_of_the_stock_client(name: str, body: dict[str, Any]) -> None:
    expected = stock_options("/x", body, GIVEN[name])
    found = post_options("/x", body, GIVEN[name])

    assert type(found) is type(expected)
    assert described(found) == described(expected)
    assert described(found.model_copy()) == described(expected.model_copy())
    assert found.get_max_retries(2) == expected.get_max_retries(2)
    assert repr(found).count("=") == repr(expected).count("=")


def test_no_two_calls_share_what_can_be_changed() -> None:
    one, other = post_options("/x", {"a": 1}, {}), post_options("/x", {"a": 1}, {})
    one.params["b"] = "c"
    one.json_data["d"] = 1
    if hasattr(one, "security"):
        one.security["bearer_auth"] = False

    assert described(other) == described(stock_options("/x", {"a": 1}, {}))
    assert described(post_options("/x", {"a": 1}, {})) == described(other)


@pytest.mark.parametrize(
    "given", [{"url": "/y"}, {"method": "get"}, {"json_data": {}}, {"files": []}, {"content": b""}]
)
def test_what_says_twice_where_a_call_goes_is_refused_as_by_the_stock_client(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as expected:
        stock_options("/x", {}, given)
    with pytest.raises(TypeError) as found:
        post_options("/x", {}, given)
    assert str(found.value) == str(expected.value)


def test_an_option_that_openai_does_not_know_is_for_openai_to_judge() -> None:
    assert described(post_options("/x", {}, {"unknown": 1})) == described(stock_options("/x", {}, {"unknown": 1}))
