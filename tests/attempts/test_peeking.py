"""A stream whose first content is awaited before the caller gets it matches the stock client's stream."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns as now_ns
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st

import fastlane
from fastlane import Connection, Routing
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator, RequestLog
from tests.attempts.events import BEFORE, DONE, STOP, choice_event, data
from tests.call_peer import CallPeer, Reply
from tests.prepared_server import LIBRARY, Server
from tests.waiting import SYNC, Form, comes_true, inner_of, until

TEXT = "The Danube flows through ten countries."
ASKED = {"x-emulator-output-text": TEXT}
THINKING = {**ASKED, "x-emulator-prefill-ms": "50", "x-emulator-token-ms": "5"}
PREFILL_NS, TOKEN_NS = 50_000_000, 5_000_000
SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}
EVENT_STREAM = (("content-type", "text/event-stream"), ("x-request-id", "req_1"))
CREATE: dict[str, Any] = {
    "model": "fastlane/auto",
    "messages": [{"role": "user", "content": "Name a river."}],
    "stream": True,
}
ROUTING = Routing(
    Catalog(models=(CatalogModel(name="m", first_token_s=((1_000, 0.01),), tokens_per_s=100.0),)), exploration=0.0
)
"""One model: nothing but the wait for the first content comes of it."""

every_transport = pytest.mark.parametrize("client_kind", ["HTTP/2", "HTTP/1.1", "httpx2", "httpx"])


@contextmanager
def waiting(client_kind: str, arguments: dict[str, Any], form: Form = SYNC, **options: Any) -> Iterator[Any]:
    """A client that waits for the first content, over our transport or a given HTTP client."""
    given_options = {**arguments, "max_retries": 0, "raise_play_errors": True, "only_plays": [ROUTING], **options}
    if client_kind.startswith("HTTP/"):
        given_options["only_plays"] = [Connection(http2="require" if client_kind == "HTTP/2" else "never"), ROUTING]
    else:
        library = pytest.importorskip(client_kind)
        given_options["http_client"] = (library.AsyncClient if form.asynchronous else library.Client)(timeout=None)
    with form.make(fastlane, **given_options) as client:
        yield client


def opened(client: Any) -> Any:
    return client.chat.completions.create(**CREATE)


def text_of(chunks: list[Any]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def was_cancelled_upstream(provider: Emulator) -> bool:
    def stopped(request: RequestLog) -> bool:
        return request.reset_ns is not None and request.output_tokens < 3000

    return all(map(stopped, provider.log()))


@every_transport
def test_peeked_stream_is_returned_from_its_first_byte(form: Form, client_kind: str, arguments: dict[str, Any]) -> None:
    with waiting(client_kind, arguments, form, default_headers=ASKED) as client:
        stream = opened(client)
        chunks = list(stream)
        (record,) = client.calls

    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == TEXT
    assert stream.response.is_closed
    assert stream.response.num_bytes_downloaded == record.last_attempt.response_body_bytes > 0
    assert stream.response.elapsed.total_seconds() > 0
    assert record.outcome == "completed"


@every_transport
def test_first_token_counts_when_it_arrived(
    form: Form, client_kind: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    with waiting(client_kind, arguments, form, default_headers=THINKING) as client:
        stream = opened(client)
        returned_ns = now_ns()
        list(stream)
        timeline = client.calls[0].timeline
    (request,) = provider.log()

    assert request.received_ns + PREFILL_NS <= timeline.first_token_ns <= returned_ns
    # What came later arrived later.
    assert timeline.token_ns[-1] >= request.received_ns + PREFILL_NS + (request.output_tokens - 1) * TOKEN_NS


@every_transport
def test_closing_unread_peeked_stream_cancels_upstream(
    form: Form, client_kind: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    with waiting(client_kind, arguments, form, default_headers=SLOW) as client:
        opened(client).close()
        assert [record.outcome for record in client.calls] == ["closed"]
        until(lambda: was_cancelled_upstream(provider))


@every_transport
def test_call_cancelled_before_content_cancels_upstream(
    client_kind: str, provider: Emulator, arguments: dict[str, Any]
) -> None:
    async def cancelled(client: openai.AsyncOpenAI) -> None:
        call = asyncio.create_task(client.chat.completions.create(**CREATE))
        assert await asyncio.to_thread(
            comes_true, lambda: any(entry.headers_sent_ns is not None for entry in provider.log())
        )
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    headers = {**SLOW, "x-emulator-prefill-ms": "60000", "x-emulator-fault": "keepalive=0.02"}
    form = Form("async")
    with waiting(client_kind, arguments, form, default_headers=headers) as client:
        form.run(cancelled(inner_of(client)))
        until(lambda: was_cancelled_upstream(provider))
    form.close()


@every_transport
@pytest.mark.parametrize("fault", ["drop;after=0", "reset;after=0"])
def test_stream_broken_before_content_raises_library_error(
    form: Form, client_kind: str, fault: str, arguments: dict[str, Any]
) -> None:
    headers = {**THINKING, "x-emulator-fault": f"early_role,{fault}"}
    with (
        waiting(client_kind, arguments, form, default_headers=headers) as client,
        pytest.raises(openai.APIError) as raised,
    ):
        list(opened(client))
    error: Any = raised.value.__cause__

    assert type(error).__name__ in ("ReadError", "RemoteProtocolError")
    assert type(error).__module__.startswith("httpx" if client_kind == "httpx" else LIBRARY.__name__)
    assert error.request.url.path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        (
            (*EVENT_STREAM, ("content-encoding", "gzip")),
            gzip.compress(choice_event(content="Rhine") + STOP + DONE),
            "Rhine",
        ),
        ((("content-type", "application/json"),), b'{"choices": []}', ""),
    ],
)
def test_compressed_or_non_sse_body_is_returned_unpeeked(peer: CallPeer, headers: Any, body: bytes, text: str) -> None:
    peer.replies = [Reply(headers=headers, body=body)]
    arguments = {"api_key": "sk-test", "base_url": f"{peer.url}/v1"}
    with waiting(peer.protocol, arguments) as client:
        assert text_of(list(opened(client))) == text


SERVER = Server()
ARGUMENTS: dict[str, Any] = {"api_key": "k", "base_url": "http://server", "max_retries": 0}
STOCK = openai.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)
OURS = fastlane.OpenAI(http_client=LIBRARY.Client(transport=SERVER), only_plays=[ROUTING], **ARGUMENTS)
BLOCKS = st.lists(
    st.sampled_from(
        [*BEFORE, choice_event(content="Rhine"), choice_event("length"), STOP, DONE, data({"error": {"code": 503}})]
    ),
    max_size=6,
)


@given(BLOCKS, BLOCKS, st.sampled_from([None, "ReadError"]), st.data())
def test_peeked_stream_gives_the_stock_client_events(
    before: list[bytes], blocks: list[bytes], failure: str | None, draw: st.DataObject
) -> None:
    def events_or_error(client: openai.OpenAI) -> list[str]:
        found: list[str] = []
        try:
            found.extend(repr(event) for event in opened(client))
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
            found.append(repr(error))
        return found

    # An answer without any content is another's to judge.
    harmless = [block for block in before if block in BEFORE]
    body = b"".join([*harmless, choice_event(content="Rhine"), *blocks])
    cuts = sorted(draw.draw(st.sets(st.integers(1, len(body) - 1), max_size=6)))
    SERVER.reads = [body[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    SERVER.failure = failure
    assert events_or_error(OURS) == events_or_error(STOCK)
