from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, ConfigurationError, Connection, PromptCache, RequestEncoding
from fastlane.bench import Arm, arms_named
from fastlane.bench._arms import KNOWN_ARMS, attributing, is_asynchronous
from fastlane.bench._options import _see_working_folder

MY_PLAYS = [Connection(), RequestEncoding(gzip_level=2)]
MY_ARM = Arm(name="mine", plays=(Connection(),))
MY_NUMBER = 3


def fingerprints(arm: Arm) -> tuple[str, ...] | None:
    return None if arm.plays is None else tuple(map(repr, arm.plays))


def my_client(base_url: str, api_key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)


@pytest.mark.parametrize("name", sorted(KNOWN_ARMS))
def test_known_arm_is_picklable_and_makes_its_client(name: str) -> None:
    arm = pickle.loads(pickle.dumps(KNOWN_ARMS[name]))
    client = arm.make_client("https://provider/v1", "key")

    assert (arm.name, fingerprints(arm)) == (name, fingerprints(KNOWN_ARMS[name]))
    assert is_asynchronous(client) == name.endswith("async")
    assert isinstance(client, fastlane.OpenAI | fastlane.AsyncOpenAI) == (not name.startswith("baseline"))
    mine = Arm(name="mine", plays=(Connection(ping_s=None), BoundedOutput(reasks=1), PromptCache()))
    assert fingerprints(pickle.loads(pickle.dumps(mine))) == fingerprints(mine)


def test_arm_description_names_client_and_plays() -> None:
    assert Arm(name="mine", plays=tuple(MY_PLAYS)).description == (
        "fastlane.OpenAI(only_plays=[Connection(), RequestEncoding(gzip_level=2)])"
    )
    assert Arm(name="mine", asynchronous=True).description == "fastlane.AsyncOpenAI(): its default plays"
    assert Arm(name="mine", client=my_client).description == f"{__name__}:my_client"


def test_custom_arms_are_named_by_module_and_attribute() -> None:
    arms = arms_named([f"{__name__}:my_client", f"{__name__}:MY_PLAYS", f"{__name__}:MY_ARM", "baseline"])

    assert [arm.name for arm in arms] == ["my_client", "MY_PLAYS", "mine", "baseline"]
    assert arms[0].client is my_client
    assert arms[1].plays == tuple(MY_PLAYS)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "at least one arm is needed, got none: the known arms are baseline, "),
        (["nope"], "unknown arm 'nope': the known arms are baseline, "),
        (["baseline", "baseline"], "arm 'baseline' is named twice"),
        (["no.such.module:x"], "arm 'no.such.module:x' names nothing that can be imported"),
        ([f"{__name__}:nothing"], "names nothing that can be imported"),
        ([f"{__name__}:MY_NUMBER"], "is 3: expected an Arm, a function"),
    ],
    ids=str,
)
def test_invalid_arm_name_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        arms_named(names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "größer"}, "an arm's name is printable ASCII text"),
        pytest.param(
            {"name": "x", "client": lambda base_url, api_key: None},
            "has to be a function of an importable module",
            id="a client of no module",
        ),
        ({"name": "x", "client": 3}, "has to be a function of an importable module"),
        pytest.param(
            {"name": "x", "client": my_client, "plays": ()}, "has both `client` and `plays`", id="a client and plays"
        ),
        ({"name": "x", "plays": ("connection",)}, "have to be plays such as Connection"),
    ],
    ids=str,
)
def test_arm_that_no_process_could_make_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Arm(**settings)


def test_attribution_arms_add_and_remove_each_play() -> None:
    plays = (Connection(), RequestEncoding(), PromptCache())
    first, second, third = map(repr, plays)

    assert {arm.name: fingerprints(arm) for arm in attributing(plays)} == {
        "none": (),
        "only Connection": (first,),
        "only RequestEncoding": (second,),
        "only PromptCache": (third,),
        "all but Connection": (second, third),
        "all but RequestEncoding": (first, third),
        "all but PromptCache": (first, second),
        "every play": (first, second, third),
    }
    assert [arm.name for arm in attributing(plays[:2])] == [
        "none", "only Connection", "only RequestEncoding", "every play",
    ]  # fmt: skip


@pytest.mark.parametrize("plays", [(), (Connection(),), (Connection(), Connection(ping_s=None))], ids=len)
def test_fewer_than_two_kinds_of_play_leave_nothing_to_divide(plays: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError, match="needs two plays or more, each of another kind"):
        attributing(plays)


def test_arm_may_be_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arms_of_mine.py").write_text("def mine(base_url, api_key):\n    return None\n")
    (tmp_path / "arms_with_a_slip.py").write_text("1 / 0\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    _see_working_folder()

    (arm,) = arms_named(["arms_of_mine:mine"])

    assert (arm.name, arm.description) == ("mine", "arms_of_mine:mine")
    with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
        arms_named(["arms_with_a_slip:mine"])
