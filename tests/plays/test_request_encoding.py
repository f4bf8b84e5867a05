from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fastlane
from fastlane import RequestEncoding
from fastlane.errors import ConfigurationError
from fastlane.providers import ProviderFacts, registered
from tests.call_peer import ANSWER
from tests.plays.facts import fact
from tests.prepared_server import LIBRARY

URL, CHAT, COMPLETIONS = "http://server.example/v1", "/chat/completions", "/completions"
ALL = ("json", "json+gzip", "msgpack", "msgpack+gzip")
TEXT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Is water wet?"}]}
FILE = """
name = "Example"

[encodings."/chat/completions"]
value = ["json", "json+gzip"]
source = "https://example.com/docs"
checked = 2026-11-22
evidence = "documented"
"""
SENT: list[Any] = []


def answer(request: Any) -> Any:
    SENT.append(request)
    return LIBRARY.Response(200, json=ANSWER)


HTTP = LIBRARY.Client(transport=LIBRARY.MockTransport(answer))


def facts(*forms: str, endpoint: str = CHAT, **others: Any) -> ProviderFacts:
    return ProviderFacts(slug="example", encodings={endpoint: fact(forms)} if forms else {}, **others)


NOTHING = facts()


def form_of(
    play: RequestEncoding, known: ProviderFacts = NOTHING, *, path: str = CHAT, body: dict[str, Any] = TEXT
) -> str:
    """The form in which the body of a call to a provider of these facts is sent."""
    given: dict[str, Any] = {"api_key": "k", "base_url": URL, "http_client": HTTP, "raise_play_errors": True}
    client = fastlane.OpenAI(**given, only_plays=[play])
    create: Any = client.chat.completions.create if path == CHAT else client.completions.create
    with registered(known, origins=[URL]):
        create(**body, user="x" * 2_000)  # long enough for gzip to gain something
    record: Any = client.last_call
    return "json" if record.request_encoding is None else str(record.request_encoding.form)


def encoding(**settings: Any) -> RequestEncoding:
    return RequestEncoding(min_bytes=0, **settings)


def test_facts_file_is_read_when_the_play_is_made(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(FILE)

    play, same = encoding(facts=file), encoding(facts=str(file))
    file.unlink()

    assert form_of(play) == "json+gzip"
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
def test_prompt_of_token_ids_goes_as_messagepack_first(prompt: Any, first: str) -> None:
    known = facts(*ALL, endpoint=COMPLETIONS)

    assert form_of(encoding(), known, path=COMPLETIONS, body={"model": "m", "prompt": prompt}) == first


@pytest.mark.parametrize(
    ("taken", "allowed", "expected"),
    [
        (("json", "json+gzip"), None, "json+gzip"),
        (("json", "msgpack"), None, "msgpack"),
        (ALL, ("msgpack", "json+gzip"), "json+gzip"),
        (("json", "json+gzip"), ("msgpack",), "json"),
        (("json",), None, "json"),
        (ALL, ("json",), "json"),
    ],
)
def test_only_what_the_provider_takes_and_the_application_allows(
    taken: tuple[str, ...], allowed: Any, expected: str
) -> None:
    assert form_of(encoding(forms=allowed), facts(*taken)) == expected


def test_known_facts_apply_where_play_facts_are_silent() -> None:
    own = facts("json", "json+gzip", endpoint=COMPLETIONS)
    known = facts("json", "msgpack", media_types={"msgpack": fact("application/msgpack")})

    assert form_of(encoding(facts=own), known) == "msgpack"
    assert SENT[-1].headers["content-type"] == "application/msgpack"
    assert form_of(encoding(facts=own), known, path=COMPLETIONS, body={"model": "m", "prompt": "a"}) == "json+gzip"
    assert form_of(encoding(), facts("json", "msgpack")) == "msgpack"
    assert SENT[-1].headers["content-type"] == "application/vnd.msgpack"
