from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from fastlane import Connection, OpenAI, Urgency
from fastlane.engine.call import Call
from fastlane.errors import ConfigurationError
from fastlane.plays import Stage
from fastlane.providers import facts_named
from fastlane.records.plays import LEVELS, CallUrgency, Level

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
    assert repr(Urgency()) == "Urgency()"
    assert repr(Urgency(default="background", max_concurrency=4)) == "Urgency(default='background', max_concurrency=4)"
    assert eval(repr(Urgency(tiers={"interactive": "priority"}))) == Urgency(tiers={"interactive": "priority"})


def test_settings_are_frozen_and_named() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Urgency().default = "offline"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Urgency("offline")  # type: ignore[call-arg]
    assert Urgency.stage is Stage.SHAPE
    assert Urgency.keeps_bodies
    assert Urgency.needs_facts


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"default": "soon"}, '"interactive", "background" or "offline", got \'soon\''),
        ({"default": None}, "got None"),
        ({"tiers": {"soon": "flex"}}, "takes True, False or tiers by level"),
        ({"tiers": {"background": ""}}, "takes True, False or tiers by level"),
        ({"tiers": "flex"}, "got 'flex'"),
        ({"max_wait_s": -1}, "Urgency(max_wait_s=...) takes seconds from 0, or None, got -1"),
        ({"max_wait_s": float("inf")}, "got inf"),
        ({"max_wait_s": True}, "got True"),
        ({"max_concurrency": 0}, "Urgency(max_concurrency=...) takes a whole number from 1, or None, got 0"),
        ({"reserved": 1}, "Urgency(reserved=...) takes a number from 0 below 1, got 1"),
        ({"ageing_s": 0}, "Urgency(ageing_s=...) takes seconds above 0, got 0"),
        ({"max_queued": None}, "Urgency(max_queued=...) takes a whole number from 1, got None"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Urgency(**settings)

    assert words in str(raised.value)


# What it does to a call


@pytest.mark.parametrize("level", LEVELS)
def test_what_the_application_says_counts_more_than_the_default(level: Level) -> None:
    for default in LEVELS:
        suits = {"interactive": None, "background": "flex", "offline": "flex"}
        assert planned(Urgency(default=default, tiers=True), call(level)).body.get("service_tier") == suits[level]
        assert planned(Urgency(default=default, tiers=True), call()).body.get("service_tier") == suits[default]


@pytest.mark.parametrize(("level", "asked"), [("interactive", None), ("background", "flex"), ("offline", "flex")])
def test_calls_that_can_wait_ask_for_the_tier_that_suits_them(level: Level, asked: str | None) -> None:
    asking = planned(Urgency(tiers=True), call(level))

    assert asking.body.get("service_tier") == asked
    assert asking.changes == (() if asked is None else ("Urgency asked for the tier 'flex'",))
    assert asking.optional == (() if asked is None else ("service_tier=flex",))


@pytest.mark.parametrize(
    "made",
    [
        lambda: call("background", service_tier="priority"),
        lambda: call("background", service_tier="auto"),
        lambda: call("background", model="gpt-4.1"),
        lambda: call("background", model="gpt-5-chat-latest"),
        lambda: call("background", facts=None),
        lambda: call("background", facts=facts_named("deepseek")),
        lambda: call("background", facts=facts_named("cerebras")),
        lambda: dataclasses.replace(call("background"), endpoint="/completions"),
    ],
    ids=["the caller's own", "auto", "no flex", "gpt-5-chat", "no facts", "no tiers", "preview", "endpoint"],
)
def test_bodies_stay_as_they_are(made: Callable[[], Call]) -> None:
    before = made()

    after = planned(Urgency(tiers=True), before)

    assert after.body is before.body
    assert after.changes == ()


@pytest.mark.parametrize("level", LEVELS)
def test_without_tiers_no_call_asks_for_one(level: Level) -> None:
    assert planned(Urgency(), call(level)).body == call(level).body


def test_the_application_may_say_which_tier_a_level_asks_for() -> None:
    play = Urgency(tiers={"interactive": "priority", "background": None})

    assert planned(play, call("interactive")).body["service_tier"] == "priority"
    assert "service_tier" not in planned(play, call("background")).body
    assert planned(play, call("offline")).body["service_tier"] == "flex"
    # A provider of which nobody has looked, and one that has no tiers, or none of the name.
    assert planned(play, call("interactive", facts=None)).body["service_tier"] == "priority"
    assert "service_tier" not in planned(play, call("interactive", facts=facts_named("deepseek"))).body
    assert "service_tier" not in planned(play, call("interactive", facts=facts_named("groq"))).body


def test_a_tier_that_an_upstream_has_refused_is_not_asked_for_again() -> None:
    play = Urgency(tiers=True)
    assert planned(play, call("background")).body["service_tier"] == "flex"

    refused = call("background").replaced(refused=frozenset({"service_tier=flex"}))
    assert "service_tier" not in planned(play, refused).body
    assert planned(play, call("background")).body["service_tier"] == "flex"


def test_a_client_takes_the_play_beside_others() -> None:
    with OpenAI(api_key="sk-test", only_plays=[Connection(), Urgency()], raise_play_errors=True) as client:
        assert client._fastlane is not None
        assert client._fastlane.pipeline.fingerprint[1] == "Urgency()"
