"""How much of a prompt the provider's cache should hold, as calls come and go."""

from __future__ import annotations

import threading
from string import ascii_uppercase
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.prompt_cache.history import PromptHistory, PromptLine
from fastlane.records import Usage
from tests.plays.prompt_cache.provider import (
    SECOND_NS,
    SMALL,
    SYSTEM,
    Provider,
    call,
    edited,
    facts,
    said,
    settled,
    size_of,
    text_of,
    turns,
)  # fmt: skip

# Where two prompts part, they may have a few more characters in common by chance.
FEW = 48
SECRET = "the-launch-code-is-plover"


def test_without_texts_nothing_is_expected() -> None:
    provider = Provider(kept_bytes=0)
    provider.call(turns(3))

    record = provider.call(turns(4), cached=512)

    assert (record.reusable_tokens, record.expected_tokens, record.cached_tokens) == (0, None, 512)
    assert record.drift is None


def test_conversations_with_short_turns_are_told_apart() -> None:
    provider, rules = Provider(), {"role": "system", "content": "Be kind to everybody who calls. " * 2_000}
    for turn in range(1, 4):
        for name in ("Ada", "Bob", "Cleo"):
            messages = [rules, *({"role": "user", "content": f"{name} says {number}."} for number in range(turn))]
            record = provider.call(messages)
            assert record.drift is None
            if turn > 1:
                assert record.reusable_tokens == size_of(messages[:-1])


def test_failed_call_leaves_nothing_in_the_cache() -> None:
    provider = Provider()
    failed = provider.answer(provider.sent(turns(2)), answered=False)
    assert (failed.drift, failed.expected_tokens) == (None, None)

    assert provider.call(turns(2)).reusable_tokens == 0


def test_call_in_flight_is_not_in_the_cache_yet() -> None:
    provider = Provider()
    first, second = provider.sent(turns(2)), provider.sent(turns(2))

    assert provider.answer(second).reusable_tokens == 0
    assert provider.answer(first).reusable_tokens == 0
    assert provider.call(turns(2)).reusable_tokens == size_of(turns(2))
    assert len(provider.history.lines) == 1


def test_key_that_is_added_later_is_no_drift() -> None:
    """The facts of a provider behind a proxy are known from its first answer on."""
    provider = Provider()
    provider.call(turns(3))

    assert provider.call(turns(4), key="fl-1").drift is None
    assert provider.call(turns(4), cached=0, key="fl-2").drift is not None


def test_unused_beginning_expires() -> None:
    provider = Provider()
    provider.call(turns(2), cached=0)
    provider.now_ns += 301 * SECOND_NS

    record = provider.call(turns(3), cached=0)

    assert (record.reusable_tokens, record.expected_tokens) == (0, 0)
    assert (record.drift.kind, record.drift.path) == ("expired", None)
    assert record.drift.tokens_lost == size_of(turns(2)) // 64 * 64


def test_beginning_that_others_use_does_not_expire() -> None:
    provider, shared = Provider(), size_of([SYSTEM])
    provider.call(turns(4), cached=0)
    for _ in range(3):
        provider.now_ns += 200 * SECOND_NS
        provider.call(turns(1, "refunds"), cached=shared)

    record = provider.call(turns(5), cached=shared)

    assert shared <= record.reusable_tokens <= shared + FEW
    assert record.drift.kind == "expired"
    assert record.drift.tokens_lost == size_of(turns(4)) // 64 * 64 - shared


def test_stored_conversation_is_not_judged() -> None:
    provider = Provider()
    provider.call(turns(2), previous_response_id="resp_1", endpoint="/responses")

    record = provider.call(turns(2), cached=5_000, previous_response_id="resp_2", endpoint="/responses")

    assert (record.reusable_tokens, record.expected_tokens, record.drift) == (0, None, None)
    assert record.cached_tokens == 5_000


@pytest.mark.parametrize(
    "body",
    [
        {}, {"messages": []}, {"messages": None}, {"messages": 17}, {"messages": ["odd", 3]}, {"messages": "text"},
        {"messages": [{"role": "user", "content": "\ud800"}]}, {"messages": [{"role": "user", "content": 1 << 70}]},
        {"messages": [{"role": "user", "content": object()}], "tools": object(), "text": 3, "reasoning": []},
    ],
)  # fmt: skip
def test_odd_bodies_are_no_error(body: dict[str, Any]) -> None:
    history = PromptHistory(kept_bytes=1 << 20)
    for now_ns in (1, 2, 3):
        prompt = history.read(call({**body, "temperature": now_ns}, facts=SMALL))
        history.expect(prompt)
        assert settled(history, prompt, Usage(), now_ns=now_ns).drift is None


