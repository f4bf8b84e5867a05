"""What a call's record says of what was saved on it, each figure with how it is known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import fastlane
from fastlane import CallRecord
from fastlane.emulator import Emulator
from fastlane.records import (
    BoundedOutputRecord,
    ContextTrimmingRecord,
    Cut,
    Entry,
    HedgingRecord,
    PromptCacheRecord,
    RejectedAnswer,
    RequestEncodingRecord,
    RoutingRecord,
    Usage,
)
from tests.reports.made import attempt, record

MESSAGES: Any = [{"role": "user", "content": "Is water wet?"}]


class Read(dict[str, Entry]):
    """The savings of a record; a figure that is unknown is None."""

    def __getattr__(self, name: str) -> Any:
        return self[name].value if name in self else None


def savings_of(record: CallRecord) -> Read:
    return Read(record.savings)


def basis_of(savings: Read, name: str) -> str:
    return savings[name].basis


def encoded(**more: Any) -> RequestEncodingRecord:
    given: dict[str, Any] = {"form": "json+gzip", "reason": "smaller", "plain_bytes": 9_000, "sent_bytes": 2_000}
    return RequestEncodingRecord(**{**given, "cpu_s": 0.001, **more})


def hedged(**more: Any) -> HedgingRecord:
    return HedgingRecord(**{"delay_s": 0.2, "hedged": True, "won": True, "why_not": None, **more})


def routed(**more: Any) -> RoutingRecord:
    given: dict[str, Any] = {
        "asked": "fastlane/auto", "task": None, "min_quality": None, "min_pass_rate": None, "quantile": 0.5,
        "reason": "fastest", "candidates": (), "chosen": "near", "model": "near", "provider": "p", "predicted_s": 1.0,
        "predicted_first_token_s": 0.2, "actual_s": 0.9,
    }  # fmt: skip
    return RoutingRecord(**{**given, **more})


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    assert record(attempts=()).savings == {}


def test_the_bytes_of_all_attempts_count_and_the_answering_one_says_whether_it_found_its_connection() -> None:
    attempts = (
        attempt(opened=True, request_body_bytes=1_000, response_body_bytes=None),
        attempt(kind="retry", number=2, at=8, request_body_bytes=1_000, response_body_bytes=70),
    )
    savings = savings_of(record(attempts=attempts))

    assert (savings.request_bytes, savings.response_bytes, savings.connection_reused) == (2_000, 70, True)
    assert basis_of(savings, "request_bytes") == "measured"


def test_an_encoded_body_says_what_it_saved_and_its_seconds_are_a_prediction() -> None:
    savings = savings_of(record(request_encoding=encoded()))

    assert (savings.encoding_bytes, savings.encoding_cpu_s) == (7_000, 0.001)
    assert basis_of(savings, "encoding_bytes") == "measured"


def test_a_body_that_grew_says_so() -> None:
    assert savings_of(record(request_encoding=encoded(plain_bytes=100, sent_bytes=120))).encoding_bytes == -20


def test_a_body_that_went_out_as_json_saved_nothing_and_may_have_cost_something() -> None:
    savings = savings_of(record(request_encoding=encoded(form="json")))

    assert (savings.encoding_bytes, savings.encoding_cpu_s) == (None, 0.001)


def test_what_was_expected_of_a_cache_is_an_estimate_and_what_it_read_the_providers_word() -> None:
    cache = PromptCacheRecord(
        family="f", prompt_tokens=2_000, reusable_tokens=1_900, expected_tokens=1_792, cached_tokens=1_536
    )
    savings = savings_of(record(prompt_cache=cache, usage=Usage(input_tokens=2_000, cached_tokens=1_536)))

    assert (savings.cache_expected_tokens, savings.cache_read_tokens) == (1_792, 1_536)
    assert (basis_of(savings, "cache_expected_tokens"), basis_of(savings, "cache_read_tokens")) == (
        "estimated",
        "reported",
    )


def test_a_provider_that_says_nothing_of_its_cache_has_not_read_nothing() -> None:
    assert savings_of(record(usage=Usage(input_tokens=2_000))).cache_read_tokens is None
    assert savings_of(record(usage=Usage(input_tokens=2_000, cached_tokens=0))).cache_read_tokens == 0


@pytest.mark.parametrize(("won", "outcome"), [(True, "won"), (False, "lost"), (None, None)])
def test_a_hedge_was_won_or_lost_and_what_it_cost_is_an_estimate(won: bool | None, outcome: str | None) -> None:
    savings = savings_of(record(hedging=hedged(won=won, extra_input_tokens=40, extra_price=0.5)))

    assert (savings.hedge, savings.hedge_tokens, savings.hedge_price) == (outcome, 40, 0.5)
    assert basis_of(savings, "hedge_tokens") == "estimated"


def test_a_call_that_was_not_hedged_has_neither_won_nor_lost() -> None:
    assert savings_of(record(hedging=hedged(hedged=False, won=None))).hedge is None


def test_money_is_known_only_where_the_catalog_has_prices() -> None:
    assert savings_of(record(routing=routed())).price is None
    assert savings_of(record(routing=routed(price=0.25))).price == 0.25
    assert savings_of(record()).price is None
    assert (savings_of(record(routing=routed())).fallbacks, savings_of(record()).fallbacks) == (0, None)


def test_answers_that_were_asked_for_again_are_spent_and_estimated_where_one_of_them_is() -> None:
    counted = RejectedAnswer(verdict="invalid", problem="x", input_tokens=10, output_tokens=5)
    guessed = dataclasses.replace(counted, estimated=True)
    certain = savings_of(record(output=BoundedOutputRecord(rejected=(counted, counted))))
    doubtful = savings_of(record(output=BoundedOutputRecord(rejected=(counted, guessed))))

    assert (certain.rejected_answers, certain.rejected_tokens) == (2, 30)
    assert (basis_of(certain, "rejected_tokens"), basis_of(doubtful, "rejected_tokens")) == ("reported", "estimated")


def test_what_was_cut_and_what_was_not_generated_is_said() -> None:
    output = BoundedOutputRecord(tokens_not_generated=70, ceiling_tokens=90)
    cut = Cut(kind="turn", path="messages[1]", tokens=5_000)
    trimming = ContextTrimmingRecord(tokens_before=9_000, tokens_after=4_000, cuts=(cut,))
    savings = savings_of(record(output=output, context_trimming=trimming, service_tier="flex"))

    assert (savings.tokens_not_generated, savings.trimmed_tokens) == (70, 5_000)
    assert savings.tier == "flex"
    uncut = record(context_trimming=ContextTrimmingRecord(tokens_before=9, tokens_after=9))
    assert savings_of(uncut).trimmed_tokens is None


def test_savings_are_part_of_the_records_json() -> None:
    data = json.loads(json.dumps(record(request_encoding=encoded(), hedging=hedged()).to_dict()))["savings"]
    assert data["encoding_bytes"] == {"value": 7_000, "unit": "By", "basis": "measured"}
    assert data["hedge"] == {"value": "won", "unit": "", "basis": "measured"}


def test_a_real_call_says_what_the_provider_saw(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        for _ in range(2):
            client.chat.completions.create(model="m", messages=MESSAGES)
        first, second = map(savings_of, client.calls)

    assert (first.connection_reused, second.connection_reused) == (False, True)
    assert [first.request_bytes, second.request_bytes] == [request.bytes_in for request in provider.log()]
    assert first.response_bytes is not None
    assert first.response_bytes > 100
    assert (second.hedge, second.price, second.encoding_bytes) == (None, None, None)
