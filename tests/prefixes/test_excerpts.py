from __future__ import annotations

from typing import Any

import pytest

from fastlane.plays.prompt_cache.prefixes import CacheRules, Ledger
from fastlane.records.prompt import Drift
from fastlane.records.usage import Usage

POLICY = {"role": "system", "content": "Two bags of up to 23 kg are free of charge. " * 40}
ASKED = {"role": "user", "content": "May I bring two bags?"}
TOOLS = [{"type": "function", "function": {"name": name, "description": name * 40}} for name in "abc"]


def drift_between(*bodies: dict[str, Any]) -> Drift:
    """What the last of these prompts differs in from those before."""
    ledger = Ledger(quotes=True)
    for now_ns, body in enumerate(bodies):
        sighting = ledger.sight(
            origin="https://api.example.com:443",
            model="m",
            endpoint="/chat/completions",
            body={"messages": [POLICY, ASKED], **body},
            rules=CacheRules(automatic=True),
            now_ns=now_ns,
        )
        drift = sighting.settle(Usage(), answered=True, now_ns=now_ns).drift
    assert drift is not None
    return drift


def test_both_prompts_are_quoted_from_a_little_before_the_difference() -> None:
    then, now = (
        [{**POLICY, "content": POLICY["content"] + f"Request {number}. " + POLICY["content"]}, ASKED]
        for number in (17, 18)
    )

    drift = drift_between({"messages": then}, {"messages": now})

    assert drift.before is not None
    assert drift.after is not None
    assert "Request 17" in drift.before
    assert "Request 18" in drift.after
    assert len(drift.before) == len(drift.after) == 160


@pytest.mark.parametrize("by_value", [{"before": "longer than an hour"}, {"before": 4}], ids=["a text", "a number"])
def test_a_value_deep_inside_a_tool_is_quoted_alone(by_value: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"x": [1, {"of": by_value["before"]}]}}}
    other = {"type": "function", "function": {"name": "look", "parameters": {"x": [1, {"of": "a day"}]}}}

    drift = drift_between({"tools": [*TOOLS, tool]}, {"tools": [*TOOLS, other]})

    assert drift.path == "tools[3].function.parameters.x[1].of"
    assert (drift.before, drift.after) == (str(by_value["before"]), "a day")


def test_of_a_tool_that_is_new_nothing_is_quoted_of_the_prompt_before() -> None:
    drift = drift_between({"tools": TOOLS[:2]}, {"tools": TOOLS})

    assert (drift.kind, drift.path, drift.before) == ("changed_tool", "tools[2]", None)
    assert drift.after is not None
    assert "ccc" in drift.after


def test_of_a_tool_that_is_gone_nothing_is_quoted_of_this_prompt() -> None:
    drift = drift_between({"tools": TOOLS}, {"tools": TOOLS[:2]})

    assert (drift.kind, drift.path, drift.after) == ("changed_tool", "tools[2]", None)
    assert drift.before is not None
    assert "ccc" in drift.before


def test_of_another_model_or_parameter_nothing_is_quoted() -> None:
    drift = drift_between({"service_tier": "flex"}, {"service_tier": "priority"})

    assert (drift.kind, drift.before, drift.after) == ("changed_parameter", None, None)
