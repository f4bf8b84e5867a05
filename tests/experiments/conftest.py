"""Experiments of the tests: arms that differ by what their plays ask of the embedded provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import Call, Connection
from fastlane.experiments import Experiment
from tests.knowledge.redis_servers import redis_of_its_own as redis_of_its_own, redis_server as redis_server
from tests.session_play import SessionPlay

MODEL = "fast-1"
MESSAGES: Any = [{"role": "user", "content": "Name a river."}]


@dataclass(frozen=True, slots=True)
class Asking(SessionPlay):
    """Changes the responses of the embedded provider."""

    header: str
    value: str

    def plan(self, call: Call) -> Call:
        return call.replaced(headers={**call.headers, self.header: self.value}, changes=(*call.changes, self.header))


@dataclass(frozen=True, slots=True)
class Mark(SessionPlay):
    """Changes nothing, and says so on the record."""

    name: str = "mark"

    def plan(self, call: Call) -> Call:
        return call.replaced(changes=(*call.changes, self.name))


BAD_REQUEST = Asking("x-emulator-fault", "status=400")
CONTROL = (Connection(),)

Make = Callable[..., Experiment]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes experiments with a store of the test's own, and closes them after it."""
    made: list[Experiment] = []

    def make(name: str = "mark-2026", **settings: Any) -> Experiment:
        arms = settings.pop("arms", {"control": CONTROL, "mark": (Connection(), Mark())})
        share = settings.pop("share", {arm: 0.5 / (len(arms) - 1) for arm in list(arms)[1:]})
        store = settings.pop("store", tmp_path / "experiment.sqlite")
        made.append(Experiment(name, arms, share=share, store=store, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(client: fastlane.OpenAI, **settings: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **settings)


def ask_streaming(client: fastlane.OpenAI, **settings: Any) -> None:
    for _ in client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **settings):
        pass


def arm_of(client: fastlane.OpenAI) -> str:
    """The arm of the last call."""
    record = client.last_call
    assert record is not None
    assert record.experiment is not None
    return record.experiment.arm
