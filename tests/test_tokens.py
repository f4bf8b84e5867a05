"""Tokens are counted exactly where the model's tokenizer lies on disk, else estimated, and nothing is ever fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletionMessage

from fastlane.knowledge import token_ranks as _token_ranks, tokens as _tokens
from fastlane.knowledge.token_estimate import estimate
from fastlane.knowledge.tokens import Counter, counter
from tests.knowledge.forks import in_child
from tests.waiting import comes_true

ENGLISH = (
    "The airline agent can help users book, modify, or cancel flight reservations. Before taking any action "
    "that changes the booking database, you must list the details and obtain explicit confirmation to "
    "proceed."
)
JSON = (
    '{"type": "function", "function": {"name": "get_user_details", "description": "Get the details of an '
    'user, including their reservations.", "parameters": {"type": "object", "properties": {"user_id": '
    '{"type": "string", "description": "The user id, such as \'sara_doe_496\'."}}, "required": '
    '["user_id"]}}}'
)
GERMAN = (
    "Für die Änderung der Buchung wird eine gültige E-Mail-Adresse gebraucht. Rückfragen beantwortet der Kundendienst "
    "täglich zwischen acht und zwanzig Uhr."
)
HINDI = "कृपया एक मान्य ईमेल पता दर्ज करें ताकि हम आपकी बुकिंग बदल सकें। किसी भी प्रश्न के लिए हमारी ग्राहक सेवा से संपर्क करें।"
# What o200k_base makes of them.
TEXTS = {
    "English": (ENGLISH, 37),
    "JSON": (JSON, 83),
    "numbers": ("1731 22 904 17 38833 4 71 90001 3 44 871 20391 7 12 5509 638 2 41 99 1200", 45),
    "hexadecimal": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4fb374d419588a4632f3f557e76b4b70aebbca790", 47),
    "base64": ("RmxhdHRlciB0aGUgY3VydmU6IHRoaXMgdGV4dCBpcyBsb25nIGVub3VnaCB0byBiZSBjb3VudGVkIQ==", 53),
    "German": (GERMAN, 31),
    "Chinese": ("请输入有效的电子邮件地址,以便我们更改您的预订。如果您有任何疑问,我们的客服人员每天都会为您服务。", 31),
    "Korean": (
        "예약을 변경할 수 있도록 올바른 이메일 주소를 입력하세요. 궁금한 점이 있으시면 고객 서비스에 문의해 주세요.",
        29,
    ),
    "Hindi": (HINDI, 34),
    "emoji": ("🎉🚀 done ✅ 👍🏽 → next 🧪", 14),
}


def forget() -> None:
    _token_ranks._loaded.clear()
    _token_ranks._loading.clear()
    _tokens._remembered.clear()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No ranks on disk, nothing learnt, and a network that must not be asked."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    forget()
    yield
    forget()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Ranks where tiktoken keeps them: every byte is a token, and so are a few pairs."""
    pytest.importorskip("tiktoken")
    tokens = [bytes([code]) for code in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w"]
    data = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    table = _token_ranks.tables()
    made = {**table["encodings"]["o200k_base"], "sha256": hashlib.sha256(data).hexdigest()}
    monkeypatch.setattr(
        _token_ranks, "tables", lambda: {**table, "encodings": {**table["encodings"], "o200k_base": made}}
    )
    file = _token_ranks.ranks_file("o200k_base")
    assert file is not None
    assert file.parent == tmp_path
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("kind", TEXTS)
def test_estimate_is_near_what_a_tokenizer_makes_of_a_text(kind: str) -> None:
    text, tokens = TEXTS[kind]

    assert estimate(text) == pytest.approx(tokens, rel=0.25)


@given(st.text(max_size=200), st.text(max_size=200))
def test_estimate_grows_with_the_text(text: str, more: str) -> None:
    # Where two texts meet, a word or a number may go on, or a hump be made: what that is worth is bounded.
    assert estimate(text) - 1e-9 <= estimate(text + more) <= estimate(text) + estimate(more) + 2.2
    assert estimate("") == 0.0


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-2024-08-06", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("gpt-5.6-sol", "o200k_base"),
        ("o3", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_base"),
        ("ft:gpt-4o:acme::1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("gpt-40", None),
        ("o30", None),
        ("meta-llama/Llama-3.3-70B-Instruct", None),
        ("", None),
        (None, None),
    ],
)
def test_model_name_selects_the_tokenizer(model: str | None, encoding: str | None) -> None:
    assert counter(model).encoding == encoding


@pytest.mark.usefixtures("ranks")
def test_with_ranks_on_disk_a_count_is_exact() -> None:
    count = counter("gpt-4o")

    assert count.exact
    assert count.text("hello hello") == 3  # "hello", " ", "hello"
    assert count.text("") == 0
    assert count.text("<|endoftext|>") == len("<|endoftext|>")  # not a special token


def test_ranks_that_are_not_what_they_should_be_are_not_used(ranks: Path) -> None:
    ranks.write_bytes(ranks.read_bytes() + b"aGVsbG8h 300\n")

    assert not counter("gpt-4o").exact


@pytest.mark.parametrize(
    ("given", "folder", "exact"),
    [
        ({"TIKTOKEN_CACHE_DIR": ""}, "", False),
        ({"TIKTOKEN_CACHE_DIR": "/no/such/folder"}, "", False),
        ({"DATA_GYM_CACHE_DIR": "."}, "", True),
        ({}, "data-gym-cache", True),
    ],
)
def test_ranks_are_read_from_the_tiktoken_cache(
    ranks: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], folder: str, exact: bool
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (tmp_path / folder).mkdir(exist_ok=True)
    ranks.rename(tmp_path / folder / ranks.name)

    assert counter("gpt-4o").exact is exact


@pytest.mark.usefixtures("ranks")
def test_without_tiktoken_there_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tiktoken", None)

    assert not counter("gpt-4o").exact


@pytest.mark.usefixtures("ranks")
def test_counter_estimates_until_ranks_are_loaded() -> None:
    before = set(threading.enumerate())
    first = counter("gpt-4o", wait=False)
    for thread in set(threading.enumerate()) - before:
        thread.join()

    assert not first.exact
    assert counter("gpt-4o", wait=False).exact
    assert not first.exact


@pytest.mark.usefixtures("ranks")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_child_loads_ranks_that_its_parent_was_loading() -> None:
    _token_ranks._loading.add("o200k_base")

    assert in_child(lambda: comes_true(lambda: counter("gpt-4o", wait=False).exact))


def test_long_text_is_remembered_by_its_hash_alone() -> None:
    count = counter(None)
    text = "a secret that must not stay in memory " * 10

    assert count.text(text) == count.text("".join(text))
    assert text not in str(_tokens._remembered)


PLAIN = {"role": "user", "content": "hello there"}
COUNT = Counter("o200k_base", lambda text: [0] * len(text))  # A token for each character.


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "hello"}, 5 + 4),
        ("hello", 5 + 4),
        ({"role": "user", "name": "ann", "content": "hello"}, 5 + 4 + 3 + 1),
        ({"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "you"}]}, 8 + 4),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:..."}}]}, 765 + 4),
        ({"role": "user", "content": [{"type": "input_image", "detail": "low", "image_url": "data:"}]}, 85 + 4),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "a" * 64_000}}]}, 10 + 4),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": "a" * 9_000}}]}, 4),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}
                ],
            },
            4 + 4 + 7 + 7,
        ),
        ({"role": "tool", "tool_call_id": "call_1", "content": "22 C"}, 4 + 4),
        ({"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"a":1}'}, 4 + 7 + 7),
        ({"type": "function_call_output", "call_id": "1", "output": "22 C"}, 4 + 4),
        ({"type": "reasoning", "id": "r", "encrypted_content": "a" * 99, "summary": [{"text": "so"}]}, 4 + 2),
        ({"role": "assistant", "content": "", "refusal": "no"}, 4 + 2),
        (ChatCompletionMessage(role="assistant", content="hello"), 5 + 4),
        ({}, 0),
        (None, 0),
    ],
)
def test_message_costs_its_texts_and_its_frame(message: Any, tokens: int) -> None:
    assert COUNT.message(message) == tokens


