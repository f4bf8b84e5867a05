"""Beside other instrumentations of openai, really installed: one span a call, and no tool's prompts lost.

An instrumentation changes openai for its whole process. Each has one here, which makes all of its calls at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fastlane.emulator import Emulator
from tests.programs import printed_by

OFFICIAL = "opentelemetry.instrumentation.genai.openai"
OPENLLMETRY = "opentelemetry.instrumentation.openai.v1"
OPENINFERENCE = "openinference.instrumentation.openai"
HTTP = "opentelemetry.instrumentation.httpx"
OURS = "fastlane"

STAMPED = [
    "chat", "chat_stream", "chat_closed", "chat_abandoned", "chat_helper", "chat_parse", "chat_raw", "response",
    "response_stream", "response_helper", "response_parse", "async_chat", "async_chat_stream", "async_chat_closed",
    "async_chat_helper", "async_chat_parse", "async_response", "async_response_stream", "async_response_helper",
]  # fmt: skip
EMBEDDINGS = ["embeddings", "async_embeddings"]
EVERYTHING = [*STAMPED, *EMBEDDINGS, "completion", "post"]
FEW = ["chat", "chat_stream", "async_chat", "async_chat_stream"]

DURATION = "gen_ai.client.operation.duration"
ADDED = "fastlane.attempt.count"

Call = dict[str, Any]
Steps = list[dict[str, Any]]


class Came:
    """What came of a program's calls, by the phase that they were made in."""

    def __init__(self, printed: dict[str, Any]) -> None:
        self.calls: dict[str, list[Call]] = printed["calls"]
        self.logs: list[str] = printed["logs"]


def run(provider: Emulator, steps: Steps) -> Came:
    provider.reset()  # another module may have left it with faults
    command = ("-m", "tests.telemetry.coexisting", json.dumps([{"client": "own"}, *steps]))
    environment = {**provider.environment, "COEXISTING_URL": provider.base_url}
    return Came(json.loads(printed_by(*command, environment=environment).splitlines()[-1]))


def writers(call: Call) -> list[str]:
    """Whose spans there are of a call as a whole."""
    whole = [span for span in call["spans"] if span["scope"] != OURS or "gen_ai.request.model" in span["attributes"]]
    return [span["scope"] for span in whole if span["scope"] != "application"]


def by_whom(calls: Sequence[Call]) -> dict[str, list[str]]:
    return {call["call"]: writers(call) for call in calls}


def metrics_of(calls: Sequence[Call], scope: str) -> set[str]:
    """The conventions' metrics that any tool recorded."""
    return {name for call in calls for name in call["metrics"].get(scope, ()) if name.startswith("gen_ai.")}


def results(calls: Sequence[Call]) -> dict[str, tuple[Any, Any]]:
    return {call["call"]: (call["result"], call["error"]) for call in calls}


def parents(call: Call) -> list[tuple[str, str, str | None]]:
    return [(span["scope"], span["name"], span["parent"]) for span in call["spans"]]


@pytest.fixture(scope="module")
def official(running_provider: Emulator) -> Came:
    return run(running_provider, [
        {"then": "alone"}, {"calls": EVERYTHING},
        {"then": "beside"}, {"instrument": "official"}, {"calls": EVERYTHING},
        {"then": "phases"}, {"settings": {"level": "phases"}}, {"calls": FEW},
        {"then": "uninstrumented"}, {"uninstrument": "official"}, {"calls": [*FEW, "embeddings"]},
        {"then": "capturing"}, {"environment": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}},
        {"instrument": "official"}, {"calls": ["chat", "response_helper"]},
    ])  # fmt: skip


@pytest.fixture(scope="module")
def openllmetry(running_provider: Emulator) -> Came:
    return run(running_provider, [
        {"then": "alone"}, {"calls": EVERYTHING},
        {"then": "beside"}, {"instrument": "openllmetry"}, {"calls": EVERYTHING},
        {"then": "phases"}, {"settings": {"level": "phases"}}, {"calls": FEW},
    ])  # fmt: skip


@pytest.fixture(scope="module")
def openinference(running_provider: Emulator) -> Came:
    return run(running_provider, [
        {"then": "alone"}, {"calls": EVERYTHING},
        {"then": "beside"}, {"instrument": "openinference"}, {"calls": EVERYTHING},
        {"then": "phases"}, {"settings": {"level": "phases"}}, {"calls": FEW},
    ])  # fmt: skip


@pytest.fixture(scope="module")
def http(running_provider: Emulator) -> Came:
    steps: Steps = [{"instrument": "httpx"}]
    for client in ("own", "stock"):
        steps += [
            {"client": client},
            {"then": f"{client}, call"}, {"calls": FEW},
            {"then": f"{client}, inside"}, {"calls_inside": ["chat"]},
            {"then": f"{client}, attempts"}, {"settings": {"level": "attempts"}}, {"calls": [*FEW, "async_given_up"]},
            {"then": f"{client}, phases"}, {"settings": {"level": "phases"}}, {"calls": FEW},
        ]  # fmt: skip
    return run(running_provider, steps)


# Theirs, with what we know beside it.


