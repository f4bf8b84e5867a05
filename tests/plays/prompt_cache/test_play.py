"""The play with real clients: what it adds to calls, what records say, and what it remembers."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, PromptCache
from fastlane.emulator import Emulator
from fastlane.errors import ConfigurationError
from fastlane.providers import ProviderFacts, registered
from fastlane.records import Usage
from tests.knowledge.forks import held_by_another_thread, in_child
from tests.plays.facts import fact
from tests.plays.prompt_cache.provider import CHAT, SentPrompt, call, facts, planned_by

POLICY = "You answer questions about our airline's policy.\n" + "Two bags of up to 23 kg are free of charge.\n" * 150


def conversation(*more: dict[str, Any], question: str = "May I bring two bags?") -> Any:
    return [{"role": "system", "content": POLICY}, {"role": "user", "content": question}, *more]


@pytest.fixture
def known(provider: Emulator) -> Iterator[None]:
    """The embedded provider is known to keep prompts and to take a key, and has kept none of another test's."""
    provider.forget_prompts()
    with registered(facts(key_field="prompt_cache_key"), origins=[provider.base_url]):
        yield


# What is planned


def test_growing_conversation_gets_its_key_without_a_drift(known: None, arguments: dict[str, Any]) -> None:
    sentence = "Two bags of up to 23 kg are free of charge. "
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    with fastlane.OpenAI(**arguments, only_plays=[PromptCache()], raise_play_errors=True) as client:
        for _ in range(12):
            messages.append({"role": "user", "content": sentence * 10})
            client.chat.completions.create(model="m", messages=messages)
        records = client.calls

    keyed = [bool(record.changes) for record in records]
    assert keyed == sorted(keyed)
    assert set(keyed) == {False, True}
    seen: list[Any] = [record.prompt_cache for record in records]
    assert [one.drift for one in seen if one is not None] == [None] * len(records)
    assert seen[-1].cached_tokens


@pytest.mark.parametrize(
    ("play", "body", "key_field"),
    [
        (PromptCache(key=False), {}, "prompt_cache_key"),
        (PromptCache(), {"prompt_cache_key": "theirs"}, "prompt_cache_key"),
        (PromptCache(), {}, None),
    ],
    ids=["switched off", "the caller's own", "unknown provider"],
)
def test_key_is_not_added_if_off_given_or_unknown(play: PromptCache, body: dict[str, Any], key_field: Any) -> None:
    known = facts(key_field=key_field) if key_field else None
    given = call({"model": "m", "messages": conversation(), **body}, facts=known)

    planned = planned_by(play, given)

    assert planned.body is given.body
    assert (planned.changes, planned.optional) == ((), ())


def test_volatile_messages_are_expected_in_no_later_call() -> None:
    play, reported = PromptCache(), []
    for number in (0, 1, 2, 2):
        now = {"role": "system", "content": f"It is 10:0{number}. " * 40}
        body = {"model": "m", "messages": [*conversation(), now]}
        reported.append(SentPrompt(play, call(body, placements=("stable", "session", "volatile"))).end(Usage(), number))

    assert [record.drift for record in reported] == [None] * 4
    assert reported[1].reusable_tokens > 1_024
    assert reported[1].reusable_tokens == reported[2].reusable_tokens == reported[3].reusable_tokens


# What the records say


def cache_record(client: Any) -> Any:
    return client.last_call.prompt_cache


def test_record_has_expected_and_cached_tokens(known: None, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, raise_play_errors=True) as client:
        for messages in (conversation(), conversation({"role": "assistant", "content": "Yes."})):
            client.chat.completions.create(model="m", messages=messages)
        records: Any = client.calls
        first, second = (record.prompt_cache for record in records)

        assert (first.reusable_tokens, first.expected_tokens, first.drift) == (0, 0, None)
        assert second.cached_tokens == client.calls[1].usage.cached_tokens == second.expected_tokens
        assert second.cached_tokens > 1_024
        assert second.hit_ratio == second.cached_tokens / second.prompt_tokens
        assert second.drift is None
        assert second.key is not None
        assert client.calls[1].changes == ("PromptCache added prompt_cache_key",)
        assert client.calls[1].to_dict()["prompt_cache"]["hit_ratio"] == second.hit_ratio
        client.prompt_cache.clear()
        client.chat.completions.create(model="m", messages=conversation())
        assert cache_record(client).reusable_tokens == 0


LIMITED = facts(key_field="prompt_cache_key", requests_per_key_per_minute=15.0)


