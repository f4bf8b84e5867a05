"""Tiers end to end: asked for, served, full, refused; over TLS and HTTP/2, synchronous and asynchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from fastlane import BoundedOutput, Urgency, urgency
from fastlane._clock import now_ns
from fastlane.emulator import Emulator
from fastlane.engine import refused_fields as _refused_fields
from fastlane.engine.refused_fields import REFUSED_FOR_NS
from fastlane.providers import facts_named, registered
from fastlane.records.plays import Level
from tests.attempts.scripted import Upstream, refuse
from tests.plays.urgency.tiered import KINDS, MESSAGES, MODEL, Caller, statuses

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("tiered")]
both_kinds = pytest.mark.parametrize("kind", KINDS)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@asynccontextmanager
async def calling(kind: str, provider: Emulator | Upstream, *plays: Any, **options: Any) -> AsyncIterator[Caller]:
    caller = Caller(kind, provider, *plays, **options)
    try:
        yield caller
    finally:
        await caller.close()


def asked(provider: Emulator) -> list[str | None]:
    return [request.asked_tier for request in provider.log()]


async def read_timeout(caller: Caller, level: Level, **more: Any) -> float:
    """What the request that was answered has for a time-out, in seconds."""
    with urgency(level):
        raw = caller.client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, **more)
        if caller.is_async:
            raw = await raw
    seconds: float = raw.http_response.request.extensions["timeout"]["read"]
    return seconds


@both_kinds
@streamed
async def test_a_call_that_can_wait_is_served_by_the_tier_that_suits_it(
    kind: str, stream: bool, tiered: Emulator
) -> None:
    async with calling(kind, tiered) as caller:
        await caller.call(level="background", stream=stream)
        await caller.call(stream=stream)

        waiting, interactive = caller.client.calls
    assert waiting.urgency is not None
    assert (waiting.urgency.urgency, waiting.urgency.asked_tier, waiting.urgency.served_tier) == (
        "background", "flex", "flex",
    )  # fmt: skip
    assert interactive.urgency is not None
    assert (interactive.urgency.urgency, interactive.urgency.asked_tier) == ("interactive", None)
    assert interactive.urgency.served_tier == "default"
    assert asked(tiered) == ["flex", None]
    assert [waiting.savings[name].value for name in ("tier_asked", "tier")] == ["flex", "flex"]


@both_kinds
@streamed
async def test_a_full_tier_leads_to_the_next_at_once(kind: str, stream: bool, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0, "retry_after_s": 60.0}})
    async with calling(kind, tiered, max_retries=0) as caller:
        await caller.call(level="offline", stream=stream)

        record = caller.last
    # No retry is left, and sixty seconds were asked for.
    assert statuses(record) == [("first", 429), ("plain", 200)]
    assert record.outcome == "completed"
    assert record.urgency is not None
    assert record.urgency.full_tier == "flex"
    assert (record.urgency.asked_tier, record.urgency.served_tier) == ("default", "default")
    assert record.changes[-1] == "asked for 'default', because the tier 'flex' has no capacity"


@pytest.fixture
def scripted(trusting_peers: None) -> Iterator[Upstream]:
    """A server that does as it is told, for what the emulated provider would not say, with OpenAI's facts."""
    with (
        Upstream("scripted") as upstream,
        registered(facts_named("openai"), origins=[upstream.url.removesuffix("/v1")]),
    ):
        yield upstream


@both_kinds
async def test_a_tier_that_is_full_on_a_later_attempt_takes_no_retry_either(kind: str, scripted: Upstream) -> None:
    scripted.scripts = [refuse(500), refuse(429, code="resource_unavailable")]
    async with calling(kind, scripted, max_retries=1) as caller:
        await caller.call(level="background")

        record = caller.last
    assert statuses(record) == [("first", 500), ("retry", 429), ("plain", 200)]
    assert [body.get("service_tier") for body in scripted.asked] == ["flex", "flex", "default"]


@both_kinds
async def test_a_retry_that_was_used_before_the_tier_was_full_is_not_given_again(kind: str, scripted: Upstream) -> None:
    scripted.scripts = [refuse(500), refuse(429, code="resource_unavailable"), refuse(500)]
    async with calling(kind, scripted, max_retries=1) as caller:
        with pytest.raises(openai.InternalServerError):
            await caller.call(level="background")

        assert statuses(caller.last) == [("first", 500), ("retry", 429), ("plain", 500)]


@both_kinds
async def test_where_the_next_tier_fails_too_the_retries_are_those_that_were_left(kind: str, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    tiered.change(service_tiers={"default": {"exhausted": 1.0}})
    async with calling(kind, tiered, max_retries=1) as caller:
        with pytest.raises(openai.RateLimitError):
            await caller.call(level="background")

        record = caller.last
    # Exactly one fall; then openai's own one retry, of the usual tier.
    assert statuses(record) == [("first", 429), ("plain", 429), ("retry", 429)]
    assert asked(tiered) == ["flex", "default", "default"]


@both_kinds
@pytest.mark.parametrize("code", ["rate_limit_exceeded", "insufficient_quota", None])
async def test_a_rate_limit_is_no_full_tier(kind: str, code: str | None, scripted: Upstream) -> None:
    scripted.scripts = [refuse(429, code=code)]
    async with calling(kind, scripted, max_retries=0) as caller:
        with pytest.raises(openai.RateLimitError):
            await caller.call(level="background")

        record = caller.last
    assert statuses(record) == [("first", 429)]
    assert record.urgency is not None
    assert record.urgency.full_tier is None
    assert record.urgency.asked_tier == "flex"


@both_kinds
async def test_a_tier_that_is_not_for_this_key_is_left_and_not_asked_for_again(kind: str, scripted: Upstream) -> None:
    scripted.scripts = [refuse(403, param="service_tier")]
    async with calling(kind, scripted, max_retries=0) as caller:
        await caller.call(level="background")
        await caller.call(level="background")

        first, second = caller.client.calls
    assert (statuses(first), statuses(second)) == ([("first", 403), ("plain", 200)], [("first", 200)])
    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, None]


