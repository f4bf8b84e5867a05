from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from fastlane.emulator import _tokens
from fastlane.emulator._generation import review
from fastlane.emulator._prompt import GenerationRequest, read_chat, read_responses


@given(st.text())
def test_tokens_joined_are_the_text_and_counted_without_splitting(text: str) -> None:
    pieces = _tokens.split(text)

    assert "".join(pieces) == text
    assert len(pieces) == _tokens.count(text)
    assert all(pieces)


@given(st.text(), st.text())
def test_a_longer_text_keeps_the_prefix_of_a_shorter_one(text: str, more: str) -> None:
    short = _tokens.prefix_digests(text, block_tokens=2)
    long = _tokens.prefix_digests(text + more, block_tokens=2)

    assert long[: len(short)] == short
    assert len(short) == len(text) // 8


def test_an_early_change_changes_every_later_digest() -> None:
    one = _tokens.prefix_digests("a" * 64, block_tokens=2)
    other = _tokens.prefix_digests("b" + "a" * 63, block_tokens=2)

    assert not set(one) & set(other)


@given(st.integers(0, 300), st.integers())
def test_a_review_has_exactly_the_tokens_asked_for(tokens: int, seed: int) -> None:
    text = review(Random(seed), tokens=tokens)

    assert _tokens.count(text) == tokens
    assert text == review(Random(seed), tokens=tokens)


def prompt(*contents: object, **more: object) -> GenerationRequest:
    messages = [{"role": "user", "content": content} for content in contents]
    return read_chat({"model": "m", "messages": messages, **more})


def test_a_further_message_keeps_the_prefix() -> None:
    assert prompt("a", "b").text.startswith(prompt("a").text)


def test_tools_and_format_come_before_the_messages() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    text = prompt("hello", tools=tools, response_format={"type": "json_object"}).text

    assert text.index('"name":"f"') < text.index("json_object") < text.index("hello")


def test_another_order_of_keys_is_another_prefix() -> None:
    one = [{"type": "function", "function": {"name": "f", "description": "d"}}]
    other = [{"type": "function", "function": {"description": "d", "name": "f"}}]

    assert prompt("x", tools=one).text != prompt("x", tools=other).text


def test_an_inline_picture_costs_little_and_is_told_apart() -> None:
    def picture(data: str) -> GenerationRequest:
        return prompt([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])

    assert _tokens.count(picture("A" * 100_000).text) < 100
    assert picture("A").text != picture("B").text


def test_a_string_and_a_message_are_the_same_input_of_a_response() -> None:
    one = read_responses({"model": "m", "input": "x"})
    other = read_responses({"model": "m", "input": [{"role": "user", "content": "x"}]})

    assert one.text == other.text
