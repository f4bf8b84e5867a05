from __future__ import annotations

import math
import pickle
from statistics import fmean, stdev

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.workloads import TokenLengths, Turn, preset, presets, salted, scenarios
from fastlane.bench.workloads._sources import prompt
from fastlane.knowledge import token_ranks as _token_ranks


def text_of(turn: Turn) -> str:
    return "".join(str(message["content"]) for message in turn.messages)


def firsts(name: str, count: int) -> list[Turn]:
    return [conversation.turns[0] for conversation in preset(name, requests=count).conversations]


CHATS = firsts("chat", 10_000)


def shared_words(one: str, other: str) -> int:
    pairs = zip(one.split(), other.split(), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), -1)


@pytest.mark.parametrize("name", presets())
def test_every_preset_has_a_source_and_declared_lengths(name: str) -> None:
    described = presets()[name]
    made = scenarios(name, requests=3)

    assert described.source
    assert described.users
    assert len(made) == (len(described.scenarios) or 1)
    for workload in made:
        assert workload.source == described.source
        assert workload.caching_forbidden == bool(described.scenarios)
        assert len(workload.conversations) == 3
        assert all(message["role"] for message in workload.conversations[2].turns[-1].messages)
    for workload, scenario in zip(made, described.scenarios, strict=False):
        turn = workload.conversations[2].turns[-1]
        assert turn.input_tokens is not None
        assert scenario.input.least <= turn.input_tokens <= scenario.input.most
        assert scenario.output.least <= turn.answer_tokens <= scenario.output.most
        assert turn.least_answer_tokens == scenario.output.least


@given(least=st.integers(1, 5_000), more=st.integers(8, 20_000), key=st.text(max_size=8))
def test_token_lengths_are_bounded_and_determined_by_key(least: int, more: int, key: str) -> None:
    lengths = TokenLengths(least=least, most=least + more)
    assert least <= lengths.drawn(key) <= least + more
    assert lengths.drawn(key) == TokenLengths(least=least, most=least + more).drawn(key)
    assert {TokenLengths(least=3, most=5).drawn(str(at)) for at in range(200)} == {3, 4, 5}
    assert TokenLengths(least=7, most=7).drawn("any") == 7


@given(least=st.integers(1, 5_000), more=st.integers(100, 20_000), seed=st.integers(0, 1_000))
def test_token_lengths_follow_truncated_normal_distribution(least: int, more: int, seed: int) -> None:
    lengths = TokenLengths(least=least, most=least + more)
    drawn = [lengths.drawn(f"{seed}/{at}") for at in range(800)]
    # Cut off at two deviations: sqrt(1 - 2 * 2 * phi(2) / (2 * Phi(2) - 1)) of the deviation is left.
    expected = lengths.deviation * math.sqrt(1 - 4 * 0.053991 / 0.954500)
    # Five standard errors.
    assert abs(fmean(drawn) - lengths.mean) < 5 * expected / math.sqrt(800)
    assert abs(stdev(drawn) / expected - 1) < 5 / math.sqrt(2 * 800)


@given(tokens=st.integers(3, 20_000), number=st.integers(0, 10**7))
def test_prompt_has_four_characters_per_token(tokens: int, number: int) -> None:
    text = prompt("any", number, tokens)
    assert abs(len(text) / 4 - tokens) <= 1


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_prompt_has_its_tokens_by_the_tokenizer_too(encoding: str) -> None:
    pytest.importorskip("tiktoken")
    encode = _token_ranks.encoder(encoding, wait=True)
    if encode is None:
        pytest.skip(f"the ranks of {encoding} are not on this machine's disk")
    for number, tokens in enumerate((34, 100, 150, 1_000, 5_500)):
        assert len(encode(prompt("any", number, tokens))) == tokens


@given(one=st.integers(0, 9_999), other=st.integers(0, 9_999))
def test_distinct_prompts_differ_from_their_first_words_on(one: int, other: int) -> None:
    texts = [text_of(CHATS[at]) for at in (one, other)]
    if one == other:
        assert texts[0] == texts[1]
    else:
        assert 0 <= shared_words(*texts) < 3


def test_preset_prompts_are_seeded_and_generated_on_use() -> None:
    texts = [text_of(preset("rag", seed=seed).conversations[7].turns[0]) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    workload = preset("rag", requests=10_000)

    assert len(workload.conversations) == 10_000
    assert len(workload.limited(10).conversations) == 10
    turn = workload.conversations[9_999].turns[0]
    assert len(pickle.dumps(turn)) < 1_000
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert salted(turn.messages, "Salt.")[1]["content"] == text_of(turn)


def test_unknown_preset_names_are_refused_with_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown preset 'rug': the known ones are rag, generate"):
        preset("rug")
    with pytest.raises(ConfigurationError, match="has the scenarios scaling/chatbot, scaling/retrieval"):
        preset("scaling")
    with pytest.raises(ConfigurationError, match="'rag' has no scenario 'large'"):
        preset("rag/large")
    with pytest.raises(ConfigurationError, match="requests takes 1 or more, got 0"):
        preset("rag", requests=0)