@pytest.mark.slow
def test_official_instrumentation_gets_added_attributes(official: Came) -> None:
    beside = official.calls["beside"]
    # It knows nothing of legacy completions and of `client.post()`.
    expected = {name: [OURS if name in ("completion", "post") else OFFICIAL] for name in EVERYTHING}
    assert by_whom(beside) == expected
    for call in beside:
        (span,) = call["spans"]
        assert ADDED in span["fastlane"], call["call"]
        assert not metrics_of([call], OURS if writers(call) == [OFFICIAL] else OFFICIAL), call["call"]
    assert by_whom(official.calls["alone"]) == {name: [OURS] for name in EVERYTHING}
    assert by_whom(official.calls["uninstrumented"]) == {name: [OURS] for name in [*FEW, "embeddings"]}
    assert by_whom(official.calls["capturing"]) == {"chat": [OFFICIAL], "response_helper": [OFFICIAL]}
    assert all(span["has_prompt"] for call in official.calls["capturing"] for span in call["spans"])


@pytest.mark.slow
def test_openllmetry_writes_the_span_and_ours_adds_to_it(openllmetry: Came) -> None:
    beside = openllmetry.calls["beside"]
    # It knows nothing of `client.post()`.
    assert by_whom(beside) == {name: [OURS if name == "post" else OPENLLMETRY] for name in EVERYTHING}
    *theirs, post = beside
    assert post["call"] == "post"
    for call in theirs:
        (span,) = call["spans"]
        assert span["has_prompt"], call["call"]
        # It makes the span of a response when that is over; and of a stream that is left, before we know what it was.
        if "response" not in call["call"] and call["call"] not in ("chat_closed", "chat_abandoned"):
            assert ADDED in span["fastlane"], call["call"]
    assert not metrics_of(theirs, OURS)
    assert DURATION in metrics_of(theirs, OPENLLMETRY)


@pytest.mark.slow
def test_openinference_writes_the_span_and_ours_adds_to_it(openinference: Came) -> None:
    beside = openinference.calls["beside"]
    assert by_whom(beside) == {name: [OPENINFERENCE] for name in EVERYTHING}
    for call in beside:
        (span,) = call["spans"]
        assert span["has_prompt"], call["call"]
        if call["call"] not in ("chat_abandoned", "chat_raw"):  # which it ends before we know what they were
            assert ADDED in span["fastlane"], call["call"]
    # It records no metrics.
    assert DURATION in metrics_of(beside, OURS)


@pytest.mark.parametrize(
    ("tool", "scope"), [("official", OFFICIAL), ("openllmetry", OPENLLMETRY), ("openinference", OPENINFERENCE)]
)
def test_request_and_phase_spans_are_below_the_foreign_span(
    request: pytest.FixtureRequest, tool: str, scope: str
) -> None:
    for call in request.getfixturevalue(tool).calls["phases"]:
        (sent,) = [span for span in call["spans"] if span["name"] == "POST"]
        assert (sent["scope"], sent["parent"]) == (OURS, scope)
        assert sum(span["is_root"] for span in call["spans"]) == 1


# All of them.


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["official", "openllmetry", "openinference"])
def test_coexisting_tools_do_not_change_answers(request: pytest.FixtureRequest, tool: str) -> None:
    phases = dict(request.getfixturevalue(tool).calls)
    alone = results(phases.pop("alone"))
    for phase, calls in phases.items():
        came = results([call for call in calls if call["call"] != "async_given_up"])
        assert came == {name: alone[name] for name in came}, phase


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["official", "openllmetry", "openinference", "http"])
def test_coexisting_tool_logs_nothing(request: pytest.FixtureRequest, tool: str) -> None:
    # (pydantic's warnings are of what OpenLLMetry makes of an answer.)
    logs = request.getfixturevalue(tool).logs
    assert [line for line in logs if "pydantic" not in line] == []


# The HTTP client's.


@pytest.mark.parametrize("client", ["own", "stock"])
def test_http_span_is_written_by_one_instrumentation(http: Came, client: str) -> None:
    # Over our own connections it would see nothing: the span is ours at every level, so that they need not be left.
    writer = OURS if client == "own" else HTTP
    for call in http.calls[f"{client}, call"]:
        assert sorted(parents(call)) == sorted([(writer, "POST", OURS), (OURS, "chat m", None)], key=str)
        if client == "own":
            assert {span["protocol"] for span in call["spans"] if span["name"] == "POST"} == {"2"}
    for call in http.calls[f"{client}, inside"]:
        assert {(writer, "POST", OURS), (OURS, "chat m", "application")} <= set(parents(call))
    for call in (*http.calls[f"{client}, attempts"], *http.calls[f"{client}, phases"]):
        assert [scope for scope, name, _ in parents(call) if name == "POST"] == [OURS]
        assert {span["scope"] for span in call["spans"]} == {OURS}
        # If no other tool has to see the request, it goes over our connections.
        protocols = {span["protocol"] for span in call["spans"] if span["name"] == "POST"}
        if call["call"] != "async_given_up":
            assert protocols == {"2" if client == "own" else "1.1"}
        assert sum(span["is_root"] for span in call["spans"]) == 1
