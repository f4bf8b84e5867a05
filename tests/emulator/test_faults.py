from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from time import perf_counter_ns as now_ns
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from h2.events import StreamReset
from h2.settings import SettingCodes

from fastlane.emulator import Emulator, Fault
from tests.emulator.raw_http2 import RawHttp2, ended
from tests.emulator.requests import chat, content, events, raw_http2, stream

# Longer than any test waits.
FOR_EVER_MS = "600000"

# h2 calls a body shorter than its content-length a breach of the local protocol.
BROKEN = (httpx2.RemoteProtocolError, httpx2.LocalProtocolError, httpx2.ReadError, httpx2.WriteError)


def pieces(text: str) -> int:
    return sum(1 for event in events(text) if event["choices"] and event["choices"][0]["delta"].get("content"))


def read_what_comes(client: httpx2.Client, fault: str) -> tuple[str, Exception | None]:
    """Stream until the end or an error; returns what came and the error."""
    came: list[str] = []
    try:
        with client.stream(
            "POST", "/chat/completions", json=chat(stream=True), headers={"x-emulator-fault": fault}
        ) as response:
            came.extend(response.iter_text())
    except (*BROKEN, httpx2.ReadTimeout) as error:
        return "".join(came), error
    return "".join(came), None


@contextmanager
def reading(client: httpx2.Client, fault: str, enough: Callable[[str], bool], **headers: str) -> Iterator[str]:
    """The events of a stream that have come when they are enough; the stream is open still, and left at the end."""
    sent = {"x-emulator-fault": fault, **{name.replace("_", "-"): value for name, value in headers.items()}}
    came = ""
    with client.stream("POST", "/chat/completions", json=chat(stream=True), headers=sent) as response:
        for part in response.iter_text():
            came += part
            if enough(came[: came.rfind("\n\n") + 2]):
                break
        yield came


def test_status_with_retry_after_twice_then_the_answer(http: httpx2.Client, emulator: Emulator) -> None:
    headers = {"x-emulator-fault": "status=429;retry_after=0.2;times=2", "x-emulator-tag": f"{http.base_url}{id(http)}"}
    answers = [http.post("/chat/completions", json=chat(), headers=headers) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "0.2"
    assert answers[0].headers["retry-after-ms"] == "200"
    assert answers[0].json()["error"]["code"] == "rate_limit_exceeded"
    assert [record.fault is None for record in emulator.log()] == [False, False, True]


def test_times_are_counted_for_every_tag_by_itself(http: httpx2.Client) -> None:
    def status(tag: str) -> int:
        headers = {"x-emulator-fault": "status=500;times=1;every=1", "x-emulator-tag": f"{tag}{id(http)}"}
        return http.post("/chat/completions", json=chat(), headers=headers).status_code

    assert [status("a"), status("b"), status("a"), status("b")] == [500, 500, 200, 200]


@pytest.mark.parametrize("fault", ["drop;after=3", "reset;after=3;code=8"])
def test_broken_stream_breaks_after_three_tokens(http: httpx2.Client, emulator: Emulator, fault: str) -> None:
    text, error = read_what_comes(http, fault)
    record = emulator.log()[0]

    assert isinstance(error, BROKEN)
    assert pieces(text) <= 3
    assert record.output_tokens == 3
    assert record.fault == ("drop;after=3" if "drop" in fault else "reset;after=3")
    assert record.reset_ns is None


def test_truncate_ends_as_if_complete(http: httpx2.Client) -> None:
    text, error = read_what_comes(http, "truncate;after=3")

    assert error is None
    assert pieces(text) == 3
    assert "[DONE]" not in text
    assert all(event["choices"][0]["finish_reason"] is None for event in events(text))


def test_malformed_puts_one_event_that_is_not_json(http: httpx2.Client) -> None:
    text, _ = read_what_comes(http, "malformed;after=2")
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]

    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[3])
    assert all(json.loads(line) for line in [*lines[:3], *lines[4:]])


@pytest.mark.parametrize("streamed", [True, False])
def test_slow_headers_come_late(http: httpx2.Client, emulator: Emulator, streamed: bool) -> None:
    body = chat(stream=streamed)
    http.post("/chat/completions", json=body, headers={"x-emulator-fault": "slow_headers=0.25"}).read()
    record = emulator.log()[0]

    assert record.headers_sent_ns is not None
    assert record.headers_sent_ns - record.received_ns >= 249_000_000


def test_no_done_and_no_usage_leave_them_out(http: httpx2.Client) -> None:
    body = chat(stream_options={"include_usage": True})

    assert "[DONE]" not in stream(http, body, fault="no_done")
    assert not any(event.get("usage") for event in events(stream(http, body, fault="no_usage")))
    headers = {"x-emulator-fault": "no_usage"}
    assert "usage" not in http.post("/chat/completions", json=chat(), headers=headers).json()


def test_keepalive_comments_until_the_first_token(http: httpx2.Client) -> None:
    def three(text: str) -> bool:
        return text.count(": keep-alive\n\n") >= 3

    began = now_ns()
    with reading(http, "keepalive=0.05", three, x_emulator_prefill_ms=FOR_EVER_MS) as before:
        assert now_ns() - began >= 3 * 49_000_000
    after = stream(http, chat(), fault="keepalive=0.05", x_emulator_prefill_ms="100", x_emulator_token_ms="5")

    assert "data: " not in before
    assert "keep-alive" not in after.partition("data: ")[2]


