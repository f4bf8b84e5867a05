"""What a client remembers of prompts, where streams are dropped, calls go wrong and objects are copied."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import threading
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, PromptCache
from fastlane.emulator import Emulator
from fastlane.plays.prompt_cache.prefixes._ledger import Sighting
from fastlane.providers import registered
from tests.call_peer import CallPeer, Reply
from tests.knowledge.forks import in_child
from tests.plays.test_prompt_cache import conversation, facts


@pytest.mark.parametrize("kind", ["read", "raw", "helper", "responses"])
def test_a_stream_that_is_collected_while_its_thread_is_in_the_ledger_does_not_wait_for_it(
    kind: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        ledger = client.prompt_cache._memory().ledger
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
            with ledger._lock:
                kept.clear()
                gc.collect()

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(20)

        assert not thread.is_alive()
        assert client.last_call is not None
        # Which of the two finalisers comes first is the collector's to say.
        assert client.last_call.outcome in {"abandoned", "closed"}
        assert ledger.report().calls == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_ledger_torn_by_a_fork_begins_anew(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, strict=True) as client:
        client.chat.completions.create(model="m", messages=conversation())
        ledger = client.prompt_cache._memory().ledger
        is_inside, is_over = threading.Event(), threading.Event()

        def hold() -> None:
            with ledger._lock:
                is_inside.set()
                is_over.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert is_inside.wait(60)
        assert in_child(lambda: ledger.report().calls) == 0
        is_over.set()
        thread.join()

    assert ledger.report().calls == 1
    assert in_child(lambda: ledger.report().calls) == 1


def test_a_call_that_is_over_keeps_nothing_of_its_prompt(provider: Emulator, arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, max_retries=0) as client:
        client.chat.completions.create(model="m", messages=conversation())
        list(client.chat.completions.create(model="m", messages=conversation(), stream=True))
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[])
        stream = client.chat.completions.create(model="m", messages=conversation(), stream=True)
        del stream
        gc.collect()

        assert len(client.calls) == 4
        assert not [one for one in gc.get_objects() if type(one) is Sighting]


def test_a_copy_of_a_play_has_its_settings_and_remembers_nothing() -> None:
    play = PromptCache(quote=True, replicas=3)

    for copied in (pickle.loads(pickle.dumps(play)), copy.deepcopy(play)):
        assert copied == play
        assert copied.memory is not play.memory
        assert copied.memory.ledger.quotes


def test_an_error_that_only_quotes_the_key_does_not_take_it_from_later_calls(one_peer: CallPeer) -> None:
    def reply(asked: Any) -> Reply:
        body = json.loads(asked.body)
        if len(body["messages"]) > 1:
            return Reply()
        said = {"detail": [{"loc": ["body", "messages"], "msg": "too short", "input": body}]}
        return Reply(status=422, body=json.dumps(said).encode())

    one_peer.usually = reply
    url = f"{one_peer.url}/v1"
    with registered(facts(key_field="prompt_cache_key"), origins=[url]):
        plays = [Connection(http2="never"), PromptCache()]
        with fastlane.OpenAI(base_url=url, api_key="sk-test", only_plays=plays, strict=True) as client:
            with pytest.raises(openai.UnprocessableEntityError):
                client.chat.completions.create(model="m", messages=conversation()[:1])
            client.chat.completions.create(model="m", messages=conversation())

    assert ["prompt_cache_key" in json.loads(asked.body) for asked in one_peer.take()] == [True, True]
