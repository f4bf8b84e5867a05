from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fastlane import Connection, OpenAI, Urgency
from fastlane.engine.call import Call
from fastlane.plays import Stage
from fastlane.providers import facts_named
from fastlane.records.plays import CallUrgency, Level

OPENAI = facts_named("openai")


def call(level: Level | None = None, *, model: str = "gpt-5.4", facts: Any = OPENAI, **body: Any) -> Call:
    return Call(
        call_id="1",
        endpoint="/chat/completions",
        origin="https://api.openai.com:443",
        body={"model": model, "messages": [], **body},
        stream=True,
        facts=facts,
        data={} if level is None else {CallUrgency: CallUrgency(level)},
    )


def planned(play: Urgency, asked: Call) -> Call:
    return play.open(asked).plan(asked)


# Settings


def test_the_repr_is_the_fingerprint() -> None:
    play = Urgency(default="background", max_concurrency=4)
    assert eval(repr(play)) == play


def test_settings_are_frozen_and_named() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Urgency().default = "offline"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Urgency("offline")  # type: ignore[call-arg]
    assert Urgency.stage is Stage.SHAPE
    assert Urgency.keeps_bodies
    assert Urgency.needs_facts


def test_a_tier_that_an_upstream_has_refused_is_not_asked_for_again() -> None:
    play = Urgency(tiers=True)
    assert planned(play, call("background")).body["service_tier"] == "flex"

    refused = call("background").replaced(refused=frozenset({"service_tier=flex"}))
    assert "service_tier" not in planned(play, refused).body
    assert planned(play, call("background")).body["service_tier"] == "flex"


def test_a_client_takes_the_play_beside_others() -> None:
    with OpenAI(api_key="sk-test", only_plays=[Connection(), Urgency()], raise_play_errors=True) as client:
        assert client._fastlane is not None
        assert client._fastlane.pipeline.fingerprint[1] == repr(Urgency())
