from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from fastlane.emulator import _tokens
from fastlane.emulator._generation import review
from fastlane.emulator._prompt import GenerationRequest, read_chat


@given(st.text())
def test_split_tokens_join_to_text_and_match_count(text: str) -> None:
    pieces = _tokens.split(text)

    assert "".join(pieces) == text
    assert len(pieces) == _tokens.count(text)
    assert all(pieces)


@given(st.text(), st.text())
def test_longer_text_keeps_the_prefix_of_a_shorter_one(text: str, more: str) -> None:
    short = _tokens.prefix_digests(text, block_tokens=2)
    long = _tokens.prefix_digests(text + more, block_tokens=2)

    assert long[: len(short)] == short
    assert len(short) == len(text) // 8


@given(st.integers(0, 300), st.integers())
def test_review_text_has_exact_token_count(tokens: int, seed: int) -> None:
    text = review(Random(seed), tokens=tokens)

    assert _tokens.count(text) == tokens
    assert text == review(Random(seed), tokens=tokens)


def prompt(*contents: object, **more: object) -> GenerationRequest:
    messages = [{"role": "user", "content": content} for content in contents]
    return read_chat({"model": "m", "messages": messages, **more})


def test_inline_images_cost_few_tokens_and_stay_distinct() -> None:
    def picture(data: str) -> GenerationRequest:
        return prompt([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])

    assert _tokens.count(picture("A" * 100_000).text) < 100
    assert picture("A").text != picture("B").text
