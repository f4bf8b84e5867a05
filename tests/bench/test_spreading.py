from __future__ import annotations

from fastlane.bench import Benchmark, Closed, Open
from fastlane.bench._spreading import is_heavy, processes_for


def an_experiment(*users: int) -> Benchmark:
    return Benchmark(arms=("baseline",), again=False, load=Closed(users=users))


def test_a_small_load_needs_no_calibration() -> None:
    assert not is_heavy(an_experiment(1, 8, 25))
    assert is_heavy(an_experiment(26))
    assert not is_heavy(Benchmark(arms=("baseline",), load=Open(rates=(500.0,))))


def test_a_load_beyond_half_of_what_its_client_takes_is_spread_over_processes() -> None:
    """Six hundred users of 100 tokens a second are more than openai's client takes in one process on any machine."""
    processes, sentence = processes_for(an_experiment(600))

    assert processes > 1
    assert "600 users at 100 tokens/s each are up to 60,000 chunks/s" in sentence
    assert "processes share the lanes" in sentence


def test_a_user_is_not_divided() -> None:
    processes, sentence = processes_for(an_experiment(1, 600))

    assert processes == 1
    assert "of which the cell of 1 user leaves 1" in sentence
