"""Tiers end to end: asked for, served, full, refused; over TLS and HTTP/2, synchronous and asynchronous."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, Connection, Urgency, urgency
from fastlane.emulator import Emulator
from fastlane.providers import facts_named, registered
from tests.attempts.scripted import MESSAGES, Upstream, chunk, refuse, say, whole
from tests.plays.urgency.conftest import statuses
from tests.waiting import Form

pytestmark = pytest.mark.usefixtures("tiered")
MODEL = "gpt-5.4"
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def client_of(form: Form, provider: Emulator | Upstream, *plays: Any, **options: Any) -> Any:
    url = provider.base_url if isinstance(provider, Emulator) else provider.url
    settings: dict[str, Any] = {"base_url": url, "api_key": "sk-test", "raise_play_errors": True, **options}
    settings["only_plays"] = [Connection(), *(plays or (Urgency(tiers=True),))]
    return form.make(fastlane, **settings)


def call(client: Any, *, level: Any = None, **more: Any) -> None:
    """Make a call, and read it whole."""
    with nullcontext() if level is None else urgency(level):
        result = client.chat.completions.create(model=MODEL, messages=MESSAGES, **more)
        if more.get("stream"):
            list(result)


def asked(provider: Emulator) -> list[str | None]:
    return [request.asked_tier for request in provider.log()]


@streamed
def test_background_call_is_served_by_the_flex_tier(form: Form, stream: bool, tiered: Emulator) -> None:
    with client_of(form, tiered) as client:
        call(client, level="background", stream=stream)
        call(client, stream=stream)

        waiting, interactive = client.calls
    assert (waiting.urgency.urgency, waiting.urgency.asked_tier, waiting.urgency.served_tier) == (
        "background", "flex", "flex",
    )  # fmt: skip
    assert (interactive.urgency.urgency, interactive.urgency.asked_tier) == ("interactive", None)
    assert interactive.urgency.served_tier == "default"
    assert asked(tiered) == ["flex", None]
    assert [waiting.savings[name].value for name in ("tier_asked", "tier")] == ["flex", "flex"]


@streamed
def test_full_tier_is_retried_at_the_next_tier_at_once(form: Form, stream: bool, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0, "retry_after_s": 60.0}})
    with client_of(form, tiered, max_retries=0) as client:
        call(client, level="offline", stream=stream)

        record = client.last_call
    # No retry is left, and the response requested sixty seconds.
    assert statuses(record) == [("first", 429), ("plain", 200)]
    assert record.outcome == "completed"
    assert record.urgency.full_tier == "flex"
    assert (record.urgency.asked_tier, record.urgency.served_tier) == ("default", "default")
    assert record.changes[-1] == "asked for 'default', because the tier 'flex' has no capacity"


@streamed
@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("cerebras", {"service_tier": "auto", "service_tier_used": "flex"}),
        ("mistral", {"usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "service_tier": "flex"}}),
    ],
)
def test_served_tier_is_where_the_provider_names_it(
    form: Form, stream: bool, name: str, named: dict[str, Any], trusting_peers: None
) -> None:
    last = f"{chunk(MODEL, {}, 'stop', **named).decode()}data: [DONE]\n\n".encode()
    plain = json.dumps(json.loads(whole(MODEL, "yes")) | named).encode()
    with Upstream(name) as upstream, registered(facts_named(name), origins=[upstream.url.removesuffix("/v1")]):
        upstream.usually = say(200, "text/event-stream", last) if stream else say(200, "application/json", plain)
        with client_of(form, upstream) as client:
            call(client, stream=stream)
            record = client.last_call
    assert (record.service_tier, record.urgency.served_tier) == ("flex", "flex")


@pytest.fixture
def scripted(trusting_peers: None) -> Iterator[Upstream]:
    """A scripted server with OpenAI's facts, for responses that the emulated provider never gives."""
    with (
        Upstream("scripted") as upstream,
        registered(facts_named("openai"), origins=[upstream.url.removesuffix("/v1")]),
    ):
        yield upstream


def test_full_tier_on_a_later_attempt_takes_no_retry(form: Form, scripted: Upstream) -> None:
    scripted.scripts = [refuse(500), refuse(429, code="resource_unavailable")]
    with client_of(form, scripted, max_retries=1) as client:
        call(client, level="background")

        record = client.last_call
    assert statuses(record) == [("first", 500), ("retry", 429), ("plain", 200)]
    assert [body.get("service_tier") for body in scripted.asked] == ["flex", "flex", "default"]


def test_failing_default_tier_uses_the_remaining_retries(form: Form, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    tiered.change(service_tiers={"default": {"exhausted": 1.0}})
    with client_of(form, tiered, max_retries=1) as client:
        with pytest.raises(openai.RateLimitError):
            call(client, level="background")

        record = client.last_call
    # Exactly one fall; then openai's own one retry, of the usual tier.
    assert statuses(record) == [("first", 429), ("plain", 429), ("retry", 429)]
    assert asked(tiered) == ["flex", "default", "default"]


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "insufficient_quota", None])
def test_rate_limit_is_no_full_tier(form: Form, code: str | None, scripted: Upstream) -> None:
    scripted.scripts = [refuse(429, code=code)]
    with client_of(form, scripted, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError):
            call(client, level="background")

        record = client.last_call
    assert statuses(record) == [("first", 429)]
    assert record.urgency.full_tier is None
    assert record.urgency.asked_tier == "flex"


def test_tier_refused_for_a_key_is_not_requested_again(form: Form, scripted: Upstream) -> None:
    scripted.scripts = [refuse(403, param="service_tier")]
    with client_of(form, scripted, max_retries=0) as client:
        call(client, level="background")
        call(client, level="background")

        first, second = client.calls
    assert (statuses(first), statuses(second)) == ([("first", 403), ("plain", 200)], [("first", 200)])
    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, None]


def test_full_tier_set_by_the_caller_is_kept(form: Form, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    with client_of(form, tiered, max_retries=0) as client:
        with pytest.raises(openai.RateLimitError):
            call(client, level="background", service_tier="flex")

        record = client.last_call
    assert statuses(record) == [("first", 429)]
    assert record.urgency.asked_tier == "flex"
    assert record.changes == ()


@pytest.mark.parametrize(
    ("level", "options", "seconds"),
    [
        ("background", {}, 900.0),
        ("interactive", {}, 600.0),
        ("background", {"timeout": 40.0}, 40.0),
    ],
    ids=["flex", "usual", "the caller's own"],
)
def test_read_timeout_follows_the_service_tier(
    form: Form, level: Any, options: dict[str, Any], seconds: float, tiered: Emulator
) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
    with client_of(form, tiered, **options) as client, urgency(level):
        raw = client.chat.completions.with_raw_response
        answers = [raw.create(**asked), raw.create(**asked, timeout=30.0)]

    assert [one.http_response.request.extensions["timeout"]["read"] for one in answers] == [seconds, 30.0]


def test_repair_does_not_request_a_full_tier_again(form: Form, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}
    headers = {"x-emulator-output-text": "no JSON"}
    plays = BoundedOutput(reasks=1), Urgency(tiers=True)
    with client_of(form, tiered, *plays, raise_play_errors=False) as client, pytest.raises(openai.OpenAIError):
        call(client, level="background", response_format=wanted, extra_headers=headers)

    assert asked(tiered) == ["flex", "default", "default"]
