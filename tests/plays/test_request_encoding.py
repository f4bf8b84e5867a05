from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, strategies as st

from fastlane import Call, RequestEncoding
from fastlane.errors import ConfigurationError
from fastlane.plays.request_encoding.bodies import Writing, write
from fastlane.plays.request_encoding.session import RequestEncodingSession
from fastlane.providers import Fact, ProviderFacts

CHAT = "/chat/completions"
ALL: tuple[Any, ...] = ("json", "json+gzip", "msgpack", "msgpack+gzip")
TEXT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Is water wet?"}]}
FILE = """
name = "Example"

[encodings."/chat/completions"]
value = ["json", "json+gzip"]
source = "https://example.com/docs"
checked = 2026-11-22
evidence = "documented"
"""


def fact(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://example.com/docs", checked=date(2026, 11, 22), evidence="documented")


def facts(*forms: Any, endpoint: str = CHAT, **others: Any) -> ProviderFacts:
    return ProviderFacts(slug="example", encodings={endpoint: fact(forms)} if forms else {}, **others)


def call(body: dict[str, Any] | None = None, **changed: Any) -> Call:
    fields: dict[str, Any] = {"call_id": "1", "endpoint": CHAT, "origin": "https://example.com:443", "stream": True}
    return Call(body=TEXT if body is None else body, **(fields | changed))


class Chosen(NamedTuple):
    """What a session has chosen for a call."""

    forms: tuple[Any, ...]
    writing: Writing


def choose(play: RequestEncoding, asked: Call) -> Chosen:
    session = play.open(asked)
    assert isinstance(session, RequestEncodingSession)
    assert session.plan(asked) is asked
    return Chosen(session._forms, session._writing)


def test_a_facts_file_is_read_when_the_play_is_made(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(FILE)

    play, same = RequestEncoding(facts=file), RequestEncoding(facts=str(file))
    file.unlink()

    assert choose(play, call()).forms == ("json+gzip",)
    assert play == same
    assert repr(play) == repr(same)
    assert str(tmp_path) not in repr(play)


def test_invalid_facts_file_is_refused_when_the_play_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"lost\.toml"):
        RequestEncoding(facts=tmp_path / "lost.toml")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(FILE.replace("json+gzip", "zstd"))
    with pytest.raises(ConfigurationError, match=r"wrong\.toml.*encodings"):
        RequestEncoding(facts=wrong)


# Which forms


@pytest.mark.parametrize(
    ("prompt", "first"),
    [
        ([1, 2, 3], "msgpack+gzip"),
        ([[1, 2], [3]], "msgpack+gzip"),
        ("text", "json+gzip"),
        (["text", "more"], "json+gzip"),
        ([], "json+gzip"),
        ([[]], "json+gzip"),
        ([True], "json+gzip"),
        (None, "json+gzip"),
    ],
)
def test_a_prompt_of_token_ids_goes_as_messagepack_first(prompt: Any, first: str) -> None:
    planned = call({"prompt": prompt}, endpoint="/completions", facts=facts(*ALL, endpoint="/completions"))

    assert choose(RequestEncoding(), planned).forms[0] == first


@pytest.mark.parametrize(
    ("taken", "allowed", "expected"),
    [
        (("json", "json+gzip"), None, ("json+gzip",)),
        (("json", "msgpack"), None, ("msgpack",)),
        (ALL, ("msgpack", "json+gzip"), ("json+gzip", "msgpack")),
        (("json", "json+gzip"), ("msgpack",), ()),
        (("json",), None, ()),
        (ALL, ("json",), ()),
    ],
)
def test_only_what_the_provider_takes_and_the_application_allows(
    taken: tuple[Any, ...], allowed: tuple[Any, ...] | None, expected: tuple[Any, ...]
) -> None:
    found = choose(RequestEncoding(forms=allowed), call(facts=facts(*taken)))

    assert found.forms == expected


def test_known_facts_apply_where_play_facts_are_silent() -> None:
    own = facts("json", "json+gzip", endpoint="/completions")
    known = facts(*ALL, media_types={"msgpack": fact("application/msgpack")})

    found = choose(RequestEncoding(facts=own), call(facts=known))

    assert found.writing.msgpack_type == "application/msgpack"
    assert found.forms == choose(RequestEncoding(), call(facts=known)).forms
    again = choose(RequestEncoding(facts=own), call(endpoint="/completions", facts=known))
    assert again.forms == ("json+gzip",)


def test_facts_give_the_msgpack_media_type() -> None:
    known = facts(*ALL, media_types={"msgpack": fact("application/msgpack")})

    assert choose(RequestEncoding(), call(facts=known)).writing.msgpack_type == "application/msgpack"
    assert choose(RequestEncoding(), call(facts=facts(*ALL))).writing.msgpack_type == "application/vnd.msgpack"


# What it leaves alone


@pytest.mark.parametrize("name", ["Content-Type", "content-encoding", "CONTENT-ENCODING"])
def test_body_described_by_another_play_is_not_encoded(name: str) -> None:
    planned = call(headers={name: "application/json"}, facts=facts(*ALL))

    session = RequestEncoding().open(planned)

    assert session is not None
    assert session.plan(planned) is planned
    outcome: Any = None
    assert session.close(outcome) is None


FORMS: tuple[Any, ...] = ("json+gzip", "msgpack", "msgpack+gzip")


def read(body: bytes, form: str) -> Any:
    if form.endswith("gzip"):
        body = gzip.decompress(body)
    return msgpack.unpackb(body, strict_map_key=False) if form.startswith("msgpack") else json.loads(body)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(body=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=5))
@pytest.mark.parametrize("form", FORMS)
def test_every_encoding_decodes_to_the_json(body: dict[str, Any], form: Any) -> None:
    plain = json.dumps(body).encode()

    decoded = read(write(plain, form, Writing())[0], form)

    assert decoded == json.loads(plain)
    assert json.dumps(decoded) == json.dumps(json.loads(plain))  # 1 and 1.0 and True are equal, and not the same


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_integer_beyond_64_bits_is_not_encoded_as_msgpack(number: int) -> None:
    with pytest.raises(OverflowError):
        write(json.dumps({"n": number}).encode(), "msgpack", Writing())


def test_lone_surrogate_is_not_encoded_as_msgpack() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        write(rb'{"text": "\ud800"}', "msgpack", Writing())
