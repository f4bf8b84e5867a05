"""The play `ResponseSocket`, through clients of both kinds and over real TLS: as over HTTP, with fewer bytes."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane import Connection
from fastlane.emulator import Emulator, RequestLog
from fastlane.plays import Hedging, PromptCache, RateLimits, RequestEncoding, ResponseSocket, Unbroken, Urgency
from fastlane.plays.response_socket import sockets
from fastlane.plays.response_socket.section import ResponseSocketSection
from fastlane.providers import ProviderFacts, registered
from tests.plays.facts import fact
from tests.waiting import SYNC, Form, inner_of, until

TAKES_SOCKETS = ProviderFacts(slug="taking", response_sockets=fact(True))
SHORT = {"x-emulator-output-tokens": "6"}
HELLO = {"role": "user", "content": "Review this."}
EVENTS = 14  # of an answer of 6 tokens
Ask = Callable[..., Any]


@pytest.fixture
def emulator(provider: Emulator) -> Iterator[Emulator]:
    with registered(TAKES_SOCKETS, origins=[provider.base_url.removesuffix("/v1")]):
        yield provider


@pytest.fixture
def client(emulator: Emulator, form: Form) -> Iterator[Any]:
    with client_of(emulator, form) as client:
        yield client


def client_of(emulator: Emulator, form: Form = SYNC, *plays: Any, **options: Any) -> Any:
    plays = plays or (ResponseSocket(),)
    options = {"default_headers": SHORT, "api_key": "any", "base_url": emulator.base_url, "timeout": 20.0, **options}
    return form.make(fastlane, **options, only_plays=[Connection(), *plays], raise_play_errors=True)


def created(client: Any, history: Any, **fields: Any) -> Any:
    return client.responses.create(model="m", input=history, **fields)


def streamed(client: Any, history: Any, **fields: Any) -> Any:
    with client.responses.create(model="m", input=history, stream=True, **fields) as stream:
        return list(stream)[-1].response


def helped(client: Any, history: Any, **fields: Any) -> Any:
    with client.responses.stream(model="m", input=history, **fields) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def section(client: Any) -> ResponseSocketSection:
    found: ResponseSocketSection = client.last_call.get(ResponseSocketSection)
    return found


def lanes_of(client: Any) -> list[sockets.Lane]:
    (lanes,) = [each for http, each in sockets.lanes_of.items() if http is inner_of(client)._client]
    return lanes._lanes


def responses_of(emulator: Emulator) -> list[RequestLog]:
    return [entry for entry in emulator.log() if entry.method == "WS"]


def over_http(emulator: Emulator) -> list[RequestLog]:
    return [entry for entry in emulator.log() if entry.method == "POST"]


def sent_back(response: Any, way: str) -> list[Any]:
    """The items of an answer, as applications send them back."""
    ways: dict[str, Callable[[Any], Any]] = {
        "objects": lambda item: item,
        "whole": lambda item: item.model_dump(),
        "set": lambda item: item.model_dump(exclude_unset=True),
        "valued": lambda item: item.model_dump(exclude_none=True),
        "without ids": lambda item: item.model_dump(exclude={"id", "status"}),
        "reordered": lambda item: dict(reversed(item.to_dict().items())),
    }
    return [ways[way](item) for item in response.output]


def loop(client: Any, ask: Ask, way: str = "set", turns: int = 4) -> list[Any]:
    """Ask in turns, each with the whole history."""
    history: list[Any] = [HELLO]
    responses = []
    for number in range(turns):
        responses.append(ask(client, history))
        history = [*history, *sent_back(responses[-1], way), {"role": "user", "content": f"And {number}?"}]
    return responses


# What is sent


@pytest.mark.parametrize("ask", [created, streamed, helped])
def test_loop_sends_what_is_new_and_gets_what_http_gives(emulator: Emulator, form: Form, ask: Ask) -> None:
    got = {}
    for play in (ResponseSocket(), PromptCache()):
        emulator.reset()
        with client_of(emulator, form, play) as client:
            got[type(play)] = loop(client, ask)
    ours, stock = got[ResponseSocket], got[PromptCache]

    assert [type(response) for response in ours] == [type(response) for response in stock]
    assert ours[0].output_text == stock[0].output_text  # the later ones depend on the ids of the items before
    assert ours[0].usage == stock[0].usage
    assert [set(response.to_dict()) for response in ours] == [set(response.to_dict()) for response in stock]


@pytest.mark.parametrize("way", ["objects", "whole", "set", "valued", "without ids", "reordered"])
def test_answers_are_known_however_they_are_sent_back(emulator: Emulator, client: Any, way: str) -> None:
    loop(client, created, way)

    first, *others = responses_of(emulator)
    assert not over_http(emulator)
    assert section(client).sent == "delta"
    assert section(client).items_sent == 1
    assert section(client).saved_bytes > (section(client).sent_bytes or 0)
    assert {other.bytes_in for other in others} == {others[0].bytes_in}
    assert len({entry.connection_id for entry in (first, *others)}) == 1
    assert others[-1].prompt_tokens > 2 * first.prompt_tokens


def edited_answer(history: list[Any]) -> None:
    history[1]["content"][0]["text"] += "!"


def reordered_keys(history: list[Any]) -> None:
    history[0] = dict(reversed(history[0].items()))


def nothing_new(history: list[Any]) -> None:
    history.pop()


@pytest.mark.parametrize("change", [edited_answer, reordered_keys, nothing_new])
def test_changed_history_is_sent_whole(emulator: Emulator, client: Any, change: Callable[[list[Any]], None]) -> None:
    first = created(client, [HELLO])
    history = [HELLO, *sent_back(first, "set"), {"role": "user", "content": "And?"}]
    change(history)

    assert created(client, history).status == "completed"
    assert section(client).sent == "full"
    assert section(client).items_sent == len(history)
    assert not over_http(emulator)


def test_other_model_gets_the_whole_history(client: Any) -> None:
    first = created(client, [HELLO])
    client.responses.create(model="other", input=[HELLO, *sent_back(first, "set"), HELLO])

    assert section(client).sent == "full"


def test_text_is_continued_as_a_message(client: Any) -> None:
    first = created(client, HELLO["content"])
    created(client, [HELLO, *sent_back(first, "set"), HELLO])

    assert section(client).sent == "delta"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"extra_body": {"top_k": 1}}, "top_k"),
        ({"extra_headers": {"x-request-source": "test"}}, "headers"),
        ({"extra_query": {"a": "b"}}, "query"),
    ],
)
def test_what_sockets_may_not_take_goes_over_http(
    emulator: Emulator, client: Any, fields: dict[str, Any], why: str
) -> None:
    try:
        created(client, [HELLO], **fields)
    except openai.APIStatusError:
        pass  # of an id that the provider does not know

    assert [entry.path for entry in over_http(emulator)] == ["/v1/responses" + "?a=b" * ("extra_query" in fields)]
    assert section(client).sent == "http"
    assert why in (section(client).why or "")


def test_raw_responses_go_over_http(client: Any) -> None:
    raw = client.responses.with_raw_response.create(model="m", input=[HELLO])

    assert raw.headers["x-request-id"]
    assert section(client).sent == "http"


def test_unknown_provider_gets_http(emulator: Emulator, form: Form) -> None:
    unknown = registered(ProviderFacts(slug="taking"), origins=[emulator.base_url.removesuffix("/v1")])
    with unknown, client_of(emulator, form) as client:
        created(client, [HELLO])

        assert section(client).why == "the provider is not known to take WebSockets"


def test_client_without_the_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets", None)

    with pytest.raises(fastlane.MissingExtraError, match=r"fastlane-llm\[realtime\]"):
        ResponseSocket()


# Errors and faults


def test_refused_upgrade_is_remembered_with_one_warning(
    emulator: Emulator, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    emulator.set_faults("status=404;on=GET responses")
    with caplog.at_level(logging.WARNING, logger="fastlane"):
        loop(client, created)

    upgrades = [entry for entry in emulator.log() if entry.method == "GET"]
    assert (len(upgrades), len(over_http(emulator))) == (1, 4)
    assert [record.message for record in caplog.records if "WebSocket" in record.message] == [
        f"{emulator.base_url.removesuffix('/v1')} opens no WebSocket for responses (status 404): calls go over HTTP"
    ]


@pytest.mark.parametrize("after", [0, 1, EVENTS // 2, EVENTS - 1])
@pytest.mark.parametrize("ask", [created, streamed])
def test_killed_answer_is_repeated_only_if_it_has_not_begun(
    emulator: Emulator, client: Any, ask: Ask, after: int
) -> None:
    emulator.set_faults(f"drop;after_events={after};times=1;on=WS responses")
    if after == 0:  # by openai's rules
        assert ask(client, [HELLO]).status == "completed"
    else:
        # By openai's version, a stream may end with an error of the HTTP library.
        of_the_library: list[type[Exception]] = [httpx2.RemoteProtocolError] if ask is streamed else []
        with pytest.raises((openai.APIConnectionError, *of_the_library)):
            ask(client, [HELLO])

    assert len(responses_of(emulator)) == (2 if after == 0 else 1)
    assert not over_http(emulator)
    assert created(client, [HELLO]).status == "completed"


def test_forgotten_history_is_sent_whole_once(emulator: Emulator, client: Any) -> None:
    first = created(client, [HELLO])
    emulator.set_faults("evict;times=1;on=WS responses")
    again = created(client, [HELLO, *sent_back(first, "set"), HELLO])

    assert again.status == "completed"
    assert [entry.status for entry in responses_of(emulator)] == [200, 400, 200]
    assert (section(client).sent, section(client).why) == ("full", "the provider had forgotten the history")
    created(client, [HELLO, *sent_back(first, "set"), HELLO, *sent_back(again, "set"), HELLO])
    assert section(client).sent == "delta"


@pytest.mark.parametrize("ask", [created, streamed])
def test_error_event_is_openai_s_error_and_retried_by_its_rules(emulator: Emulator, client: Any, ask: Ask) -> None:
    first = ask(client, [HELLO])
    history = [HELLO, *sent_back(first, "set"), HELLO]
    emulator.set_faults("status=400;times=1;on=WS responses")
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, history)
    assert raised.value.body is not None
    emulator.set_faults("status=500;times=1;on=WS responses")

    assert ask(client, history).status == "completed"
    assert [entry.status for entry in responses_of(emulator)] == [200, 400, 500, 200]
    assert len(client.last_call.attempts) == 2
    assert section(client).sent == "full"  # the provider has evicted what was continued


@pytest.mark.parametrize("ask", [created, streamed])
def test_error_event_has_the_headers_of_the_error(emulator: Emulator, client: Any, ask: Ask) -> None:
    emulator.set_faults("status=429;retry_after=7;times=1;on=WS responses")
    with pytest.raises(openai.RateLimitError) as raised:
        ask(client.with_options(max_retries=0), [HELLO])

    assert raised.value.response.headers["retry-after"] == "7"


def test_socket_at_its_age_limit_is_replaced(emulator: Emulator, client: Any) -> None:
    emulator.change(socket_lifetime_s=0.2)
    first = created(client, [HELLO])
    until(lambda: form_goes_on(client) and not lanes_of(client)[0].socket.is_open)
    created(client, [HELLO, *sent_back(first, "set"), HELLO])

    assert [entry.status for entry in responses_of(emulator)] == [200, 200]
    assert len(client.last_call.attempts) == 1


def test_message_that_is_too_large_goes_over_http(emulator: Emulator, client: Any) -> None:
    emulator.change(socket_message_bytes=10_000)
    large = {"role": "user", "content": "x" * 20_000}
    for _ in range(2):
        assert created(client, [large]).status == "completed"
    created(client, [HELLO])

    assert section(client).sent == "full"
    assert (len(over_http(emulator)), len(responses_of(emulator))) == (2, 1)
    assert len([entry for entry in emulator.log() if entry.method == "GET"]) == 2  # the second found out before sending


@pytest.mark.parametrize("ask", [created, streamed])
def test_silence_times_out(emulator: Emulator, client: Any, ask: Ask) -> None:
    emulator.set_faults("hang=30;on=WS responses")
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=0.3, max_retries=0), [HELLO])


def test_provider_that_stops_reading_times_out(emulator: Emulator, client: Any) -> None:
    emulator.set_faults("slow_reader=30;on=GET responses")
    limits = httpx2.Timeout(20, write=0.3)
    with pytest.raises(openai.APITimeoutError):
        created(client.with_options(timeout=limits, max_retries=0), [{**HELLO, "content": "x" * 15_000_000}])


def test_invalid_event_is_the_error_that_http_gives(emulator: Emulator, client: Any) -> None:
    emulator.set_faults("malformed;after=2;on=WS responses")
    with pytest.raises(json.JSONDecodeError):
        streamed(client, [HELLO])
    with pytest.raises(openai.APIConnectionError, match="not valid JSON"):
        created(client, [HELLO])


def test_closed_socket_is_replaced_before_anything_is_sent(emulator: Emulator, client: Any) -> None:
    first = created(client, [HELLO])
    lanes_of(client)[0].socket.abort()
    form_goes_on(client)
    created(client, [HELLO, *sent_back(first, "set"), HELLO])

    assert section(client).sent == "full"
    assert [entry.status for entry in responses_of(emulator)] == [200, 200]


def form_goes_on(client: Any) -> bool:
    """Let the event loop of an async client see what has happened to its connections."""
    return client.models.list() is not None


# Giving up, and many at once


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "dropped"])
def test_stream_left_early_ends_its_socket(emulator: Emulator, client: Any, closes: bool) -> None:
    long = {"x-emulator-output-tokens": "100000"}
    stream = client.responses.create(model="m", input=[HELLO], stream=True, metadata=long)
    next(iter(stream))
    if closes:
        stream.close()
    del stream
    gc.collect()
    form_goes_on(client)

    upgrade, answer = emulator.log()[:2]
    until(lambda: upgrade.reset_ns)
    assert answer.output_tokens < 100_000
    created(client, [HELLO])
    assert section(client).sent == "full"


def test_busy_sockets_leave_others_to_http(emulator: Emulator, form: Form) -> None:
    with client_of(emulator, form, ResponseSocket(max_sockets=2)) as client:
        streams = [client.responses.create(model="m", input=[HELLO], stream=True) for _ in range(3)]
        texts = [[event.type for event in stream][-1] for stream in streams]

    assert texts == ["response.completed"] * 3
    assert (len(responses_of(emulator)), len(over_http(emulator))) == (2, 1)


def test_threads_continue_their_own_conversations(emulator: Emulator) -> None:
    begun = Event()

    def talk(number: int) -> Any:
        begun.wait(20)
        history: list[Any] = [{"role": "user", "content": f"I am {number}."}]
        for _ in range(3):
            response = created(client, history)
            history += [*sent_back(response, "set"), HELLO]
        return str(response.id)

    client = client_of(emulator, SYNC, ResponseSocket(max_sockets=40), timeout=60.0)
    with ThreadPoolExecutor(50) as pool:
        running = [pool.submit(talk, number) for number in range(50)]
        begun.set()
        ids = {each.result() for each in running}
    client.close()

    assert len(ids) == 50
    assert len(responses_of(emulator)) + len(over_http(emulator)) == 150
    assert {entry.status for entry in responses_of(emulator)} == {200}


def test_closing_the_client_closes_its_sockets(emulator: Emulator, form: Form) -> None:
    client = client_of(emulator, form)
    created(client, [HELLO])
    client.close()

    assert not lanes_of(client)[0].socket.is_open


def test_dropped_client_closes_its_sockets(emulator: Emulator) -> None:
    dropped = client_of(emulator)
    created(dropped, [HELLO])
    socket = lanes_of(dropped)[0].socket
    del dropped
    gc.collect()

    until(lambda: not socket.is_open)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # loops end with open connections
def test_sockets_of_a_closed_event_loop_are_dropped(emulator: Emulator) -> None:
    client = inner_of(client_of(emulator, Form("async")))
    asyncio.run(created(client, [HELLO]))
    (first,) = lanes_of(client)
    asyncio.run(created(client, [HELLO]))

    assert len(lanes_of(client)) == 1
    assert first.is_dropped
    assert [entry.status for entry in responses_of(emulator)] == [200, 200]
    del client, first
    for _ in range(2):  # the sockets outlive their client by one collection
        gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork()")
def test_child_opens_sockets_of_its_own(emulator: Emulator) -> None:
    with client_of(emulator) as client:
        first = created(client, [HELLO])
        history = [HELLO, *sent_back(first, "set"), HELLO]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                created(client, history)
                status = 0 if section(client).sent == "full" else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        created(client, history)
        assert section(client).sent == "delta"
    assert len({entry.connection_id for entry in responses_of(emulator)}) == 2


# Beside other plays


@pytest.mark.parametrize(
    ("other", "sent"),
    [
        (PromptCache(), "delta"),
        (RateLimits(), "delta"),
        (Urgency(), "delta"),
        (Unbroken(), "delta"),
        (RequestEncoding(), "delta"),
        (Hedging(budget=0.05), "http"),
    ],
)
def test_other_plays_work_beside_it(emulator: Emulator, form: Form, other: Any, sent: str) -> None:
    with client_of(emulator, form, copy.copy(other), ResponseSocket()) as client:
        responses = loop(client, streamed)
        assert section(client).sent == sent

    assert [response.status for response in responses] == ["completed"] * 4


def test_unbroken_notices_a_stall_on_a_socket(emulator: Emulator, form: Form) -> None:
    emulator.set_faults("stall=30;after=3;on=WS responses")
    play = Unbroken(min_stall_s=0.3, max_stall_s=0.5, max_thinking_s=0.5)
    with client_of(emulator, form, play, ResponseSocket()) as client, pytest.raises(fastlane.StalledStreamError):
        streamed(client, [HELLO])
