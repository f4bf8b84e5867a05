from __future__ import annotations

from typing import Any

from fastlane import Urgency
from fastlane.engine.call import Call
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


def test_a_tier_that_an_upstream_has_refused_is_not_asked_for_again() -> None:
    play = Urgency(tiers=True)
    assert planned(play, call("background")).body["service_tier"] == "flex"

    refused = call("background").replaced(refused=frozenset({"service_tier=flex"}))
    assert "service_tier" not in planned(play, refused).body
    assert planned(play, call("background")).body["service_tier"] == "flex"
