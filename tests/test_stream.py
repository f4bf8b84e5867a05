"""Streams on the fast path, over real connections of both protocols, and when openai's code runs instead."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai._streaming import SSEDecoder
from openai.types.chat import ChatCompletionChunk

import fastlane
from fastlane import Connection
from tests.passing import Passing
from tests.prepared_server import LIBRARY, Server
from tests.waiting import Form, inner_of

MESSAGES: Any = [{"role": "user", "content": "Name a river."}]
TEXT = "The Danube flows through ten countries."
ASKED = {"x-emulator-output-text": TEXT}
SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}
CREATE: dict[str, Any] = {"model": "m", "messages": MESSAGES, "stream": True}

PROTOCOLS = {"HTTP/2": Connection(), "HTTP/1.1": Connection(http2="never")}


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, arguments: dict[str, Any]) -> Iterator[fastlane.OpenAI]:
    plays = [PROTOCOLS[request.param]]
    with fastlane.OpenAI(**arguments, only_plays=plays, raise_play_errors=True, default_headers=ASKED) as made:
        yield made


@pytest.fixture(params=PROTOCOLS)
def either(request: pytest.FixtureRequest, form: Form, arguments: dict[str, Any]) -> Iterator[Any]:
    plays = [PROTOCOLS[request.param]]
    with form.make(fastlane, **arguments, only_plays=plays, raise_play_errors=True, default_headers=ASKED) as made:
        yield made


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def is_fast(stream: Any) -> bool:
    """Whether the fast path reads the stream: its events come from no generator of openai's."""
    frame = getattr(stream._iterator, "gi_frame", None) or stream._iterator.ag_frame
    return frame.f_locals["reading"].decode is not None


