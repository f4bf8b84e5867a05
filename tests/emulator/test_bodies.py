"""Encoded bodies are read alike, refused where a provider does not take them, and never a bug."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx2
import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fastlane.emulator import Emulator
from tests.emulator.requests import chat, serving

law = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def post(client: httpx2.Client, body: bytes, media_type: str | None, encoding: str | None) -> httpx2.Response:
    given = {"content-type": media_type, "content-encoding": encoding}
    headers = {name: value for name, value in given.items() if value is not None}
    return client.post("/chat/completions", content=body, headers=headers)


@law
@given(st.text())
def test_every_encoding_reads_the_same(http: httpx2.Client, text: str) -> None:
    plain, packed = json.dumps(chat(text)).encode(), msgpack.packb(chat(text))
    answers = [
        post(http, plain, "application/json; charset=utf-8", None),
        post(http, plain, None, "identity"),
        post(http, packed, "application/vnd.msgpack", None),
        post(http, gzip.compress(packed), "application/x-msgpack", "gzip"),
        post(http, gzip.compress(plain), "application/json", "GZIP"),
    ]

    first, *others = [(answer.json()["choices"], answer.json()["usage"]["prompt_tokens"]) for answer in answers]
    assert others == [first] * 4


def test_binary_part_is_read_as_base64(http: httpx2.Client) -> None:
    def answer(data: Any) -> Any:
        body = msgpack.packb(chat(messages=[{"role": "user", "content": [{"type": "text", "text": data}]}]))
        return post(http, body, "application/msgpack", None).json()["choices"]

    assert answer(b"\x00\xff") == answer("AP8=") != answer("AP9=")


@law
@given(st.binary(max_size=60), st.sampled_from(["application/json", "application/msgpack"]), st.booleans())
def test_body_of_any_bytes_is_a_400(http: httpx2.Client, body: bytes, media_type: str, zipped: bool) -> None:
    assert post(http, body, media_type, "gzip" if zipped else None).status_code == 400


def test_gzip_body_cut_short_is_a_400(http: httpx2.Client) -> None:
    refused = post(http, gzip.compress(json.dumps(chat()).encode())[:-6], "application/json", "gzip")

    assert refused.status_code == 400
    assert "too early" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("media_type", "encoding", "accepted"),
    [
        ("application/json", "br", ("json", "gzip")),
        ("application/json", "gzip", ("json",)),
        ("Application/MsgPack", None, ("json", "gzip")),
        ("text/plain", None, ("json", "gzip")),
    ],
)
def test_encoding_that_is_not_accepted_is_a_415(
    http: httpx2.Client, emulator: Emulator, media_type: str, encoding: str | None, accepted: Any
) -> None:
    emulator.change(dialect={"accepted_encodings": accepted})
    refused = post(http, gzip.compress(b"{}") if encoding else b"{}", media_type, encoding)

    assert refused.status_code == 415
    assert "Unsupported" in refused.json()["error"]["message"]


@pytest.mark.asyncio
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "a decompression bomb"])
async def test_body_beyond_the_limit_is_a_413(monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    for module in ("_request", "_http"):
        monkeypatch.setattr(f"fastlane.emulator.{module}.MAXIMUM_BYTES", 1_000)
    body = json.dumps(chat("x" * 100_000)).encode()
    headers = {"content-encoding": "gzip"} if zipped else {}
    async with serving(http2=True) as (_, client):
        response = await client.post(
            "/chat/completions", content=gzip.compress(body) if zipped else body, headers=headers
        )

    assert response.status_code == 413
    assert "exceeds 1000 bytes" in response.json()["error"]["message"]
