"""What applications do every day, and what broke nothing."""

from __future__ import annotations

from random import Random
from typing import Any

from fastlane.plays.prompt_cache.prefixes import CacheRules, Ledger
from fastlane.records.prompt import PromptCacheRecord
from fastlane.records.usage import Usage

RULES = CacheRules(automatic=True, minimum_tokens=1_024, block_tokens=128, lifetime_s=300.0)
SYSTEM = {"role": "system", "content": "Two bags of up to 23 kg are free of charge. " * 130}


def said(role: str, random: Random) -> dict[str, Any]:
    words = ("fare", "bag", "seat", "gate", "meal", "visa", "crew", "flight", "refund", "delay")
    return {"role": role, "content": " ".join(random.choice(words) for _ in range(60))}


class Provider:
    """A provider that keeps every prompt of each model, and counts a token for four characters."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.kept: dict[str, list[str]] = {}
        self.calls = 0

    def call(self, messages: list[dict[str, Any]], model: str = "large") -> PromptCacheRecord:
        self.calls += 1
        sighting = self.ledger.sight(
            origin="https://api.example.com:443",
            model=model,
            endpoint="/chat/completions",
            body={"messages": messages},
            rules=RULES,
            now_ns=self.calls,
        )
        text = "".join(str(message) for message in messages)
        kept = self.kept.setdefault(model, [])
        cached = RULES.kept(max((len(_common(text, one)) for one in kept), default=0) // 4)
        kept.append(text)
        usage = Usage(input_tokens=len(text) // 4, cached_tokens=cached)
        return sighting.settle(usage, answered=True, now_ns=self.calls)


def _common(one: str, other: str) -> str:
    count = next((at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), None)
    return one[: min(len(one), len(other)) if count is None else count]


def test_two_models_that_are_asked_the_same_turn_by_turn_lose_nothing_by_each_other() -> None:
    provider, random = Provider(), Random(1)
    messages = [SYSTEM]
    kinds = []
    for _ in range(6):
        messages.append(said("user", random))
        for model in ("large", "small"):
            drift = provider.call(messages, model).drift
            kinds.append(None if drift is None else drift.kind)
        messages.append(said("assistant", random))

    # Once, when what the first one had read was new to the second.
    assert kinds == [None, "changed_model", *[None] * 10]


def test_a_conversation_that_changes_to_another_model_says_so() -> None:
    provider, random = Provider(), Random(2)
    messages = [SYSTEM, *(said(role, random) for _ in range(8) for role in ("user", "assistant")), said("user", random)]
    provider.call([SYSTEM, said("user", random)], "small")
    provider.call(messages)

    drift = provider.call([*messages, said("assistant", random), said("user", random)], "small").drift

    assert drift is not None
    assert drift.kind == "changed_model"


def test_examples_that_are_drawn_anew_for_each_call_broke_nothing() -> None:
    provider, random = Provider(), Random(3)
    examples = [(said("user", random), said("assistant", random)) for _ in range(10)]
    drifts = []
    for _ in range(20):
        drawn = [message for example in random.sample(examples, 4) for message in example]
        drifts.append(provider.call([SYSTEM, *drawn, said("user", random)]).drift)

    assert drifts == [None] * 20


def test_a_window_of_the_last_messages_says_what_it_costs() -> None:
    provider, random = Provider(), Random(4)
    messages: list[dict[str, Any]] = []
    kinds = []
    for _ in range(8):
        messages.append(said("user", random))
        drift = provider.call([SYSTEM, *messages[-8:]]).drift
        kinds.append(None if drift is None else drift.kind)
        messages.append(said("assistant", random))

    assert kinds == [*[None] * 4, *["compacted"] * 4]