def opened(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(**CREATE, **options)


async def async_opened(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.chat.completions.create(**CREATE, **options)


# What the application sees


def test_stream_uses_the_fast_path_with_a_complete_response(form: Form, either: Any, arguments: dict[str, Any]) -> None:
    with form.make(openai, **arguments, default_headers=ASKED) as stock:
        expected = opened(stock)
        expected_chunks = list(expected)
    stream = opened(either)
    assert is_fast(inner_of(stream))
    chunks = list(stream)

    assert text_of(chunks) == text_of(expected_chunks) == TEXT
    assert [type(chunk) for chunk in chunks] == [type(chunk) for chunk in expected_chunks]
    response = stream.response
    assert response.is_closed
    assert response.is_stream_consumed
    assert response.num_bytes_downloaded == expected.response.num_bytes_downloaded
    assert response.elapsed.total_seconds() > 0
    assert [(record.outcome, record.events) for record in either.calls] == [("completed", len(chunks))]


@pytest.mark.parametrize("use", ["closed", "read in part"])
def test_stream_of_a_used_response_raises_as_in_stock(arguments: dict[str, Any], use: str) -> None:
    errors = []
    for library in (openai, fastlane):
        with library.OpenAI(**arguments, default_headers=ASKED) as client, opened(client) as stream:
            stream.response.close() if use == "closed" else next(stream.response.iter_bytes(1))
            with pytest.raises(Exception) as raised:  # noqa: PT011
                next(stream)
            errors.append((raised.type, str(raised.value)))

    assert errors[0] == errors[1]


def test_iterator_outlives_its_stream(client: fastlane.OpenAI) -> None:
    iterator = iter(opened(client))
    gc.collect()

    assert text_of(list(iterator)) == TEXT


@pytest.mark.asyncio
async def test_events_that_have_come_are_given_without_waiting() -> None:
    server = Server()
    event = b'data: {"id": "c", "choices": [], "created": 1, "model": "m", "object": "chat.completion.chunk"}\n\n'
    server.reads, server.failure = [b": wait\n\n" + event, event * 3 + b": wait\n\n" + event * 2], None
    async with fastlane.AsyncOpenAI(
        api_key="k", base_url="http://server", http_client=LIBRARY.AsyncClient(transport=server)
    ) as client:
        stream = await async_opened(client)
        for _ in range(6):
            with pytest.raises(StopIteration) as given:
                stream.__anext__().send(None)
            assert given.value.value.id == "c"
        # Comments are none of what openai's own code is needed for.
        assert stream._iterator.ag_frame.f_locals["reading"].source is None


# Two at once


async def waiting_pull(stream: Any) -> asyncio.Task[Any]:
    """A task that pulls, and finds nothing there."""
    while True:
        pull = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        if not pull.done():
            return pull


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_two_tasks_cannot_pull_at_once(arguments: dict[str, Any], protocol: str) -> None:
    made = fastlane.AsyncOpenAI(**arguments, only_plays=[PROTOCOLS[protocol]], default_headers=SLOW)
    async with made as client, await async_opened(client) as stream:
        first = await waiting_pull(stream)
        with pytest.raises(RuntimeError, match="already running"):
            await anext(stream)

        assert (await first).choices
        assert (await anext(stream)).choices


def test_two_threads_cannot_pull_at_once(client: fastlane.OpenAI) -> None:
    pulled: list[Any] = []
    odd: list[Exception] = []
    refused = threading.Event()

    def pull() -> None:
        while not refused.is_set() and not odd:
            try:
                pulled.append(next(stream))
            except ValueError:  # "generator already executing"
                refused.set()
            except Exception as error:  # noqa: BLE001 - named by the assertion
                odd.append(error)

    with opened(client, extra_headers=SLOW) as stream:
        threads = [threading.Thread(target=pull) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert odd == []
        assert refused.is_set()
        assert len({id(chunk) for chunk in pulled}) == len(pulled)
        assert next(stream).choices


# Instrumentations and overrides


class OwnDecoder(SSEDecoder):
    pass


class WithOwnDecoder(fastlane.OpenAI):
    def _make_sse_decoder(self) -> Any:
        return OwnDecoder()


class WithOwnProcessing(fastlane.OpenAI):
    def _process_response_data(self, **arguments: Any) -> Any:
        return super()._process_response_data(**arguments)


def strict(**options: Any) -> fastlane.OpenAI:
    return fastlane.OpenAI(**options, _strict_response_validation=True)


def patched(**options: Any) -> fastlane.OpenAI:
    client = fastlane.OpenAI(**options)
    client._process_response_data = client._process_response_data  # type: ignore[method-assign]
    return client


@pytest.mark.parametrize("made", [WithOwnDecoder, WithOwnProcessing, strict, patched])
def test_client_with_own_stream_decoder_keeps_it(
    arguments: dict[str, Any], made: Callable[..., fastlane.OpenAI]
) -> None:
    with made(**arguments, default_headers=ASKED) as client:
        stream = opened(client)

        assert not is_fast(stream)
        assert text_of(list(stream)) == TEXT
        assert client.calls[0].outcome == "completed"


@pytest.mark.parametrize("name", ["__stream__", "_iter_events"])
def test_object_that_passes_for_a_streams_method_is_called(
    client: fastlane.OpenAI, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(openai.Stream, name, Passing(getattr(openai.Stream, name), seen.append))
    stream = opened(client)

    assert not is_fast(stream)
    assert text_of(list(stream)) == TEXT
    assert seen == [stream]


def test_custom_stream_class_is_used(client: fastlane.OpenAI) -> None:
    class Own(openai.Stream[ChatCompletionChunk]):
        def __stream__(self) -> Iterator[Any]:
            for chunk in super().__stream__():
                yield chunk.choices[0].delta.content

    texts = client.post(
        "/chat/completions", body=CREATE, cast_to=ChatCompletionChunk, stream=True, stream_cls=Own, options={}
    )

    assert "".join(text or "" for text in texts) == TEXT


def test_stream_of_named_events_yields_their_names(client: fastlane.OpenAI) -> None:
    kind, options = openai.Stream[ChatCompletionChunk], {"synthesize_event_and_data": True}
    stream: Any = client.post(
        "/chat/completions", body=CREATE, cast_to=ChatCompletionChunk, stream=True, stream_cls=kind, options=options
    )

    assert {(event.event, event.data["object"]) for event in stream} == {(None, "chat.completion.chunk")}


def test_closed_iterator_leaves_the_rest_to_the_next(form: Form, either: Any) -> None:
    stream = inner_of(opened(either))

    async def read() -> list[Any]:
        iterator = aiter(stream)
        chunks = [await anext(iterator), await anext(iterator)]
        await iterator.aclose()
        return chunks + [chunk async for chunk in stream]

    if form.asynchronous:
        chunks = form.run(read())
    else:
        iterator = iter(stream)
        chunks = [next(iterator), next(iterator)]
        iterator.close()
        chunks += stream

    assert text_of(chunks) == TEXT
