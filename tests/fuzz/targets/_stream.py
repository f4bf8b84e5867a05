"""Whole streams: what a caller of ours gets, event by event and error by error, against the stock client's caller."""

from __future__ import annotations

import json
from typing import Any

import openai

import fastlane
from tests.fuzz.drawn import Drawn, chance
from tests.fuzz.targets._sse import LINES
from tests.fuzz.targets._target import holds
from tests.prepared_server import LIBRARY, Server

CREATE: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "stream": True}
SERVER = Server()
ARGUMENTS: dict[str, Any] = {"api_key": "k", "base_url": "http://server", "max_retries": 0}
STOCK = openai.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)
OURS = fastlane.OpenAI(http_client=LIBRARY.Client(transport=SERVER), **ARGUMENTS)


def described(event: Any) -> Any:
    if not hasattr(event, "model_fields_set"):
        return type(event), event
    return type(event), repr(event), repr(event.model_dump(warnings=False)), event.model_fields_set


def described_error(error: Exception) -> Any:
    cause = error.__cause__
    request = getattr(error, "_request", None) or getattr(error, "request", None)
    url = None if request is None else str(request.url)
    return type(error), str(error), getattr(error, "body", None), type(cause), str(cause), url


def state(response: Any) -> Any:
    return response.is_closed, response.is_stream_consumed, response.num_bytes_downloaded


def outcome_of(client: Any) -> Any:
    events: list[Any] = []
    stream = client.chat.completions.create(**CREATE)
    try:
        for event in stream:
            events.append((described(event), state(stream.response)))  # noqa: PERF401 - what came before an error counts
    except Exception as error:  # noqa: BLE001 - whatever it is, it has to be the same
        return events, described_error(error), state(stream.response)
    return events, None, state(stream.response)


def chunk(content: Any, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}


WHOLE = json.dumps(chunk("é")).encode()

_DATA = (
    WHOLE, b"[DONE]", b"[DONE]x", b"", b"null", b"1", b"{", b"[]", b"{}", b"NaN",
    b'{"error": {"message": "It broke."}}',
    b'{"error": null, "id": "c"}', b'{"choices": 1}', b'{"choices": [null]}', b'{"choices": [{"delta": null}]}',
    b"\xff",
    b'{"id": "a", "id": "b"}', b'{"model": 99999999999999999999999999}', b'\t{"id": "c"}\t', b'{"id": "\\ud800"}',
    json.dumps(chunk("x", service_tier="unknown", extra={"a": [1]})).encode(), json.dumps(chunk("😀")).encode(),
    b"[" * 3_000, b"1" * 4_400, b'{"usage": {"prompt_tokens": ' + b"9" * 30 + b"}}", b'{"id": "a\xe2\x80\xa8b"}',
)  # fmt: skip
_FAILURES = (None, None, None, "ReadError", "ReadTimeout", "RemoteProtocolError")


def drawn_answer(data: bytes) -> tuple[list[bytes], str | None]:
    """A body of lines drawn by the bytes, with drawn cuts, and how reading it fails, if it does."""
    draw = Drawn(data)
    parts: list[bytes] = []
    failure = draw.choice(_FAILURES)
    while not draw.spent and len(parts) < 30:
        kind = draw.randrange(8)
        if kind < 4:
            parts.append(b"data: " + draw.choice(_DATA) + b"\n\n")
        elif kind < 7:
            parts.append(draw.choice(LINES))
        else:
            parts.append(draw.bytes_of(16))
    return [read for read in Drawn(data[::-1]).cut(b"".join(parts)) if read], failure


def check(data: bytes) -> None:
    """An answer drawn by the bytes, which may break off."""
    SERVER.reads, SERVER.failure = drawn_answer(data)
    expected, found = outcome_of(STOCK), outcome_of(OURS)
    holds(found == expected, "a caller gets something else than the stock client's", SERVER.reads, found, expected)
    record = OURS.calls[-1]
    holds(record.events == len(expected[0]), "the record counts other events", record.events, len(expected[0]))
    holds((record.outcome == "failed") == (expected[1] is not None), "the record has another end", record.outcome)


def seeds() -> list[bytes]:
    """Bytes that draw bodies."""
    return chance(40, 90)
