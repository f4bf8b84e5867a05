"""`client.report()` after real calls, with the plays that act on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, Connection, Hedging, PromptCache, RequestEncoding, Routing
from fastlane.catalog import Catalog, ModelPrice
from fastlane.emulator import Emulator, preset
from fastlane.providers import ProviderFacts, registered
from tests.attempts.scripted import (
    KINDS,
    Asked,
    Upstream,
    answer,
    model_at,
    refuse,
    say_nothing,
    used_to,
)
from tests.plays.facts import fact

POLICY = "Two bags of up to 23 kg are free of charge.\n" * 300
SCHEMA = {
    "type": "object",
    "properties": {"category": {"type": "string", "enum": ["billing", "bug"]}},
    "required": ["category"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": SCHEMA, "strict": True}}


def messages(question: str = "May I bring two bags?") -> Any:
    return [{"role": "system", "content": POLICY}, {"role": "user", "content": question}]


@pytest.fixture
def running_provider() -> Iterator[Emulator]:
    """A provider of one test: a connection that another test's client has left open would be reused."""
    with Emulator(model=preset("instant"), seed=0) as provider:
        yield provider


@pytest.fixture
def takes_gzip(provider: Emulator) -> Iterator[None]:
    facts = ProviderFacts(slug="example", encodings={"/chat/completions": fact(["json", "json+gzip"])})
    with registered(facts, origins=[provider.base_url]):
        yield


@pytest.mark.usefixtures("takes_gzip")
def test_report_says_where_the_time_went_and_what_was_saved(provider: Emulator, arguments: dict[str, Any]) -> None:
    plays = [Connection(), RequestEncoding(), PromptCache(), BoundedOutput()]
    with fastlane.OpenAI(**arguments, only_plays=plays, max_retries=0) as client:
        for number in range(5):
            with fastlane.user_action("answer ticket"):
                stream = client.chat.completions.create(
                    model="m", messages=messages(f"{number}?"), stream=True, stream_options={"include_usage": True}
                )
                assert list(stream)
        client.chat.completions.create(model="n", messages=messages()[1:], response_format=FORMAT)
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="", messages=[])
        report = client.report()
        log = provider.log()

    ledger, plays_by_name = report.ledger, {played.play: played for played in report.plays}
    assert (report.calls, report.everything.answered, dict(report.outcomes)) == (7, 6, {"completed": 6, "failed": 1})
    assert {group.model: group.calls for group in report.models if group.answered} == {"m": 5, "n": 1}
    assert [(group.user_action, group.calls) for group in report.user_actions] == [("answer ticket", 5)]
    assert [(one.error, one.status_code) for one in report.unanswered] == [("BadRequestError", 400)]
    assert report.everything.phases["tls"].seconds.n == 1
    assert report.everything.metrics["time_to_first_token_s"].n == 6, "one was streamed underneath"
    shares = [found.share for found in report.everything.phases.values() if found.share is not None]
    assert sum(shares) == pytest.approx(1, abs=0.05)

    sent = ledger.total("request_bytes")
    assert sent is not None
    assert (sent.value, sent.calls) == (sum(request.bytes_in for request in log), 7)
    saved = ledger.total("encoding_bytes")
    assert saved is not None
    assert saved.value == sum(request.bytes_in_decoded - request.bytes_in for request in log)
    assert saved.value > 0  # how many bodies are encoded depends on what encoding takes on this machine
    read = ledger.total("cache_read_tokens")
    assert read is not None
    assert read.value == sum(request.cached_tokens for request in log) > 0
    assert (ledger.connections_known, ledger.connections_reused) == (7, 6)
    opened = client.calls[0].attempts[0].wire
    assert opened.tls_ended_ns is not None
    assert opened.connect_started_ns is not None
    began_ns = opened.dns_started_ns or opened.connect_started_ns
    assert ledger.connections_saved_s == pytest.approx(6 * (opened.tls_ended_ns - began_ns) / 1e9)

    assert (plays_by_name["Connection"].on, plays_by_name["Connection"].acted) == (7, 6)
    assert plays_by_name["RequestEncoding"].acted == saved.calls
    assert plays_by_name["PromptCache"].acted == sum(request.cached_tokens > 0 for request in log)
    assert plays_by_name["BoundedOutput"].acted == 1
    text = str(report)
    assert "answer ticket" in text
    assert POLICY[:20] not in text
    assert "23 kg" not in report.to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_hedge_that_won_is_counted_with_what_it_cost(kind: str, upstreams: tuple[Upstream, Upstream]) -> None:
    near, _ = upstreams
    with Asked(kind, near.url, Hedging(budget=1.0, minimum_delay_s=0.5)) as asked:
        used_to(asked, near, model="m")
        near.scripts = [say_nothing, answer("second")]
        assert asked.text("m", stream=True) == "second"
        report = asked.client.report()

    ledger = report.ledger
    made = ledger.total("hedges_made")
    assert made is not None
    assert (made.value, ledger.counts["hedge"]) == (1, {"won": 1})
    spent = ledger.total("hedge_tokens")
    assert spent is not None
    assert (spent.basis, spent.value > 0) == ("estimated", True)
    assert report.attempts == {"first": 23, "hedge": 1}
    hedged = report.everything.phases["earlier attempts"].seconds
    assert hedged.n == 1
    assert hedged.p50 > 0.02, "the wait before the second attempt"


def test_fallback_is_counted_and_money_is_the_catalogs(upstreams: tuple[Upstream, Upstream]) -> None:
    near, far = upstreams
    priced = Catalog(
        models=(
            model_at(near, first_token_s=0.01),
            model_at(far, first_token_s=0.5, price=ModelPrice(input=1.0, output=2.0)),
        )
    )
    with Asked("sync", near.url, Routing(priced, exploration=0.0)) as asked:
        near.scripts = [refuse(500)]
        assert asked.text().strip() == "from far"
        report = asked.client.report()

    (routing,) = [played for played in report.plays if played.play == "Routing"]
    assert (routing.on, routing.acted) == (1, 1)
    assert "1 left for another" in (routing.effect or "")
    fallbacks, price = report.ledger.total("fallbacks"), report.ledger.total("price")
    assert fallbacks is not None
    assert fallbacks.value == 1
    assert price is not None
    assert price.value == pytest.approx((5 * 1.0 + 2 * 2.0) / 1e6)
    assert report.attempts == {"first": 1, "fallback": 1}
    assert report.models[0].model == "far-1"
