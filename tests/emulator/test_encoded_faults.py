"""Servers that take plain JSON and fail on encoded bodies."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx2
import msgpack  # type: ignore[import-untyped]
import pytest

from fastlane.emulator import Emulator
from tests.emulator.requests import chat, events

FORMS = {
    "json+gzip": {"content-type": "application/json", "content-encoding": "gzip"},
    "msgpack": {"content-type": "application/vnd.msgpack"},
    "msgpack+gzip": {"content-type": "application/vnd.msgpack", "content-encoding": "gzip"},
}
LONG = chat("Review this function. " * 50)


def encoded(body: object, form: str) -> dict[str, Any]:
    """The body and the headers to post."""
    written: bytes = msgpack.packb(body) if "msgpack" in form else json.dumps(body).encode()
    return {"content": gzip.compress(written) if "gzip" in form else written, "headers": FORMS[form]}


def billed(emulator: Emulator) -> list[bool]:
    return [record.output_tokens > 0 for record in emulator.log()]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("status", [400, 413, 415, 422, 500])
def test_encoded_only_status_fault_bills_nothing(
    http: httpx2.Client, emulator: Emulator, form: str, status: int
) -> None:
    emulator.set_faults(f"status={status};only=encoded")
    refused = http.post("/chat/completions", **encoded(LONG, form))
    plain = http.post("/chat/completions", json=LONG)

    assert [refused.status_code, plain.status_code] == [status, 200]
    assert refused.json()["error"].keys() == {"message", "type", "param", "code"}
    assert billed(emulator) == [False, True]
    assert [record.fault for record in emulator.log()] == [f"status={status};only=encoded", None]


@pytest.mark.parametrize("fault", ["disconnect", "refuse"])
def test_encoded_only_fault_drops_connection_but_not_plain_json(
    http: httpx2.Client, emulator: Emulator, form: str, fault: str
) -> None:
    emulator.set_faults(f"{fault};only=encoded")
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)):
        http.post("/chat/completions", **encoded(LONG, form))
    plain = http.post("/chat/completions", json=LONG)

    assert plain.status_code == 200
    assert [record.status for record in emulator.log()] == [None, 200]
    assert billed(emulator) == [False, True]


def test_hang_sends_nothing_not_even_headers(http: httpx2.Client, emulator: Emulator) -> None:
    emulator.set_faults("hang;only=encoded")
    with pytest.raises(httpx2.ReadTimeout):
        http.post("/chat/completions", **encoded(LONG, "json+gzip"), timeout=httpx2.Timeout(40, read=0.3))
    plain = http.post("/chat/completions", json=LONG)
    record = emulator.log()[0]

    assert plain.status_code == 200
    assert (record.status, record.headers_sent_ns, record.admitted_ns, record.finished_ns) == (None, None, None, None)
    assert billed(emulator) == [False, True]


def test_misparse_treats_encoded_body_as_empty_prompt(http: httpx2.Client, emulator: Emulator, form: str) -> None:
    emulator.set_faults("misparse;only=encoded")
    wrong = http.post("/chat/completions", **encoded(LONG, form)).json()
    right = http.post("/chat/completions", json=LONG).json()
    nothing = http.post("/chat/completions", json=chat("")).json()

    assert wrong["model"] == right["model"] == "some-model"
    assert wrong["usage"] == nothing["usage"]
    assert wrong["usage"]["prompt_tokens"] < 5 < right["usage"]["prompt_tokens"]
    assert wrong["choices"] == nothing["choices"] != right["choices"]
    assert billed(emulator) == [True, True, True]


def test_misparse_all_forgets_the_model_and_the_stream_too(http: httpx2.Client, emulator: Emulator) -> None:
    emulator.set_faults("misparse=all;only=encoded")
    body = {**LONG, "stream": True, "stream_options": {"include_usage": True}}
    wrong = http.post("/chat/completions", **encoded(body, "msgpack+gzip"))
    right = http.post("/chat/completions", json=body)

    assert wrong.json()["model"] == "instant"
    assert wrong.json()["usage"]["prompt_tokens"] < 5
    assert events(right.text)[-1]["usage"]["prompt_tokens"] > 5