def test_prompt_tokens_include_message_and_reply_overhead() -> None:
    assert COUNT.messages([PLAIN, PLAIN]) == 2 * (11 + 4) + 3
    assert COUNT.messages("hello") == 5 + 4 + 3
    assert COUNT.messages([]) == 0


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell it.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "day": {"type": "object", "properties": {"of": {"type": "integer"}}},
            },
        },
    },
}


def test_tools_cost_their_json_beside_messages() -> None:
    assert COUNT.tools([]) == COUNT.tools(None) == 0
    assert COUNT.messages([PLAIN], [TOOL]) == COUNT.messages([PLAIN]) + COUNT.tools([TOOL])
    assert counter("llama").tools([TOOL]) == pytest.approx(estimate(json.dumps(TOOL)), abs=1)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "function", "name", "tool_calls", "parameters", "properties"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(message=ANYTHING, tools=st.lists(ANYTHING, max_size=3))
def test_any_message_can_be_counted(message: Any, tools: list[Any]) -> None:
    for count in (COUNT, counter("llama")):
        assert count.messages([message], tools) >= 0


def test_recursive_message_and_schema_can_be_counted() -> None:
    endless: dict[str, Any] = {"role": "user"}
    endless["content"] = [endless]

    assert COUNT.message(endless) >= 0
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["again"] = schema
    assert COUNT.tools([{"name": "f", "parameters": schema}]) >= 0
    assert counter("llama").tools([endless, SimpleNamespace()]) >= 0
