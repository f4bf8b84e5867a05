"""Settings that cannot work are refused when the experiment is made."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import ConfigurationError, Connection, RequestEncoding
from fastlane.experiments import Experiment, Guard, unit
from tests.experiments.conftest import CONTROL, Make, Mark

ARMS = {"control": CONTROL, "mark": (Connection(), Mark())}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, "Experiment(name=...) takes a text such as 'encoding-2026-11'"),
        ({"name": "two\nlines"}, "takes a text such as"),
        ({"arms": {"control": CONTROL}}, "takes at least two arms such as"),
        (
            {"arms": {"control": CONTROL, "mark": [RequestEncoding]}},
            "arm 'mark': plays takes instances of fastlane.Play",
        ),
        ({"share": 0.1}, "each arm but the reference 'control', such as {'mark': 0.5}, got 0.1"),
        ({"share": {"control": 0.5, "mark": 0.5}}, "takes the share of units"),
        ({"share": {"mark": 1.5}}, "got {'mark': 1.5}"),
        ({"share": {}}, "got {}"),
        ({"arms": {**ARMS, "other": CONTROL}, "share": {"mark": 0.6, "other": 0.6}}, "got {'mark': 0.6, 'other': 0.6}"),
        ({"store": None}, 'takes a file such as "experiment.sqlite", the address of a Redis server such as'),
        ({"store": "postgres://me:hunter2@host/db"}, "got an address of something else"),
        ({"store": "redis:/me:hunter2@host:6379/0"}, "a directory that does not exist"),
        ({"store": "."}, "got a directory"),
        ({"unit": "user"}, "takes a function such as lambda body"),
        ({"guards": Guard("error_rate")}, "takes a list such as [Guard"),
        ({"guards": [Guard("price")]}, 'takes a Catalog with prices for Guard("price")'),
        ({"salt": ""}, "takes a text that is not empty"),
    ],
)
def test_invalid_setting_raises_with_expected_values(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"name": "one", "arms": ARMS, "share": {"mark": 0.5}, "store": tmp_path / "x.sqlite"}
    given |= settings

    with pytest.raises(ConfigurationError) as error:
        Experiment(given.pop("name"), given.pop("arms"), **given)

    assert words in str(error.value)
    assert "hunter2" not in str(error.value)


WRONG: Any = "encoding"


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda _: Guard(WRONG), r"Guard\(metric=\.\.\.\) takes \"time_to_first_token\""),
        (lambda _: Guard("error_rate", worse_by=-1), "takes a number from 0, got -1"),
        *((lambda _, given=given: unit(given), "takes an id such as") for given in ("", 42, None)),
        *(
            (lambda make, name=name: make().end(name), f"takes one of the arms mark, got '{name}'")
            for name in ("control", "marc")
        ),
        *(
            (lambda make, quality=quality: make().score(None, quality=quality), "takes a number from 0 to 1")
            for quality in (2, "good", True)
        ),
        (lambda make: make().score("a call", quality=0.5), "takes the record of a call, got str"),
        (lambda _: fastlane.OpenAI(api_key="sk-test", experiment=WRONG), "takes an Experiment, got str"),
    ],
    ids=count(),
)
def test_invalid_argument_raises_with_expected_values(make: Make, use: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        use(make)


def test_other_guards_keep_the_counts(make: Make) -> None:
    make(guards=[Guard("error_rate")]).end("mark")

    assert make(guards=[Guard("end_to_end")]).report()["mark"].ended is not None