@pytest.mark.parametrize("rule", ["status=503;every=2", Fault(kind="status", value=503, every=2)])
def test_rule_of_the_server_strikes_every_second_request(
    http: httpx2.Client, emulator: Emulator, rule: Fault | str
) -> None:
    emulator.set_faults(rule)
    struck = [http.post("/chat/completions", json=chat()).status_code for _ in range(4)]
    emulator.set_faults()

    assert struck == [200, 503, 200, 503]
    assert http.post("/chat/completions", json=chat()).status_code == 200


def test_refuse_on_http1_and_http2_breaks_before_any_answer(http: httpx2.Client, emulator: Emulator) -> None:
    with pytest.raises(BROKEN):
        http.post("/chat/completions", json=chat(), headers={"x-emulator-fault": "refuse"})

    assert emulator.log()[0].status is None
    assert emulator.log()[0].admitted_ns is None


@pytest.fixture
def raw(emulator: Emulator) -> RawHttp2:
    return raw_http2(emulator)


@pytest.mark.parametrize(("fault", "last"), [("idle_close", 3), ("idle_fin", None)])
def test_idle_http2_is_closed_with_or_without_goaway(raw: RawHttp2, fault: str, last: int | None) -> None:
    with raw:
        # A second request before the time is up keeps the connection.
        for seconds in (60, 0.2):
            raw.read_until(ended(raw.post(chat(stream=True), x_emulator_fault=f"{fault}={seconds}")))
        raw.read_until(lambda event: False)

    assert raw.closed
    assert raw.goaway_last == last


def over_http1(emulator: Emulator) -> HTTPSConnection:
    """One connection, on which a test sees the server close: a pool may use it again in the same moment."""
    url = urlsplit(emulator.direct_base_url)
    context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    return HTTPSConnection(url.hostname or "", url.port, timeout=40, context=context)


def test_idle_close_closes_http1_after_the_answer(emulator: Emulator) -> None:
    connection = over_http1(emulator)
    headers = {"authorization": "Bearer any", "content-type": "application/json"}
    for seconds in (60, 0.2):
        fault = {"x-emulator-fault": f"idle_close={seconds}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(chat()), {**headers, **fault})
        assert connection.getresponse().read()
    try:
        assert connection.sock.recv(1) == b""
    finally:
        connection.close()

    assert len({record.connection_id for record in emulator.log()}) == 1


@pytest.mark.parametrize(("fault", "code"), [("refuse", 7), ("reset;after=2;code=2", 2), ("reset", 8)])
def test_reset_stream_carries_its_code(raw: RawHttp2, fault: str, code: int) -> None:
    with raw:
        reset = raw.read_until(ended(raw.post(chat(stream=True), x_emulator_fault=fault)))

    assert isinstance(reset, StreamReset)
    assert reset.error_code == code


def test_graceful_goaway_ends_stream_and_refuses_the_next(raw: RawHttp2, emulator: Emulator) -> None:
    with raw:
        # A window for two tokens: the answer cannot end before the next one was refused.
        raw.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000})
        served = raw.post(chat(stream=True), x_emulator_fault="goaway=graceful;after=2")
        raw.read_until(lambda event: raw.goaway_last is not None, acknowledge=False)
        refused = raw.post(chat(stream=True))
        reset = raw.read_until(ended(refused), acknowledge=False)
        raw.h2.increment_flow_control_window(100_000, served)
        raw.flush()
        raw.read_until(ended(served))
        raw.read_until(lambda event: False)

    assert raw.goaway_last == served
    assert isinstance(reset, StreamReset)
    assert reset.error_code == 7
    assert len(content(raw.body(served).decode())) == 256
    assert raw.closed
    assert [record.fault for record in emulator.log()] == ["goaway=graceful;after=2", "refused after goaway"]


@pytest.mark.parametrize(("fault", "last"), [("goaway=hard;after=2", 1), ("goaway=hard;last=0", 0)])
def test_hard_goaway_closes_at_once(raw: RawHttp2, fault: str, last: int) -> None:
    with raw:
        cut = raw.post(chat(stream=True), x_emulator_fault=fault)

        assert raw.read_until(ended(cut)) is None
    assert raw.goaway_last == last


@pytest.mark.parametrize("fault", ["goaway=graceful", "goaway=graceful;after=2"])
def test_graceful_goaway_on_http1_closes_after_the_answer(emulator: Emulator, fault: str) -> None:
    connection = over_http1(emulator)
    headers = {"authorization": "Bearer any", "content-type": "application/json", "x-emulator-fault": fault}
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=True)), headers)
    try:
        assert b"[DONE]" in connection.getresponse().read()
        assert connection.sock.recv(1) == b""
    finally:
        connection.close()


def test_answer_continues_the_message_that_begins_it(http: httpx2.Client) -> None:
    text = content(stream(http, chat()))
    begun = {"role": "assistant", "content": text[:21], "prefix": True}
    messages = [*chat()["messages"], begun]

    assert content(stream(http, chat(messages=messages))) == text[21:]
    marked: dict[str, Any] = {"messages": [*messages[:-1], {**begun, "prefix": False}], "continue_final_message": True}
    assert content(stream(http, chat(**marked))) == text[21:]
