"""Which plays a client has, by what it was made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import fastlane
from fastlane import BoundedOutput, Connection, Hedging, Play, PromptCache, Urgency

CLIENTS = ("OpenAI", "AsyncOpenAI")


@dataclass(frozen=True, slots=True)
class OwnConnection(Connection):
    """A connection play of an application's."""


@pytest.mark.parametrize(
    ("plays", "expected"),
    [
        (None, [Connection(), PromptCache()]),
        ([], [Connection(), PromptCache()]),
        ([Urgency(max_concurrency=8)], [Connection(), PromptCache(), Urgency(max_concurrency=8)]),
        ([BoundedOutput(), Connection(idle_s=9.0)], [Connection(idle_s=9.0), PromptCache(), BoundedOutput()]),
        ([PromptCache(breakpoints=True)], [Connection(), PromptCache(breakpoints=True)]),
        ([OwnConnection(idle_s=9.0)], [OwnConnection(idle_s=9.0), PromptCache()]),
    ],
    ids=["none", "empty", "another", "same-type", "second-default", "subclass"],
)
@pytest.mark.parametrize("name", CLIENTS)
def test_plays_adds_to_the_defaults(arguments: dict[str, Any], name: str, plays: Any, expected: list[Play]) -> None:
    client = getattr(fastlane, name)(**arguments, plays=plays)

    assert list(map(repr, client.plays)) == list(map(repr, expected))


@pytest.mark.parametrize("plays", [[], [Connection()], [Urgency(), Connection()]])
@pytest.mark.parametrize("name", CLIENTS)
def test_only_plays_gives_exactly_these(arguments: dict[str, Any], name: str, plays: list[Play]) -> None:
    client = getattr(fastlane, name)(**arguments, only_plays=plays)

    assert client.plays == tuple(plays)


@pytest.mark.parametrize("name", ["AzureOpenAI", "AsyncAzureOpenAI"])
def test_plays_of_azure_adds_to_the_defaults(azure_arguments: dict[str, Any], name: str) -> None:
    added = getattr(fastlane, name)(**azure_arguments, plays=[Hedging()])
    exact = getattr(fastlane, name)(**azure_arguments, only_plays=[Hedging()])

    assert [type(play) for play in added.plays] == [Connection, PromptCache, Hedging]
    assert [type(play) for play in exact.plays] == [Hedging]