@both_kinds
@pytest.mark.parametrize("status", [400, 403])
async def test_a_tier_is_refused_only_where_the_call_succeeds(kind: str, status: int, scripted: Upstream) -> None:
    scripted.scripts = [refuse(status, param="service_tier"), refuse(400)]
    async with calling(kind, scripted, max_retries=0) as caller:
        with pytest.raises(openai.BadRequestError):
            await caller.call(level="background")
        await caller.call(level="background")

    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, "flex"]


@both_kinds
@pytest.mark.parametrize("status", [400, 403])
async def test_a_refused_tier_is_asked_for_again_after_an_hour(
    kind: str, status: int, scripted: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.scripts = [refuse(status, param="service_tier")]
    async with calling(kind, scripted, max_retries=0) as caller:
        await caller.call(level="background")
        await caller.call(level="background")
        after_ns = now_ns() + REFUSED_FOR_NS
        monkeypatch.setattr(_refused_fields, "now_ns", lambda: after_ns)
        await caller.call(level="background")

    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, None, "flex"]


@both_kinds
async def test_a_tier_that_one_key_has_not_got_is_asked_for_with_another(kind: str, scripted: Upstream) -> None:
    scripted.scripts = [refuse(403, param="service_tier")]
    async with calling(kind, scripted) as caller:
        await caller.call(level="background")
        caller.client = caller.client.with_options(api_key="sk-other")
        await caller.call(level="background")

    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, "flex"]


@both_kinds
async def test_another_refusal_of_the_key_stays_one(kind: str, scripted: Upstream) -> None:
    scripted.scripts = [refuse(403, param="model")]
    async with calling(kind, scripted, max_retries=0) as caller:
        with pytest.raises(openai.PermissionDeniedError):
            await caller.call(level="background")


@both_kinds
async def test_the_callers_own_tier_is_kept_though_it_is_full(kind: str, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    async with calling(kind, tiered, max_retries=0) as caller:
        with pytest.raises(openai.RateLimitError):
            await caller.call(level="background", service_tier="flex")

        record = caller.last
    assert statuses(record) == [("first", 429)]
    assert record.urgency is not None
    assert record.urgency.asked_tier == "flex"
    assert record.changes == ()


@both_kinds
async def test_a_caller_who_says_none_is_asked_for_none(kind: str, scripted: Upstream) -> None:
    async with calling(kind, scripted) as caller:
        await caller.call(level="background")
        await caller.call(level="background", service_tier=None)
        await caller.call(level="background")

        records = caller.client.calls
    assert [body.get("service_tier") for body in scripted.asked] == ["flex", None, "flex"]
    assert [record.urgency.asked_tier for record in records] == ["flex", None, "flex"]
    assert records[1].changes == ()


@both_kinds
async def test_tier_is_recorded_by_the_name_that_the_provider_says(kind: str, tiered: Emulator) -> None:
    async with calling(kind, tiered, Urgency(tiers=True)) as caller:
        await caller.call(service_tier="fast")

        record = caller.last
    assert record.urgency is not None
    assert (record.urgency.asked_tier, record.urgency.served_tier) == ("fast", "priority")


@both_kinds
@pytest.mark.parametrize(
    ("level", "options", "seconds"),
    [
        ("background", {}, 900.0),
        ("interactive", {}, 600.0),
        ("background", {"timeout": 40.0}, 40.0),
    ],
    ids=["flex", "usual", "the caller's own"],
)
async def test_time_outs_fit_the_tier(
    kind: str, level: Level, options: dict[str, Any], seconds: float, tiered: Emulator
) -> None:
    async with calling(kind, tiered, **options) as caller:
        assert await read_timeout(caller, level) == seconds
        assert await read_timeout(caller, level, timeout=30.0) == 30.0


@both_kinds
async def test_the_next_tier_has_its_own_time_out(kind: str, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    async with calling(kind, tiered) as caller:
        assert await read_timeout(caller, "background") == 600.0

        assert statuses(caller.last) == [("first", 429), ("plain", 200)]


@both_kinds
async def test_a_repair_asks_no_full_tier_again(kind: str, tiered: Emulator) -> None:
    tiered.change(service_tiers={"flex": {"exhausted": 1.0}})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}
    headers = {"x-emulator-output-text": "no JSON"}
    async with calling(kind, tiered, BoundedOutput(reasks=1), Urgency(tiers=True), raise_play_errors=False) as caller:
        with pytest.raises(openai.OpenAIError):
            await caller.call(level="background", response_format=form, extra_headers=headers)

    assert asked(tiered) == ["flex", "default", "default"]
