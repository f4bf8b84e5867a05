from __future__ import annotations

import gzip
import json
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, strategies as st

from fastlane.emulator import Dialect, _request
from fastlane.emulator._request import ApiError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def headers(media_type: str | None, encoding: str | None) -> dict[str, str]:
    given = {"content-type": media_type, "content-encoding": encoding}
    return {name: value for name, value in given.items() if value is not None}


def read(body: bytes, media_type: str | None, encoding: str | None, dialect: Dialect | None = None) -> dict[str, Any]:
    given, dialect = headers(media_type, encoding), dialect or Dialect()
    return _request.parse(_request.decompress(body, given, dialect), given, dialect)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_every_encoding_reads_the_same(value: dict[str, Any]) -> None:
    packed, text = msgpack.packb(value), json.dumps(value).encode()

    assert read(text, "application/json; charset=utf-8", None) == value
    assert read(text, None, "identity") == value
    assert read(packed, "application/vnd.msgpack", None) == value
    assert read(gzip.compress(packed), "application/x-msgpack", "gzip") == value
    assert read(gzip.compress(text), "application/json", " GZIP ") == value


def test_binary_part_is_read_as_base64() -> None:
    packed = msgpack.packb({"messages": [{"content": [{"data": b"\x00\xff"}]}]})

    assert read(packed, "application/msgpack", None) == {"messages": [{"content": [{"data": "AP8="}]}]}


@pytest.mark.parametrize(
    ("media_type", "encoding", "encoded"),
    [
        (None, None, False),
        ("application/json; charset=utf-8", "identity", False),
        ("application/json", "gzip", True),
        ("application/json", "br", True),
        ("Application/Vnd.MsgPack", None, True),
    ],
)
def test_body_encoding_follows_its_headers(media_type: str | None, encoding: str | None, encoded: bool) -> None:
    assert _request.is_encoded(headers(media_type, encoding)) is encoded


@given(st.binary(max_size=60), st.sampled_from(["application/json", "application/msgpack"]), st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, media_type: str, zipped: bool) -> None:
    refused: ApiError | None = None
    try:
        read(body, media_type, "gzip" if zipped else None)
    except ApiError as error:
        refused = error

    assert refused is None or refused.status == 400


def test_decompression_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_request, "MAXIMUM_BYTES", 10_000)
    with pytest.raises(ApiError, match="exceeds 10000 bytes") as caught:
        read(gzip.compress(b" " * 1_000_000), "application/json", "gzip")

    assert caught.value.status == 413


@pytest.mark.parametrize(
    ("media_type", "encoding", "accepted"),
    [
        ("application/json", "br", ("json", "gzip")),
        ("application/json", "gzip", ("json",)),
        ("application/msgpack", None, ("json", "gzip")),
        ("text/plain", None, ("json", "gzip")),
    ],
)
def test_encoding_that_is_not_accepted_is_a_415(media_type: str, encoding: str | None, accepted: Any) -> None:
    with pytest.raises(ApiError, match="Unsupported") as caught:
        read(gzip.compress(b"{}") if encoding else b"{}", media_type, encoding, Dialect(accepted_encodings=accepted))

    assert caught.value.status == 415


def test_gzip_body_cut_short_is_a_400() -> None:
    with pytest.raises(ApiError, match="too early"):
        read(gzip.compress(b'{"a": "some text"}')[:-6], "application/json", "gzip")
