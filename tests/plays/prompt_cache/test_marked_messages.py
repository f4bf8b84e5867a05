"""Marks reach the plays and never a provider, at every entry point."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import openai
import pytest
from pydantic import BaseModel

import fastlane
from fastlane import Call, PromptCache, user_action
from fastlane.emulator import Emulator
from fastlane.errors import ConfigurationError
from fastlane.prompts import Prompt, stable, volatile
from fastlane.providers import ProviderFacts, registered
from fastlane.records import Usage
from tests.call_peer import Asked, CallPeer, Reply, ours
from tests.plays.facts import fact
from tests.session_play import SessionPlay
from tests.waiting import Form, comes_true, until

NOW: dict[str, Any] = {"type": "text", "text": "It is 10:04."}
QUESTION: dict[str, Any] = {"role": "user", "content": "Is water wet?"}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


class Ticket(BaseModel):
    name: str


@dataclass(frozen=True, slots=True)
class Keep(SessionPlay):
    """Keeps what plays are given."""

    calls: Any

    def plan(self, call: Call) -> Call:
        self.calls.append(call)
        return call


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(only_plain, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(only_plain, value))
    return True


def marked_messages() -> list[Any]:
    return [volatile("10:04"), {"role": "system", "content": [volatile(NOW), {"type": "text", "text": "a"}]}, QUESTION]


WRITTEN = [
    {"role": "system", "content": "10:04"},
    {"role": "system", "content": [NOW, {"type": "text", "text": "a"}]},
    QUESTION,
]

ENTRIES: dict[str, Callable[[Any], Any]] = {
    "create": lambda client: client.chat.completions.create(model="m", messages=marked_messages()),
    "with what openai has to walk through": lambda client: client.chat.completions.create(
        model="m", messages=marked_messages(), stop=("a",)
    ),
    "as a tuple": lambda client: client.chat.completions.create(model="m", messages=tuple(marked_messages())),
    "responses as a tuple": lambda client: client.responses.create(model="m", input=tuple(marked_messages())),
    "streamed": lambda client: list(client.chat.completions.create(model="m", messages=marked_messages(), stream=True)),
    "parse": lambda client: client.chat.completions.parse(
        model="m", messages=marked_messages(), response_format=Ticket
    ),
    "raw": lambda client: client.chat.completions.with_raw_response.create(
        model="m", messages=marked_messages()
    ).parse(),
    "responses": lambda client: client.responses.create(model="m", input=marked_messages()),
    "parsed responses": lambda client: client.responses.parse(model="m", input=marked_messages(), text_format=Ticket),
}


def stream(client: Any) -> None:
    with client.chat.completions.stream(model="m", messages=marked_messages()) as events:
        events.until_done()


def response_stream(client: Any) -> None:
    with client.responses.stream(model="m", input=marked_messages()) as events:
        events.until_done()


ENTRIES |= {"stream": stream, "streamed responses": response_stream}


@pytest.fixture
def bodies(one_peer: CallPeer) -> list[Any]:
    """The messages of the requests that the server gets, and refuses."""
    seen: list[Any] = []

    def refuse(asked: Asked) -> Reply:
        body = json.loads(asked.body)
        seen.append(body.get("messages", body.get("input")))
        return Reply(400)

    one_peer.usually = refuse
    return seen


@pytest.fixture
def of_the_peer(one_peer: CallPeer, bodies: list[Any]) -> dict[str, Any]:
    """What a client of that server is made with."""
    return {"api_key": "sk-test", "base_url": f"{one_peer.url}/v1", "max_retries": 0}


def test_prompt_is_accepted_as_messages_everywhere(arguments: dict[str, Any]) -> None:
    calls: list[Call] = []
    prompt = Prompt(stable="a", session=[QUESTION], volatile="10:04")
    before = copy.deepcopy(prompt)
    with fastlane.OpenAI(**arguments, only_plays=[Keep(calls)]) as client:
        client.chat.completions.create(model="m", messages=prompt, tools=TOOLS)
        client.chat.completions.create(model="m", messages=prompt)
        client.responses.create(model="m", input=prompt)

    assert [call.placements for call in calls] == [("stable", "session", "volatile")] * 3
    assert [call.body.get("tools") is not None for call in calls] == [True, False, False]
    assert only_plain([dict(call.body) for call in calls])
    assert prompt == before


MAKES: dict[str, Callable[..., Any]] = {
    "stock": openai.OpenAI,
    "without plays": partial(fastlane.OpenAI, only_plays=[]),
    "disabled": fastlane.OpenAI,
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_messages_without_the_play_are_sent_unchanged(
    of_the_peer: dict[str, Any], bodies: list[Any], make: Any, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1" if make is fastlane.OpenAI else "")
    with make(**of_the_peer) as client, pytest.raises(openai.BadRequestError):
        ENTRIES[entry](client)

    (messages,) = bodies
    assert messages[:3] == WRITTEN


@pytest.mark.parametrize("entry", ENTRIES)
def test_prompt_cache_play_moves_volatile_messages_last(
    of_the_peer: dict[str, Any], bodies: list[Any], entry: str
) -> None:
    with fastlane.OpenAI(**of_the_peer, only_plays=[PromptCache()]) as client, pytest.raises(openai.BadRequestError):
        ENTRIES[entry](client)

    (messages,) = bodies
    assert messages[:4] == [
        {"role": "system", "content": [{"type": "text", "text": "a"}]},
        QUESTION,
        {"role": "system", "content": "10:04"},
        {"role": "system", "content": [NOW]},
    ]


# What stays of a prompt is read into the provider's cache by one short call


RESPONSES = "/responses"
# Over 1,024 tokens, from where on the embedded provider remembers prompts.
SYSTEM: Any = {"role": "system", "content": "Answer with care, and never without the number of the reservation. " * 120}
NO_PROMPT = r"takes a fastlane\.prompts\.Prompt or a list of messages"
NOTHING_STAYS = "found nothing in the prompt that stays"


def facts(**cache: Any) -> ProviderFacts:
    parameters = {"max_completion_tokens": fact(True), "store": fact(True)}
    return ProviderFacts.model_validate({"slug": "example", "cache": cache, "parameters": parameters})


@pytest.fixture
def client(provider: Emulator, arguments: dict[str, Any]) -> Iterator[Any]:
    provider.forget_prompts()
    with fastlane.OpenAI(**arguments, max_retries=0) as made:
        yield made


def sent(peer: CallPeer) -> list[dict[str, Any]]:
    return [json.loads(asked.body) for asked in peer.take()]


def test_first_call_finds_in_the_cache_what_was_prewarmed(
    provider: Emulator, arguments: dict[str, Any], form: Form
) -> None:
    provider.forget_prompts()
    with form.make(fastlane, **arguments) as client:
        done = client.prompt_cache.prewarm(
            [SYSTEM, {"role": "user", "content": "Where is my bag?"}], model="gpt-4o", tools=TOOLS
        )
        answer = client.chat.completions.create(
            model="gpt-4o", messages=[SYSTEM, {"role": "user", "content": "When do we leave?"}], tools=TOOLS
        )

    assert done.input_tokens > 1_024
    assert done.cached_tokens == 0
    assert answer.usage.prompt_tokens_details.cached_tokens == done.input_tokens // 128 * 128


@pytest.mark.parametrize(
    ("prompt", "kept"),
    [
        (
            [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
            [{"role": "system", "content": "a"}],
        ),
        (
            Prompt(stable="a", session="b", volatile="c"),
            [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
        ),
        # Declared in the middle of ordinary messages.
        (
            [volatile("now"), {"role": "system", "content": "a"}, stable({"role": "user", "content": "b"})],
            [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
        ),
    ],
)
def test_prewarm_sends_the_stable_messages(one_peer: CallPeer, prompt: Any, kept: list[Any]) -> None:
    with ours(one_peer) as client:
        client.prompt_cache.prewarm(prompt, model="m")

    (body,) = sent(one_peer)
    assert {json.dumps(message, sort_keys=True) for message in body["messages"][:-1]} == {
        json.dumps(message, sort_keys=True) for message in kept
    }
    assert body["messages"][-1] == {"role": "user", "content": "."}


@pytest.mark.parametrize(("form", "kind"), [(Ticket, "json_schema"), ({"type": "json_object"}, "json_object")])
def test_prewarm_sends_prompt_options_but_no_output_options(one_peer: CallPeer, form: Any, kind: str) -> None:
    output_options: dict[str, Any] = {"max_completion_tokens": 500, "n": 3, "stream": True, "messages": [QUESTION]}
    with ours(one_peer) as client:
        client.prompt_cache.prewarm(
            Prompt(stable="a"), tools=TOOLS, model="m", response_format=form, reasoning_effort="low", **output_options
        )

    (body,) = sent(one_peer)
    assert body["tools"] == TOOLS
    assert body["reasoning_effort"] == "low"
    assert body["max_tokens"] == 1
    assert body["response_format"]["type"] == kind
    assert set(body) == {"model", "messages", "tools", "reasoning_effort", "max_tokens", "response_format"}


def test_prewarm_uses_newer_limit_field_and_stores_nothing(one_peer: CallPeer) -> None:
    with registered(facts(), origins=[one_peer.url]), ours(one_peer) as client:
        client.prompt_cache.prewarm([SYSTEM], model="m")
        client.prompt_cache.prewarm([SYSTEM], model="m", endpoint=RESPONSES)
        client.prompt_cache.prewarm([SYSTEM], model="m", endpoint=RESPONSES, store=True)

    chat, response, kept = sent(one_peer)
    assert chat["max_completion_tokens"] == 1
    assert "store" not in chat
    assert (response["store"], kept["store"]) == (False, True)


def test_prewarm_places_breakpoint_where_required(one_peer: CallPeer) -> None:
    marks = {
        "explicit_models": fact(["gpt-*"]),
        "breakpoints": fact("prompt_cache_breakpoint"),
        "breakpoint_value": fact({"mode": "explicit"}),
    }
    with registered(facts(**marks), origins=[one_peer.url]), ours(one_peer) as client:
        client.prompt_cache.prewarm([SYSTEM], model="gpt-5.6")

    (body,) = sent(one_peer)
    assert body["messages"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert body["messages"][1] == {"role": "user", "content": "."}


def test_prewarm_refused_at_token_limit_is_not_an_error(one_peer: CallPeer) -> None:
    message = "Could not finish the message because max_tokens or model output limit was reached."
    one_peer.replies = [Reply(400, body=json.dumps({"error": {"message": message}}).encode())]
    with ours(one_peer) as client:
        assert client.prompt_cache.prewarm([SYSTEM], model="m") == Usage()
    assert len(one_peer.take()) == 1


@pytest.mark.parametrize(
    ("prompt", "more", "message"),
    [
        *((prompt, {}, NO_PROMPT) for prompt in ("a text", {"role": "system", "content": "a"}, None, 3)),
        *((prompt, {}, NOTHING_STAYS) for prompt in ([], [QUESTION], Prompt(volatile="now"))),
        ([SYSTEM], {"endpoint": "/completions"}, 'takes "/chat/completions" or "/responses"'),
    ],
)
def test_prewarm_refuses_what_it_cannot_send(client: Any, prompt: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        client.prompt_cache.prewarm(prompt, model="m", **more)


def test_disabled_fastlane_sends_no_request(one_peer: CallPeer, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with form.make(fastlane, base_url=one_peer.url, api_key="k") as client:
        assert client.prompt_cache.prewarm([SYSTEM], model="m") == Usage()
    assert sent(one_peer) == []


# A prompt is kept in the cache by requests, as often as was allowed, and only while the block runs


def test_prompt_is_read_again_and_again(client: fastlane.OpenAI) -> None:
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper:
        until(lambda: keeper.requests > 3)

    assert keeper.error is None
    cached = [record.usage.cached_tokens for record in client.calls]
    assert cached[0] == 0
    assert set(cached[1:]) == {1920}


def test_no_request_follows_the_block_or_max_requests(client: fastlane.OpenAI) -> None:
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as ended:
        until(lambda: ended.requests > 0)
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, max_requests=2, model="m") as spent:
        until(lambda: spent.requests == 2)
        # The last one may be under way.
        until(lambda: not any(thread.name == "fastlane later" for thread in threading.enumerate()))
        assert spent.requests == 2


def test_after_a_request_that_fails_the_next_one_is_sent(client: fastlane.OpenAI, provider: Emulator) -> None:
    provider.set_faults("status=401")
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper:
        until(lambda: keeper.error == "AuthenticationError")
        provider.set_faults()
        sent = keeper.requests
        until(lambda: keeper.requests > sent + 1 and keeper.error is None)


@pytest.mark.asyncio
async def test_asynchronous_client_does_the_same(provider: Emulator, arguments: dict[str, Any]) -> None:
    provider.forget_prompts()
    async with fastlane.AsyncOpenAI(**arguments) as client:
        async with (
            user_action("answer") as action,
            client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper,
        ):
            assert await asyncio.to_thread(comes_true, lambda: keeper.requests > 3)

        assert keeper.error is None
        assert client.calls[1].usage.cached_tokens == 1920
        assert action.call_count == 0


def test_invalid_keep_warm_arguments_are_refused(client: fastlane.OpenAI) -> None:
    with pytest.raises(ConfigurationError, match=r"needs every_s=\.\.\., in seconds"):
        client.prompt_cache.keep_warm([SYSTEM], model="m")
    with pytest.raises(ConfigurationError, match=r"every_s=\.\.\.\) takes seconds above 0, got 0"):
        client.prompt_cache.keep_warm([SYSTEM], model="m", every_s=0)
    with pytest.raises(ConfigurationError, match=r"max_requests=\.\.\.\) takes a whole number from 1, got 0"):
        client.prompt_cache.keep_warm([SYSTEM], model="m", every_s=9, max_requests=0)
    with pytest.raises(ConfigurationError, match=NOTHING_STAYS):
        client.prompt_cache.keep_warm([QUESTION], every_s=0.05, model="m")