def test_expected_tokens_of_many_questions_match_the_cache(provider: Emulator, arguments: dict[str, Any]) -> None:
    """More calls than one cache key may have in a minute are spread over several keys, and the provider has one cache.

    Calls with other prompts stand in between. An estimate may be wrong by one block.
    """
    provider.forget_prompts()
    with (
        registered(LIMITED, origins=[provider.base_url]),
        fastlane.OpenAI(**arguments, raise_play_errors=True) as client,
    ):
        for number in range(80):
            question = f"Question {number}: {'and again, ' * (number % 40)}how many bags?"
            client.chat.completions.create(model="m", messages=conversation(question=question))
            record = cache_record(client)
            assert record.drift is None
            assert not number or abs(record.expected_tokens - record.cached_tokens) <= 128
            if not number % 10:
                other = f"Night train {number}: " + "The conductor decides. " * 300
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": other}])

    assert record.shards > 1


def test_expected_tokens_in_a_fleet_are_those_of_the_key(provider: Emulator, arguments: dict[str, Any]) -> None:
    """In a fleet each key has a machine: what was sent under another key is not expected there."""
    provider.change(cache_machines=1 << 20)
    seen: set[Any] = set()
    with (
        registered(LIMITED, origins=[provider.base_url]),
        fastlane.OpenAI(**arguments, raise_play_errors=True) as client,
    ):
        for number in range(60):
            client.responses.create(model="m", instructions=POLICY, input=f"Question {number}?")
            record = cache_record(client)
            assert (record.reusable_tokens > 0) == (record.key in seen)
            assert (record.cached_tokens > 0, record.drift) == (record.key in seen, None)
            seen.add(record.key)

    assert len(seen) > 5


def test_cached_tokens_are_read_from_the_facts_path(provider: Emulator, arguments: dict[str, Any]) -> None:
    path = "usage.prompt_cache_hit_tokens"
    provider.change(dialect={"cached_tokens_path": path})
    elsewhere = ProviderFacts(slug="example", usage={CHAT: fact({"input": "usage.prompt_tokens", "cached": path})})
    with (
        registered(elsewhere, origins=[provider.base_url]),
        fastlane.OpenAI(**arguments, raise_play_errors=True) as client,
    ):
        for _ in range(2):
            client.chat.completions.create(model="m", messages=conversation())
        record: Any = client.last_call

    assert record.usage.cached_tokens > 1_024
    assert record.prompt_cache.cached_tokens == record.usage.cached_tokens


# What the provider refuses


def test_refused_key_is_left_out_from_then_on(known: None, provider: Emulator, arguments: dict[str, Any]) -> None:
    provider.change(dialect={"refused_fields": ("prompt_cache_key",)})
    with fastlane.OpenAI(**arguments, raise_play_errors=True) as client:
        for _ in range(2):
            client.chat.completions.create(model="m", messages=conversation())
        calls: Any = client.calls

    assert [entry.status for entry in provider.log()] == [400, 200, 200]
    assert [[attempt.kind for attempt in record.attempts] for record in calls] == [["first", "plain"], ["first"]]
    assert "sent again without prompt_cache_key" in calls[0].changes[-1]
    assert calls[1].changes == ()
    assert [record.prompt_cache.key for record in calls] == [None, None]
    assert calls[1].prompt_cache.reusable_tokens > 1_024


# client.prompt_cache


def test_client_without_prompt_cache_play_names_the_remedy(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[Connection()]) as client, pytest.raises(ConfigurationError) as raised:
        client.prompt_cache.clear()

    assert "add PromptCache() to only_plays" in str(raised.value)


# What is remembered


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_history_torn_by_a_fork_begins_anew(provider: Emulator, arguments: dict[str, Any]) -> None:
    play = PromptCache()
    history = play.history
    with fastlane.OpenAI(**arguments, plays=[play], raise_play_errors=True) as client:
        client.chat.completions.create(model="m", messages=conversation())
        with held_by_another_thread(history.lock):
            assert in_child(lambda: len(history.lines)) == 0

    assert len(history.lines) == 1
    assert in_child(lambda: len(history.lines)) == 1


def test_ended_call_keeps_nothing_of_its_prompt(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, max_retries=0) as client:
        client.chat.completions.create(model="m", messages=conversation())
        list(client.chat.completions.create(model="m", messages=conversation(), stream=True))
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[])
        stream = client.chat.completions.create(model="m", messages=conversation(), stream=True)
        del stream
        gc.collect()

        assert len(client.calls) == 4
        assert not [one for one in gc.get_objects() if type(one).__name__ == "SentPrompt" and one.kept[0]]
