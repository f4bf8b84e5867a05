from __future__ import annotations

import dataclasses

import httpx2

from fastlane.emulator import Emulator, RequestLog
from tests.emulator.raw_http2 import ended
from tests.emulator.requests import chat, raw_http2, stream
from tests.waiting import until

# At 20 ms for each, more tokens than any test has the time for.
ENDLESS = "100000"


def test_log_has_the_received_request(http: httpx2.Client, emulator: Emulator, protocol: str) -> None:
    stream(http, chat(), x_emulator_tag="t-1")
    record = emulator.log()[0]

    assert record.http_version == protocol
    assert record.path == "/v1/chat/completions"
    assert record.model == "some-model"
    assert record.tag == "t-1"
    assert record.stream
    assert record.status == 200
    assert record.content_type == "application/json"
    assert record.bytes_in == record.bytes_in_decoded > 0
    assert "authorization" in record.header_names
    assert record.connection_request_number == 1


def test_log_records_a_connection_closed_by_the_server(http: httpx2.Client, emulator: Emulator) -> None:
    stream(http, chat(), x_emulator_fault="idle_close=0.01")

    until(lambda: emulator.log()[0].connection_closed_by == "server")


def test_log_records_a_connection_closed_by_the_client(http: httpx2.Client, emulator: Emulator) -> None:
    stream(http, chat())
    stream(http, chat())
    assert [each.connection_closed_by for each in emulator.log()] == [None, None]
    http.close()

    until(lambda: emulator.log()[1].connection_closed_by == "client")
    assert emulator.log()[0].connection_closed_by is None


def test_log_timestamps_are_in_order(http: httpx2.Client, emulator: Emulator) -> None:
    stream(http, chat(), x_emulator_token_ms="1")
    record = emulator.log()[0]
    moments = [
        record.received_ns,
        record.body_complete_ns,
        record.admitted_ns,
        record.headers_sent_ns,
        record.first_token_ns,
        record.finished_ns,
    ]

    assert None not in moments
    assert moments == sorted(moments)  # type: ignore[type-var]
    assert list(record.token_ns) == sorted(record.token_ns)
    assert len(record.token_ns) == record.output_tokens == 64
    assert record.first_token_ns == record.token_ns[0]


def test_neither_keys_nor_texts_are_kept(http: httpx2.Client, emulator: Emulator) -> None:
    stream(http, chat("a secret prompt"))
    written = repr(emulator.log())

    assert "secret" not in written
    assert not any("hash" in field.name for field in dataclasses.fields(RequestLog))


def test_client_that_leaves_is_noted_and_its_answer_stops(
    http: httpx2.Client, emulator: Emulator, protocol: str
) -> None:
    headers = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": ENDLESS}
    with http.stream("POST", "/chat/completions", json=chat(stream=True), headers=headers) as response:
        next(response.iter_text())
    http.close()

    until(lambda: emulator.log()[0].reset_ns is not None)
    record = emulator.log()[0]
    assert record.finished_ns is None
    assert emulator.log()[0].output_tokens == record.output_tokens < int(ENDLESS)


def test_reset_of_the_client_is_noted_with_its_code(emulator: Emulator) -> None:
    with raw_http2(emulator) as raw:
        left = raw.post(chat(stream=True), x_emulator_token_ms="20", x_emulator_output_tokens=ENDLESS)
        raw.read_until(lambda event: len(raw.body(left)) > 1_000)
        raw.h2.reset_stream(left, 8)
        raw.flush()
        other = raw.post(chat(stream=True))
        raw.read_until(ended(other))
    first, second = emulator.log()

    assert first.reset_code == 8
    assert first.finished_ns is None
    assert first.output_tokens < int(ENDLESS)
    assert second.finished_ns is not None


def test_small_window_holds_the_tokens_back(emulator: Emulator) -> None:
    with raw_http2(emulator, window_bytes=1_000) as raw:
        slow = raw.post(chat(stream=True))
        raw.read_until(lambda event: len(raw.body(slow)) >= 1_000, acknowledge=False)
        held = emulator.log()[0]
        raw.h2.increment_flow_control_window(100_000, slow)
        raw.flush()
        raw.read_until(ended(slow))

    assert held.bytes_out == 1_000
    assert len(held.token_ns) < 10
    assert len(emulator.log()[0].token_ns) == 64
    assert raw.body(slow).endswith(b"[DONE]\n\n")
