"""Full tiers of calls with several attempts: routed to another model, and hedged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fastlane import Hedging, Urgency
from fastlane.providers import Fact, ProviderFacts, facts_named, registered
from tests.attempts.scripted import KINDS, Asked, Script, Upstream, answer, refuse, routing, say_nothing, used_to
from tests.plays.urgency.conftest import statuses
from tests.waiting import until

both_kinds = pytest.mark.parametrize("kind", KINDS)
FULL = refuse(429, code="resource_unavailable")
PATIENT = Urgency(default="background", tiers=True)


def facts_of_any_model() -> ProviderFacts:
    """OpenAI's facts, with the cheap tier for every model."""
    facts = facts_named("openai")
    flex: Fact[Any] = next(iter(facts.tiers.patient.values()))
    return facts.model_copy(update={"tiers": facts.tiers.model_copy(update={"patient": {"*": flex}})})


@pytest.fixture
def upstreams(trusting_peers: None) -> Iterator[tuple[Upstream, Upstream]]:
    """Two servers with OpenAI's facts, of which "near" is the faster."""
    with ExitStack() as stack:
        near, far = (stack.enter_context(Upstream(name)) for name in ("near", "far"))
        origins = [upstream.url.removesuffix("/v1") for upstream in (near, far)]
        stack.enter_context(registered(facts_of_any_model(), origins=origins))
        yield near, far


def tiers(upstream: Upstream) -> list[Any]:
    return [body.get("service_tier") for body in upstream.asked]


def where_full(then: Script) -> Script:
    """Refuse the cheap tier for want of room, and do something else at any other."""

    def script(upstream: Upstream, stream: Any, body: dict[str, Any]) -> None:
        (FULL if body.get("service_tier") == "flex" else then)(upstream, stream, body)

    return script


@both_kinds
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_routed_call_tries_the_next_tier_before_fallback(
    kind: str, stream: bool, upstreams: tuple[Upstream, Upstream]
) -> None:
    near, far = upstreams
    near.usually = where_full(answer("from near"))
    with Asked(kind, near.url, routing(near, far), PATIENT) as asked:
        assert asked.text(stream=stream).strip() == "from near"

        record: Any = asked.record
    assert (tiers(near), tiers(far)) == (["flex", "default"], [])
    assert statuses(record) == [("first", 429), ("plain", 200)]
    assert record.routing.fallbacks == ()
    assert record.urgency.full_tier == "flex"


@both_kinds
def test_routed_call_falls_back_when_every_tier_is_full(kind: str, upstreams: tuple[Upstream, Upstream]) -> None:
    near, far = upstreams
    near.usually = FULL
    with Asked(kind, near.url, routing(near, far), PATIENT) as asked:
        assert asked.text().strip() == "from far"

        record: Any = asked.record
    # Elsewhere it begins with the tier that suits it.
    assert (tiers(near), tiers(far)) == (["flex", "default"], ["flex"])
    assert [fallback.why for fallback in record.routing.fallbacks] == ["rate_limit"]
    assert record.urgency.full_tier is None


@both_kinds
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_second_attempt_falls_to_the_next_tier_by_itself(
    kind: str, stream: bool, upstreams: tuple[Upstream, Upstream]
) -> None:
    near, _ = upstreams
    with Asked(kind, near.url, Hedging(budget=1.0), PATIENT) as asked:
        used_to(asked, near, model="gpt-5.4")
        near.scripts = [say_nothing, FULL]
        assert asked.text("gpt-5.4", stream=stream).strip() == "from near"

        record: Any = asked.record
    assert tiers(near) == ["flex", "flex", "default"]
    assert [(attempt.kind, attempt.status_code, attempt.given_up) for attempt in record.attempts] == [
        ("first", None, "lost"), ("hedge", 429, None), ("plain", 200, None),
    ]  # fmt: skip
    assert record.urgency.full_tier == "flex"
    until(lambda: near.silent[0].reset is not None)
