from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from typing import Any

import httpx2
import pytest

from fastlane.doctor._findings import ProviderFinding, found
from fastlane.doctor._model import count_paths, judge_format, look_first
from fastlane.doctor._session import DoctorSession, DoctorSettings, StatusError, target_of
from fastlane.providers import Fact, ProviderFacts


def fact(value: object) -> Fact[object]:
    return Fact(value=value, source="https://a.example", checked=date(2026, 11, 22), evidence="documented")


def known(**tables: object) -> ProviderFacts:
    return ProviderFacts.model_validate({"slug": "other", **tables})


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 0}}, "usage.prompt_tokens_details.cached_tokens"),
        ({"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 9}, "usage.prompt_cache_hit_tokens"),
        ({"cache_read_input_tokens": 0, "cache_creation_input_tokens": 9}, "usage.cache_read_input_tokens"),
        ({"prompt_tokens_details": None}, None),
        ({"prompt_tokens_details": {"cached_tokens": None}}, None),
    ],
)
def test_token_counts_are_found_in_any_known_usage_path(usage: dict[str, object], cached: str | None) -> None:
    paths = count_paths({"usage": {"prompt_tokens": 9, "completion_tokens": 1, **usage}}, "/chat/completions", None)

    assert paths.get("cached") == cached
    assert (paths["input"], paths["output"]) == ("usage.prompt_tokens", "usage.completion_tokens")


def test_documented_usage_path_is_preferred_if_present() -> None:
    facts = known(usage={"/chat/completions": fact({"cached": "usage.seen_before", "input": "usage.gone"})})

    paths = count_paths(
        {"usage": {"seen_before": 3, "cached_tokens": 2, "prompt_tokens": 9}}, "/chat/completions", facts
    )

    assert (paths["cached"], paths["input"]) == ("usage.seen_before", "usage.prompt_tokens")


def whole(content: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}, "finish_reason": finish_reason}]}


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("json_object", {"any": 1}, "seen"),
        ("json_object", [1], "notable"),
        ("json_schema", {"mood": "calm", "waves": 3, "is_blue": True}, "seen"),
        ("json_schema", {"mood": "sad", "waves": 3, "is_blue": True}, "notable"),
        ("json_schema", {"mood": "calm", "waves": True, "is_blue": True}, "notable"),
        ("json_schema", {"mood": "calm", "waves": 3, "is_blue": True, "more": 1}, "notable"),
        ("json_schema", {"mood": "calm"}, "notable"),
    ],
)
def test_response_format_is_judged_by_the_answer(name: str, value: object, state: str) -> None:
    finding = judge_format(name, 200, whole(json.dumps(value)))

    assert finding.state == state
    assert bool(finding.facts) is (state == "seen")


def test_prose_is_no_json_and_is_not_quoted() -> None:
    finding = judge_format("json_object", 200, whole("The sea sings."))

    assert finding.seen == "taken, but the answer is no JSON object"
    assert "sea sings" not in json.dumps(asdict(finding))


def test_truncated_or_refused_answer_gives_no_format_verdict() -> None:
    assert judge_format("json_schema", 200, whole('{"mood": "ca', "length")).state == "failed"
    assert judge_format("json_schema", 400, {}).state == "notable"
    assert judge_format("json_schema", 429, {}).state == "failed"


Reply = Callable[[dict[str, Any]], tuple[int, int]]
"""Status and output tokens for a request's body."""


def first_call(reply: Reply) -> tuple[DoctorSession, ProviderFinding, list[tuple[str, int]]]:
    asked: list[tuple[str, int]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        asked.extend((name, body[name]) for name in ("max_completion_tokens", "max_tokens") if name in body)
        status, tokens = reply(body)
        return httpx2.Response(status, json={"usage": {"completion_tokens": tokens}})

    http = httpx2.Client(transport=httpx2.MockTransport(handle))
    session = DoctorSession(settings=DoctorSettings(target=target_of("http://localhost/v1")), http=http, model="m")
    try:
        (finding,) = look_first(session)
    except StatusError as error:
        finding = found("first call", str(error), "error", value=error.status)
    return session, finding, asked


@pytest.mark.parametrize(
    ("reply", "limit", "refused", "ignored", "calls"),
    [
        (lambda _: (200, 1), ("max_completion_tokens", 1), [], [], 1),
        (
            lambda body: (200, 1) if "max_tokens" in body else (400, 0),
            ("max_tokens", 1),
            ["max_completion_tokens"],
            [],
            2,
        ),
        (
            lambda body: (200, 9) if body.get("max_completion_tokens", 0) >= 16 else (400, 0),
            ("max_completion_tokens", 16),
            [],
            [],
            3,
        ),
        (lambda body: (200, 1 if "max_tokens" in body else 64), ("max_tokens", 1), [], ["max_completion_tokens"], 2),
        (lambda _: (200, 64), ("max_tokens", 1), [], ["max_completion_tokens", "max_tokens"], 2),
    ],
)
def test_first_call_finds_the_name_of_the_limit(
    reply: Reply, limit: tuple[str, int], refused: list[str], ignored: list[str], calls: int
) -> None:
    session, finding, asked = first_call(reply)

    assert (session.limit_field, session.least_tokens) == limit
    assert (finding.value["refused_limits"], finding.value["ignored_limits"]) == (refused, ignored)
    assert len(asked) == calls
    assert (finding.state == "notable") is bool(ignored)


@pytest.mark.parametrize(("status", "requests"), [(400, 5), (401, 1), (500, 1)])
def test_first_call_that_is_refused_gives_its_status(status: int, requests: int) -> None:
    session, finding, asked = first_call(lambda _: (status, 0))

    assert finding.value == status
    assert len(asked) == requests
    assert session.first_headers is None
