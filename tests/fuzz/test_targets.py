"""A short form of the fuzz: every reader's seeds, inputs that are made of them, and any bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from tests.fuzz.failures import tried
from tests.fuzz.mutating import mutate
from tests.fuzz.targets import TARGETS, Target

INPUTS = {"sse": 150, "stream": 150, "h2": 400, "h1": 250, "json": 1_200}
"""How many inputs are made of seeds, where it is not 300: more where one takes little, fewer where it takes long."""


def wrong(target: Target, data: bytes) -> str | None:
    found = tried(target, data)
    return None if found is None else f"{data.hex()}: {found.told}"


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_wrong_with_what_is_read_as_it_is_meant(name: str) -> None:
    for data in TARGETS[name].seeds():
        assert wrong(TARGETS[name], data) is None


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_wrong_with_what_is_made_of_it_by_chance(name: str) -> None:
    target = TARGETS[name]
    seeds, draw = target.seeds(), random.Random(name)
    for _ in range(INPUTS.get(name, 300)):
        assert wrong(target, mutate(seeds, draw)) is None


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=40)
@given(data=st.binary(max_size=300))
def test_nothing_is_wrong_with_any_bytes(name: str, data: bytes) -> None:
    assert wrong(TARGETS[name], data) is None
