"""Whatever a server sends, cut however the network cuts it: the same events and errors as the stock client gives."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import openai
from hypothesis import example, given, settings, strategies as st

import fastlane
from tests.prepared_server import LIBRARY, Server

CREATE: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "stream": True}


SERVER = Server()
ARGUMENTS: dict[str, Any] = {"api_key": "k", "base_url": "http://server", "max_retries": 0}
STOCK = openai.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)
OURS = fastlane.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)
ASYNC_STOCK = openai.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)
ASYNC_OURS = fastlane.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)


def described(event: Any) -> Any:
    if not hasattr(event, "model_fields_set"):
        return type(event), event
    return type(event), repr(event), repr(event.model_dump(warnings=False)), event.model_fields_set


def said(error: Exception) -> Any:
    cause = error.__cause__
    request = getattr(error, "_request", None) or getattr(error, "request", None)
    url = None if request is None else str(request.url)
    return type(error), str(error), getattr(error, "body", None), type(cause), str(cause), url


def state(response: Any) -> Any:
    return response.is_closed, response.is_stream_consumed, response.num_bytes_downloaded


def told(client: openai.OpenAI) -> Any:
    events: list[Any] = []
    stream = client.chat.completions.create(**CREATE)
    try:
        for event in stream:
            events.append((described(event), state(stream.response)))  # noqa: PERF401 - what came before an error counts
    except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
        return events, said(error), state(stream.response)
    return events, None, state(stream.response)


async def async_told(client: openai.AsyncOpenAI) -> Any:
    events: list[Any] = []
    stream = await client.chat.completions.create(**CREATE)
    try:
        async for event in stream:
            events.append((described(event), state(stream.response)))  # noqa: PERF401
    except Exception as error:  # noqa: BLE001
        return events, said(error), state(stream.response)
    return events, None, state(stream.response)


def chunk(content: Any, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}


TEXTS = st.text(max_size=6)
CHUNKS = st.builds(
    lambda text, ascii_only: json.dumps(chunk(text), ensure_ascii=ascii_only),
    TEXTS.filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)),
    st.booleans(),
)
ODD_DATA = st.sampled_from(
    [
        "[DONE]",
        "[DONE]]",
        " [DONE]",
        "",
        " ",
        "null",
        "1",
        '"text"',
        "[]",
        "{}",
        "{",
        "[1",
        "NaN",
        '{"id": NaN}',
        '{"id": "\\ud800"}',
        '{"error": {"message": "It broke."}}',
        '{"error": {"message": 7, "code": "x"}}',
        '{"error": "It broke."}',
        '{"error": null, "id": "c"}',
        '{"choices": 1}',
        '{"choices": [null]}',
        '{"choices": [{"delta": null}]}',
        '{"id": "a", "id": "b"}',
        '{"_fields_set": ["id"], "id": "c"}',
        '{"model": 99999999999999999999999999}',
        "\ufeff{}",
        '\t{"id": "c"}\t',
        '{"id": "a\u2028b\x85c"}',
        json.dumps(chunk("x", service_tier="unknown", extra={"a": [1]})),
        json.dumps(chunk(None, choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})),
    ]
)
DATA = st.one_of(CHUNKS, CHUNKS, CHUNKS, ODD_DATA)
NAMES = st.sampled_from(["", "error", "message", "thread.run", "thread", "é", "\ufeff"])
ENDS = st.sampled_from(["\n", "\n", "\n", "\n", "\n", "\n", "\r\n", "\r"])
PLAIN = st.builds("data: {}\n\n".format, DATA)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """One block of an event stream, in whatever form, or what should not be in one."""
    if draw(st.integers(0, 9)) < 5:
        return draw(PLAIN).encode()
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from([b"\xff\n\n", b"data: \xc3\n\n", b": \xff\n\n", b"event: \xff\ndata: {}\n\n", b"\x00"])
        )
    lines = []
    for _ in range(draw(st.integers(0, 3))):
        form = draw(
            st.sampled_from(
                ["data: ", "data:", "data:  ", "event: ", "event:", "id: ", "retry: ", ": ", "other: ", "data"]
            )
        )
        value = draw(
            NAMES if form.startswith("event") else DATA if form.startswith("data") else st.sampled_from(["1", "x", ""])
        )
        lines.append(form + value + draw(ENDS))
    if draw(st.booleans()):
        lines.append(draw(ENDS))
    return ("\ufeff" * (draw(st.integers(0, 19)) == 0) + "".join(lines)).encode()


BODIES = st.lists(blocks(), max_size=8).map(b"".join)


@st.composite
def cut(draw: st.DrawFn) -> list[bytes]:
    """What the network makes of a body: whole, byte for byte, or in any pieces."""
    body = draw(BODIES)
    if not body:
        return []
    step = draw(st.sampled_from([0, 0, 1, 2, 7, len(body)]))
    if step:
        return [body[start : start + step] for start in range(0, len(body), step)]
    edges = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=6))})
    return [body[start:end] for start, end in itertools.pairwise(edges)]


FAILURES = st.sampled_from([None, None, "ReadError", "ReadTimeout", "RemoteProtocolError"])
WHOLE = json.dumps(chunk("é")).encode()


@settings(max_examples=150)
@example([b"data: " + WHOLE + b"\n\ndata: " + WHOLE + b"\r\n\r", b"\n: x\n\n"], None)
@example([b"data: " + WHOLE + b"\n\n", b"data: " + WHOLE + b"\n"], "ReadError")
@given(cut(), FAILURES)
def test_every_body_gives_what_the_asynchronous_stock_client_gives(reads: list[bytes], failure: str | None) -> None:
    SERVER.reads, SERVER.failure = reads, failure

    async def both() -> tuple[Any, Any]:
        return await async_told(ASYNC_STOCK), await async_told(ASYNC_OURS)

    expected, found = asyncio.run(both())
    assert found == expected
    assert ASYNC_OURS.calls[-1].events == len(expected[0])