def test_written_body_is_read_like_its_values() -> None:
    """The request's bytes are used if they are at hand, wherever the messages stand in them."""
    for names in (("model", "messages", "tools"), ("messages", "tools", "model"), ("tools", "messages")):
        values = {"model": "large", "messages": turns(2), "tools": [{"type": "function", "function": {"name": "f"}}]}
        body = {name: values[name] for name in names}
        plain = PromptHistory(kept_bytes=0).read(call(body))
        fast = PromptHistory(kept_bytes=0).read(call(body, encoded=(body, orjson.dumps(body))))
        changed = PromptHistory(kept_bytes=0).read(call(body, encoded=(values, orjson.dumps(values))))
        assert text_of(plain) == text_of(fast) == text_of(changed)


@pytest.mark.parametrize("kept_bytes", [0, 100_000])
def test_text_is_kept_only_within_its_limit(kept_bytes: int) -> None:
    provider = Provider(kept_bytes=kept_bytes)
    secret = [*turns(2), said("assistant", SECRET), said("user", "go")]
    provider.call(secret)
    record = provider.call(edited(secret, 0, "10:04:33", "10:09:59"))

    held = [SECRET.encode() in b"".join(line.chunks) for line in provider.history.lines]
    assert held == [True] * (2 if kept_bytes else 0)
    assert (record.drift is not None) == (kept_bytes > 0)
    assert SECRET not in repr(record)
    assert SECRET not in str(record.to_dict())


def test_record_keeps_no_text_that_is_forgotten() -> None:
    provider = Provider(kept_bytes=10_000)
    provider.call(turns(2))
    record = provider.call(edited(turns(3), 0, "10:04:33", "10:09:59"))
    for number in range(20):
        provider.call(turns(2, f"topic {number}"))

    assert sum(map(text_bytes, provider.history.lines)) <= 10_000
    assert record.drift is None


def text_bytes(line: PromptLine) -> int:
    return sum(map(len, line.chunks))


def test_memory_is_bounded() -> None:
    provider = Provider(kept_bytes=50_000)
    calls = 1_300
    for number in range(calls):
        rules = " ".join(ascii_uppercase[(number >> bit) % 26] * 30 for bit in range(9))
        prompt = provider.sent([{"role": "system", "content": rules}, said("user", f"question {number}")])
        provider.answer(prompt)

    history = provider.history
    assert sum(map(text_bytes, history.lines)) == history._text_bytes <= 50_000
    assert len(history._openings) == len(history.lines) <= 1_000


def test_clear_forgets_all() -> None:
    provider = Provider()
    provider.call(turns(2))
    in_flight = provider.sent(turns(3))

    provider.history.clear()

    assert not provider.history.lines
    provider.answer(in_flight)
    assert provider.call(turns(4)).reusable_tokens == size_of(turns(3))


def test_threads_may_share_a_history() -> None:
    # Each call takes two seconds of the provider's time, and one thread may have to wait for all the others.
    provider, known = Provider(), facts(minimum_tokens=256, block_tokens=64, lifetime_s=None)
    problems: list[str] = []
    start = threading.Barrier(8)

    def converse(number: int) -> None:
        start.wait()
        for turn in range(1, 12):
            for _ in range(2):
                messages = turns(turn, f"thread {number}")
                record = provider.call(messages, known=known)
                if record.drift is not None:
                    problems.append(str(record))
            if record.reusable_tokens != size_of(messages):
                problems.append(str(record))

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []


WORDS = st.sampled_from(["alpha", "beta", "gamma"]).map(lambda word: said("user", word))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=8))
def test_reusable_tokens_are_the_longest_common_beginning(prompts: list[list[Any]]) -> None:
    provider = Provider()
    sent: list[bytes] = []
    for messages in prompts:
        prompt = provider.sent(messages)
        text = text_of(prompt)
        record = provider.answer(prompt)
        longest = 0
        for earlier in sent:
            count = 0
            while count < min(len(earlier), len(text)) and earlier[count] == text[count]:
                count += 1
            longest = max(longest, count)
        assert record.reusable_tokens == longest
        sent.append(text)
