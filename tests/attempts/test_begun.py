"""Answers that were begun, over real connections and in each of the HTTP libraries, are as if nobody had looked."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import openai
import pytest
from hypothesis import given, settings, strategies as st

import fastlane
from fastlane.emulator import Emulator, RequestLog
from fastlane.transport.protocols.exchange import PHASES
from tests.attempts.begun_calls import (
    OWN,
    WAYS,
    Seen,
    async_begun,
    async_opened,
    begun,
    looking,
    opened,
    text_of,
)
from tests.attempts.events import BEFORE, CHAT, DONE, ROLE, STOP, data, said
from tests.call_peer import CallPeer, Reply
from tests.prepared_server import LIBRARY, Reads, Server
from tests.waiting import Form, comes_true, inner_of

TEXT = "The Danube flows through ten countries."
ASKED = {"x-emulator-output-text": TEXT}
THINKING = {**ASKED, "x-emulator-prefill-ms": "50", "x-emulator-token-ms": "5"}
PREFILL_NS = 50_000_000
TOKEN_NS = 5_000_000
SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}
EVENT_STREAM = (("content-type", "text/event-stream"), ("x-request-id", "req_1"))

every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def seen() -> Seen:
    return Seen()


def was_told_to_stop(provider: Emulator) -> bool:
    def stopped(request: RequestLog) -> bool:
        return request.reset_ns is not None and request.output_tokens < 3000

    return all(map(stopped, provider.log()))


def last_sent_ns(request: RequestLog) -> int:
    """Before which the provider did not send the last token."""
    return request.received_ns + PREFILL_NS + (request.output_tokens - 1) * TOKEN_NS


def is_fast(stream: Any) -> bool:
    frame = getattr(stream._iterator, "gi_frame", None) or stream._iterator.ag_frame
    return frame.f_locals["reading"].decode is not None


def received_bytes(client: Any) -> int:
    last = client.calls[0].last_attempt
    assert last is not None
    return last.response_body_bytes or 0


# All of it is there


@every_way
def test_a_stream_is_given_again_from_its_first_byte(
    form: Form, way: str, seen: Seen, arguments: dict[str, Any]
) -> None:
    with looking(way, seen, arguments, form, default_headers=ASKED) as client:
        stream = opened(client)
        assert is_fast(inner_of(stream))
        chunks = list(stream)

        assert seen.verdicts == ["content"]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert text_of(chunks) == TEXT
        assert stream.response.is_closed
        assert stream.response.num_bytes_downloaded == received_bytes(client) > 0
        assert stream.response.elapsed.total_seconds() > 0
        assert [record.outcome for record in client.calls] == ["completed"]


# Stamps


@every_way
def test_the_first_token_counts_when_it_arrived_and_not_when_it_is_given_again(
    form: Form, way: str, seen: Seen, provider: Emulator, arguments: dict[str, Any]
) -> None:
    with looking(way, seen, arguments, form, default_headers=THINKING) as client:
        list(opened(client))
        timeline = client.calls[0].timeline
    (request,) = provider.log()
    assert timeline.first_token_ns is not None
    assert request.received_ns + PREFILL_NS <= timeline.first_token_ns <= seen.returned_ns
    if way in OWN:
        assert timeline.first_token_ns in seen.responses[0].extensions[PHASES].data_ns
    # What came later arrived later.
    assert timeline.token_ns[-1] >= last_sent_ns(request)


# Left early


@every_way
def test_a_begun_stream_that_is_closed_unread_stops_the_provider(
    form: Form, way: str, seen: Seen, provider: Emulator, arguments: dict[str, Any]
) -> None:
    with looking(way, seen, arguments, form, default_headers=SLOW) as client:
        opened(client).close()
        assert [record.outcome for record in client.calls] == ["closed"]
        assert comes_true(lambda: was_told_to_stop(provider))


@every_way
def test_a_call_that_is_cancelled_before_its_answer_begins_stops_the_provider(
    way: str, seen: Seen, provider: Emulator, arguments: dict[str, Any]
) -> None:
    async def cancelled(client: openai.AsyncOpenAI) -> None:
        call = asyncio.create_task(async_opened(client))
        assert await asyncio.to_thread(comes_true, lambda: bool(seen.responses))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    headers = {**SLOW, "x-emulator-prefill-ms": "60000", "x-emulator-fault": "keepalive=0.02"}
    form = Form("async")
    with looking(way, seen, arguments, form, default_headers=headers) as client:
        form.run(cancelled(inner_of(client)))
        assert seen.responses[0].is_closed
        assert comes_true(lambda: was_told_to_stop(provider))
    form.close()


# What breaks


@every_way
@pytest.mark.parametrize("fault", ["drop;after=0", "reset;after=0"])
def test_an_answer_that_breaks_off_before_it_begins_raises_the_librarys_own_error(
    form: Form, way: str, fault: str, seen: Seen, arguments: dict[str, Any]
) -> None:
    headers = {**THINKING, "x-emulator-fault": f"early_role,{fault}"}
    with looking(way, seen, arguments, form, default_headers=headers) as client:
        with pytest.raises(openai.APIConnectionError):
            opened(client)
        (error,) = seen.errors
        assert type(error).__name__ in ("ReadError", "RemoteProtocolError")
        assert type(error).__module__.startswith("httpx" if way == "httpx" else LIBRARY.__name__)
        assert error.request.url.path == "/v1/chat/completions"  # type: ignore[attr-defined]
        assert seen.responses[0].is_closed


# What a server may say instead, over real connections of both protocols


def peer_arguments(peer: CallPeer) -> dict[str, Any]:
    return {"api_key": "sk-test", "base_url": f"{peer.url}/v1"}


def test_the_connection_of_an_empty_answer_that_is_closed_serves_again(peer: CallPeer, seen: Seen) -> None:
    peer.replies = [Reply(headers=EVENT_STREAM, body=b"".join((ROLE, STOP, DONE))) for _ in range(2)]
    with looking(peer.protocol, seen, peer_arguments(peer)) as client:
        for _ in range(2):
            opened(client).close()
        assert [record.connection_reused for record in client.calls] == [False, True]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ((*EVENT_STREAM, ("content-encoding", "gzip")), gzip.compress(said(content="Rhine") + STOP + DONE)),
        ((("content-type", "application/json"),), b'{"choices": []}'),
    ],
)
def test_nothing_is_read_of_what_is_compressed_or_no_event_stream(
    peer: CallPeer, seen: Seen, headers: Any, body: bytes
) -> None:
    peer.replies = [Reply(headers=headers, body=body)]
    with looking(peer.protocol, seen, peer_arguments(peer)) as client:
        stream = opened(client)
        assert seen.verdicts == ["unknown"]
        assert seen.responses[0].num_bytes_downloaded == 0
        assert stream.response.stream._inner is seen.streams[0]
        if headers[0] in EVENT_STREAM:
            assert text_of(list(stream)) == "Rhine"
        stream.close()


def test_the_answer_to_a_call_that_failed_is_left_alone(peer: CallPeer, seen: Seen) -> None:
    peer.replies = [Reply(status=503, headers=EVENT_STREAM, body=said(content="Rhine"))]
    with looking(peer.protocol, seen, peer_arguments(peer)) as client:
        with pytest.raises(openai.InternalServerError):
            opened(client)
        assert seen.verdicts == ["unknown"]


# However it is cut


def prepared(pieces: list[bytes], failure: str | None = None) -> Any:
    request = LIBRARY.Request("POST", "http://server")
    headers = {"content-type": "text/event-stream"}
    return LIBRARY.Response(200, headers=headers, stream=Reads(pieces, failure), request=request)


BLOCKS = st.lists(
    st.sampled_from([*BEFORE, said(content="Rhine"), said("length"), STOP, DONE, data({"error": {"code": 503}})]),
    max_size=6,
)


@given(BLOCKS, st.data())
@settings(max_examples=50)
def test_the_pieces_of_a_begun_body_are_those_that_came(blocks: list[bytes], draw: st.DataObject) -> None:
    body = b"".join(blocks)
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(body)), max_size=6)))
    pieces = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True) if start < stop]

    plain = prepared(pieces)
    verdict = begun(plain, CHAT)
    assert isinstance(plain.stream, LIBRARY.SyncByteStream)
    assert list(plain.iter_raw()) == pieces
    assert plain.is_closed

    async def again() -> None:
        response = prepared(pieces)
        assert await async_begun(response, CHAT) == verdict
        assert isinstance(response.stream, LIBRARY.AsyncByteStream)
        assert [piece async for piece in response.aiter_raw()] == pieces
        assert response.is_closed

    asyncio.run(again())


SERVER = Server()


@given(BLOCKS, st.sampled_from([None, "ReadError"]))
@settings(max_examples=40)
def test_a_begun_stream_gives_what_the_stock_client_gives(blocks: list[bytes], failure: str | None) -> None:
    def told(client: openai.OpenAI) -> list[str]:
        found: list[str] = []
        try:
            found.extend(repr(event) for event in opened(client))
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            found.append(repr(error))
        return found

    # Before any content an answer that breaks off has given nothing away.
    SERVER.reads, SERVER.failure = blocks if failure is None else [said(content="Rhine"), *blocks], failure
    assert told(OURS) == told(STOCK)


ARGUMENTS: dict[str, Any] = {"api_key": "k", "base_url": "http://server", "max_retries": 0}
STOCK = openai.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)
HOOKS = {"response": [Seen().look]}
OURS = fastlane.OpenAI(http_client=LIBRARY.Client(transport=SERVER, event_hooks=HOOKS), **ARGUMENTS)


def test_an_answer_that_cannot_be_read_gives_what_came_and_breaks_again_for_whoever_gets_it() -> None:
    response = prepared([ROLE], "ReadError")
    with pytest.raises(LIBRARY.ReadError) as raised:
        begun(response, CHAT)
    assert raised.value.request is response.request
    pieces = response.iter_raw()
    assert next(pieces) == ROLE
    with pytest.raises(LIBRARY.ReadError):
        next(pieces)
    response.close()
    assert response.is_closed

    async def again() -> None:
        response = prepared([ROLE], "ReadError")
        with pytest.raises(LIBRARY.ReadError):
            await async_begun(response, CHAT)
        pieces = response.aiter_raw()
        assert await anext(pieces) == ROLE
        with pytest.raises(LIBRARY.ReadError):
            await anext(pieces)
        await response.aclose()
        assert response.is_closed

    asyncio.run(again())


def test_what_was_kept_is_gone_once_the_answer_is_closed() -> None:
    response = prepared([ROLE, said(content="Rhine"), STOP])
    begun(response, CHAT)
    stream = response.stream
    response.close()
    assert list(stream) == [STOP]  # what the server's own body gives yet, as this one was never closed
