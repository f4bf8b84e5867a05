"""The play with real clients: what it adds to calls, what records say, and what it remembers."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, PromptCache
from fastlane.emulator import Dialect, Emulator, preset
from fastlane.errors import ConfigurationError
from fastlane.providers import ProviderFacts, registered
from fastlane.records import Usage
from tests.call_peer import CallPeer, Reply
from tests.knowledge.forks import held_by_another_thread, in_child
from tests.plays.facts import fact
from tests.plays.prompt_cache.provider import CHAT, SentPrompt, call, facts, planned_by
from tests.waiting import Form

POLICY = "You answer questions about our airline's policy.\n" + "Two bags of up to 23 kg are free of charge.\n" * 150


def conversation(system: str = POLICY, *more: dict[str, Any]) -> Any:
    return [{"role": "system", "content": system}, {"role": "user", "content": "May I bring two bags?"}, *more]


@pytest.fixture
def known(provider: Emulator) -> Iterator[None]:
    """The embedded provider is known to keep prompts and to take a key, and has kept none of another test's."""
    provider.forget_prompts()
    with registered(facts(key_field="prompt_cache_key"), origins=[provider.base_url]):
        yield


PLACEMENTS = ("stable", "session", "volatile")


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
        reported.append(SentPrompt(play, call(body, placements=PLACEMENTS)).end(Usage(), number))

    assert [record.drift for record in reported] == [None] * 4
    assert reported[1].reusable_tokens > 1_024
    assert reported[1].reusable_tokens == reported[2].reusable_tokens == reported[3].reusable_tokens


# What the records say


def cache_record(client: Any) -> Any:
    return client.last_call.prompt_cache


def test_record_has_expected_and_cached_tokens(known: None, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, raise_play_errors=True) as client:
        for messages in (conversation(), conversation(POLICY, {"role": "assistant", "content": "Yes."})):
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


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
def test_expected_tokens_of_300_questions_match_the_cache(
    provider: Emulator, arguments: dict[str, Any], endpoint: str
) -> None:
    """More calls than one cache key may have in a minute are spread over several keys, and the provider has one cache.

    Calls with other prompts stand in between. An estimate may be wrong by one block.
    """
    questions, block = 300, 128
    provider.forget_prompts()
    limited = facts(key_field="prompt_cache_key", requests_per_key_per_minute=15.0)
    asked = conversation()[:1]
    wrong: list[Any] = []
    with (
        registered(limited, origins=[provider.base_url]),
        fastlane.OpenAI(**arguments, raise_play_errors=True) as client,
    ):
        for number in range(questions):
            question = f"Question {number}: {'and again, ' * (number % 40)}how many bags?"
            if endpoint == "chat":
                client.chat.completions.create(model="m", messages=[*asked, {"role": "user", "content": question}])
            else:
                client.responses.create(model="m", instructions=POLICY, input=question)
            record = cache_record(client)
            if number and abs(record.expected_tokens - record.cached_tokens) > block:
                wrong.append((number, record.reusable_tokens, record.expected_tokens, record.cached_tokens))
            if record.drift is not None:
                wrong.append((number, record.drift.kind, record.drift.path))
            if not number % 10:
                other = f"Night train {number}: " + "The conductor decides. " * 300
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": other}])

    assert wrong == []
    assert record.shards > 1


