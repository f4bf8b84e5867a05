"""Settings of plays are checked, and every error has the same form."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field

from fastlane.engine.settings import Texts, settings
from fastlane.errors import ConfigurationError


def even(number: int) -> int:
    if number % 2:
        raise ValueError("an even number")
    return number


@settings
class Sample:
    """Every kind of setting."""

    place: Annotated[str, Field(min_length=1)] = field(default="here", kw_only=False)
    wait_s: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    count: Annotated[int, Field(ge=1)] = 1
    pairs: Annotated[int, AfterValidator(even)] = 2
    mode: Literal["fast", "safe"] | bool = "fast"
    names: Texts = ()
    by_name: Annotated[Mapping[str, int], Field(description='counts by name, {"a": 1}')] = field(default_factory=dict)
    learned: list[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.count > self.wait_s:
            raise ConfigurationError("Sample(count=...) takes no more than wait_s")
        object.__setattr__(self, "learned", [])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wait_s": -1}, "Sample(wait_s=...) takes seconds from 0 to 86,400, got -1"),
        ({"wait_s": True}, "Sample(wait_s=...) takes seconds from 0 to 86,400, got True"),
        ({"wait_s": "5"}, "Sample(wait_s=...) takes seconds from 0 to 86,400, got '5'"),
        ({"wait_s": float("nan")}, "Sample(wait_s=...) takes seconds from 0 to 86,400, got nan"),
        ({"share": 1}, "Sample(share=...) takes a number above 0 below 1, or None, got 1"),
        ({"count": 1.0}, "Sample(count=...) takes a whole number from 1, got 1.0"),
        ({"pairs": 3}, "Sample(pairs=...) takes an even number, got 3"),
        ({"mode": "slow"}, 'Sample(mode=...) takes "fast" or "safe", or True or False, got \'slow\''),
        ({"names": "a"}, "Sample(names=...) takes a list of texts, got 'a'"),
        ({"names": ["a", 1]}, "Sample(names=...) takes a list of texts, got ['a', 1]"),
        ({"by_name": {"a": None}}, "Sample(by_name=...) takes counts by name, {\"a\": 1}, got {'a': None}"),
        ({"by_name": "x" * 200}, f'Sample(by_name=...) takes counts by name, {{"a": 1}}, got \'{"x" * 79}'),
        ({"count": 2}, "Sample(count=...) takes no more than wait_s"),
    ],
)
def test_wrong_value_is_refused_with_what_was_expected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Sample(**given)
    assert str(raised.value) == message
    assert raised.value.__cause__ is None


def test_wrong_positional_value_is_refused_by_name() -> None:
    wrong: Any = 5
    with pytest.raises(ConfigurationError, match=r"Sample\(place=...\) takes a text, got 5"):
        Sample(wrong)


def test_unknown_setting_is_a_type_error_with_the_names() -> None:
    with pytest.raises(TypeError, match=r"Sample\(\) does not take 'delay'; its settings are place, wait_s, "):
        Sample(delay=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Sample\(\) does not take 'learned'"):
        Sample(learned=[])  # type: ignore[call-arg]


def test_repr_is_the_same_for_equal_settings() -> None:
    assert repr(Sample(wait_s=2)) == repr(Sample(wait_s=2.0))
    assert Sample(names=["a"]) == eval(repr(Sample(names=("a",))))
    assert repr(Sample()) == (
        "Sample(place='here', wait_s=1.0, share=None, count=1, pairs=2, mode='fast', names=(), by_name={})"
    )


def test_copies_are_checked_and_equal() -> None:
    sample = Sample(wait_s=5, count=3)
    assert pickle.loads(pickle.dumps(sample)) == sample
    assert replace(sample, count=4) == Sample(wait_s=5, count=4)
    with pytest.raises(ConfigurationError):
        replace(sample, count=9)
