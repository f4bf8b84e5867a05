"""What cannot work is said when the experiment is made, and so is what differs from what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import ConfigurationError, Connection, Experiment, FastlaneError, Guard, RequestEncoding
from fastlane.experiments import unit
from tests.experiments.conftest import CONTROL, Make, Mark

ARMS = {"control": CONTROL, "mark": (Connection(), Mark())}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, "takes a name such as 'encoding-2026-11'"),
        ({"name": "two\nlines"}, "takes a name such as"),
        ({"arms": {"control": CONTROL}}, "takes at least two arms such as"),
        ({"arms": [CONTROL]}, "got a list"),
        ({"arms": {"control": CONTROL, "mark": Mark()}}, "takes a list of plays for each arm"),
        ({"arms": {"control": CONTROL, "mark": "RequestEncoding"}}, "takes a list of plays for each arm"),
        (
            {"arms": {"control": CONTROL, "mark": [RequestEncoding]}},
            "arm 'mark': plays takes instances of fastlane.Play",
        ),
        ({"share": 0.1}, "takes the share of units of each arm but the reference, such as {'mark': 0.1}, got 0.1"),
        ({"share": {"control": 0.5, "mark": 0.5}}, "'control', which is the first arm and gets what the others leave"),
        ({"share": {"marc": 0.5}}, "a share for 'marc', which is none of the arms ('mark')"),
        ({"share": {"mark": 1.5}}, "takes shares of 0 to 1; 'mark' has 1.5"),
        ({"share": {"mark": True}}, "'mark' has True"),
        ({"share": {}}, "has no share for 'mark'"),
        ({"store": None}, 'takes a file such as "experiment.sqlite", the address of a Redis server such as'),
        ({"store": ""}, "got a str"),
        ({"store": "postgres://me:hunter2@host/db"}, "got an address of something else"),
        ({"store": "no/such/folder/experiment.sqlite"}, "whose directory does not exist: make it first"),
        ({"store": "."}, "got a directory"),
        ({"unit": 42}, "takes the name of a field of the body such as"),
        ({"unit": "metadata..x"}, "got 'metadata..x'"),
        ({"guards": Guard("error_rate")}, "takes a list such as [Guard"),
        ({"guards": ["error_rate"]}, "takes guards such as Guard"),
        ({"guards": [Guard("price")]}, "needs prices: give Experiment(catalog=...)"),
        ({"fuse": 1}, "takes a number of calls, at least 2, or None, got 1"),
        ({"on_end": "me"}, "takes a function of one EndedArm"),
        ({"catalog": {}}, "takes a Catalog, got a dict"),
        ({"salt": ""}, "takes a text that is not empty"),
    ],
)
def test_a_mistake_is_told(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"name": "one", "arms": ARMS, "share": {"mark": 0.5}, "store": tmp_path / "x.sqlite"}
    given |= settings

    with pytest.raises(ConfigurationError) as error:
        Experiment(given.pop("name"), given.pop("arms"), **given)

    assert words in str(error.value)
    assert "hunter2" not in str(error.value)


def test_shares_above_one_together_are_told(make: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"the shares are 1\.2 together, and there is no more than 1"):
        make(arms={**ARMS, "other": CONTROL}, share={"mark": 0.6, "other": 0.6})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metric": "latency"}, "takes a metric, one of time_to_first_token, "),
        ({"metric": "error_rate", "above": -1}, "takes a number of at least 0, got -1"),
        ({"metric": "error_rate", "above": True}, "got True"),
        ({"metric": "error_rate", "above": 5}, "takes a share, 0 to 1, got 5"),
        ({"metric": "error_rate", "above": 0.1, "worse_by": 0.1}, "takes one limit, got above and worse_by"),
        ({"metric": "error_rate", "below": 0.1}, "would end an arm for being good: did you mean above=?"),
        ({"metric": "quality", "above": 0.9}, "did you mean below=?"),
        ({"metric": "time_to_first_token_p95"}, "takes above=, in seconds"),
        ({"metric": "end_to_end", "above": 0}, "takes seconds above 0"),
    ],
)
def test_a_mistake_in_a_guard_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Guard(**given)

    assert words in str(error.value)


@pytest.mark.parametrize("given", ["", 42, None])
def test_a_unit_that_is_no_id_is_told_without_its_text(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="takes an id such as"):
        unit(given)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"arms": {"control": CONTROL, "other": CONTROL}},
            "its arms were 'control', 'mark', and are 'control', 'other'",
        ),
        ({"arms": {"control": CONTROL, "mark": (Mark("x"),)}}, "the plays of arm 'mark' were ["),
        ({"unit": "user"}, "its unit was None, and is 'user'"),
        ({"salt": "pepper"}, "its salt was another one"),
        ({"guards": [Guard("time_to_first_token_p95", above=2)]}, "its guard of time_to_first_token_p95 was at None s"),
        ({"share": {"mark": 0.2}, "arms": ARMS}, "a share of 0.5 for 'mark', got 0.2"),
    ],
)
def test_another_definition_under_the_same_name_is_told(make: Make, changed: dict[str, Any], words: str) -> None:
    make()

    with pytest.raises(ConfigurationError) as error:
        make(**changed)

    assert words in str(error.value)
    assert "give it another name" in str(error.value)
    assert "pepper" not in str(error.value)


def test_a_larger_share_is_a_ramp_and_processes_that_do_not_know_of_it_follow(make: Make) -> None:
    old = make(share={"mark": 0.1})
    make(share={"mark": 0.3})
    restarted = make(share={"mark": 0.1})

    old.flush()
    assert [one.report()["mark"].share for one in (old, restarted)] == pytest.approx([0.3, 0.3])
    units = [f"user-{number}" for number in range(100)]
    assert [old.arm_of(one) for one in units] == [restarted.arm_of(one) for one in units]


def test_other_guards_are_no_other_experiment(make: Make) -> None:
    make(guards=[Guard("error_rate")])
    make(guards=[Guard("error_rate", above=0.1), Guard("end_to_end")])


def test_only_arms_that_there_are_can_be_ramped_ended_and_resumed(make: Make) -> None:
    experiment = make()

    for act in (experiment.end, experiment.resume):
        for name in ("control", "marc"):
            with pytest.raises(
                ConfigurationError, match=r"expected the name of an arm beside the reference \('mark'\)"
            ):
                act(name)
    with pytest.raises(ConfigurationError, match="has not ended"):
        experiment.resume("mark")
    with pytest.raises(ConfigurationError, match="takes shares of 0 to 1"):
        experiment.ramp(mark=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "takes quality=..., 0 to 1, or parsed="),
        ({"quality": 2}, "takes a number from 0 to 1, got 2"),
        ({"quality": "good"}, "takes a number from 0 to 1"),
        ({"parsed": "secret answer"}, "takes True or False, got a str"),
    ],
)
def test_a_score_that_is_none_is_told(make: Make, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        make().score("a call", **given)

    assert words in str(error.value)
    assert "secret" not in str(error.value)


def test_a_client_takes_an_experiment_and_nothing_else() -> None:
    wrong: Any = "encoding"
    with pytest.raises(ConfigurationError, match=r"experiment takes a fastlane\.Experiment, got a str"):
        fastlane.OpenAI(api_key="sk-test", experiment=wrong)


def test_importing_fastlane_loads_no_experiments() -> None:
    import subprocess
    import sys

    code = "import sys, fastlane; print({'fastlane.experiments', 'sqlite3', 'redis'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "set()"


def test_what_the_store_cannot_change_is_an_error_of_fastlanes_own(tmp_path: Path) -> None:
    path = tmp_path / "experiment.sqlite"
    experiment = Experiment("one", ARMS, share={"mark": 0.5}, store=path)
    for file in tmp_path.iterdir():
        file.unlink()
    path.mkdir()

    with pytest.raises(FastlaneError, match=r"the store of the experiment 'one' is away \(OperationalError\)"):
        experiment.ramp(mark=0.6)