def test_expected_tokens_in_a_fleet_are_those_of_the_key(provider: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fleet each key has a machine: what was sent under another key is not expected there."""
    model = dataclasses.replace(provider.model, cache_machines=1 << 20)
    limited = facts(key_field="prompt_cache_key", requests_per_key_per_minute=15.0)
    seen: set[Any] = set()
    with Emulator(model=model) as fleet, registered(limited, origins=[fleet.base_url]):
        for name, value in fleet.environment.items():
            monkeypatch.setenv(name, value)
        client = fastlane.OpenAI(api_key="sk-test", base_url=fleet.base_url, raise_play_errors=True)
        for number in range(60):
            client.responses.create(model="m", instructions=POLICY, input=f"Question {number}?")
            record = cache_record(client)
            assert (record.reusable_tokens > 0) == (record.key in seen)
            assert (record.cached_tokens > 0, record.drift) == (record.key in seen, None)
            seen.add(record.key)
        client.close()

    assert len(seen) > 5


def test_cached_tokens_are_read_from_the_facts_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "usage.prompt_cache_hit_tokens"
    elsewhere = ProviderFacts(slug="example", usage={CHAT: fact({"input": "usage.prompt_tokens", "cached": path})})
    with Emulator(model=replace(preset("instant"), dialect=Dialect(cached_tokens_path=path))) as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        with (
            registered(elsewhere, origins=[provider.base_url]),
            fastlane.OpenAI(base_url=provider.base_url, api_key="none", raise_play_errors=True) as client,
        ):
            for _ in range(2):
                client.chat.completions.create(model="m", messages=conversation())
            record: Any = client.calls[1]

    assert record.usage.cached_tokens > 1_024
    assert record.prompt_cache.cached_tokens == record.usage.cached_tokens


# What the provider refuses


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_refused_key_is_left_out_from_then_on(stream: bool, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator(model=replace(preset("instant"), dialect=Dialect(refused_fields=("prompt_cache_key",)))) as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        options: dict[str, Any] = {"base_url": provider.base_url, "api_key": "none", "raise_play_errors": True}
        with (
            registered(facts(key_field="prompt_cache_key"), origins=[provider.base_url]),
            form.make(fastlane, **options) as client,
        ):
            for _ in range(2):
                answer = client.chat.completions.create(model="m", messages=conversation(), stream=stream)
                assert not stream or list(answer)
            calls = client.calls
        statuses = [entry.status for entry in provider.log()]

    assert statuses == [400, 200, 200]
    assert [[attempt.kind for attempt in record.attempts] for record in calls] == [["first", "plain"], ["first"]]
    assert [record.outcome for record in calls] == ["completed", "completed"]
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


@pytest.mark.parametrize("kind", ["read", "raw", "helper", "responses"])
def test_collected_stream_does_not_wait_for_the_lock(kind: str, provider: Emulator, arguments: dict[str, Any]) -> None:
    play = PromptCache()
    history = play.history
    with fastlane.OpenAI(**arguments, plays=[play]) as client:
        kept: list[Any] = []
        asked: dict[str, Any] = {"model": "m", "messages": conversation()}
        if kind == "read":
            stream: Any = client.chat.completions.create(**asked, stream=True)
        elif kind == "raw":
            stream = client.chat.completions.with_raw_response.create(**asked, stream=True).parse()
        elif kind == "helper":
            stream = client.chat.completions.stream(**asked).__enter__()
        else:
            stream = client.responses.create(model="m", input=conversation(), stream=True)
        next(iter(stream))
        kept.append(stream)
        del stream

        def collect() -> None:
            with history.lock:
                kept.clear()
                gc.collect()

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(20)

        assert not thread.is_alive()
        # Which of the two finalisers comes first is the collector's to say.
        assert client.calls[-1].outcome in {"abandoned", "closed"}
        assert len(history.lines) == 1


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


def test_error_that_quotes_the_key_does_not_take_it_away(one_peer: CallPeer) -> None:
    def reply(asked: Any) -> Reply:
        body = json.loads(asked.body)
        if len(body["messages"]) > 1:
            return Reply()
        reported = {"detail": [{"loc": ["body", "messages"], "msg": "too short", "input": body}]}
        return Reply(status=422, body=json.dumps(reported).encode())

    one_peer.usually = reply
    url = f"{one_peer.url}/v1"
    with registered(facts(key_field="prompt_cache_key"), origins=[url]):
        plays = [Connection(http2="never"), PromptCache()]
        with fastlane.OpenAI(base_url=url, api_key="sk-test", only_plays=plays, raise_play_errors=True) as client:
            with pytest.raises(openai.UnprocessableEntityError):
                client.chat.completions.create(model="m", messages=conversation()[:1])
            client.chat.completions.create(model="m", messages=conversation())

    assert ["prompt_cache_key" in json.loads(asked.body) for asked in one_peer.take()] == [True, True]
