"""Prompts that begin alike have one cache key, spread over several where its rate needs that."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import PromptCache
from fastlane.plays.prompt_cache.key import KeySpreader, jump, session_of, stable_key
from fastlane.protocol.prompt_marks import Placement
from tests.plays.prompt_cache.provider import call, facts

CHAT = "/chat/completions"
POLICY = "You help customers of an airline.\nNever promise a refund.\n" * 40


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id", "why"]}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


TOOLS = [tool(name) for name in ("book", "cancel", "refund", "search")]


def body(system: str = POLICY, *, model: str = "m", user: str = "Hello", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages, "tools": TOOLS, **more}


def test_key_is_short_and_shows_no_text() -> None:
    key = stable_key(CHAT, body())

    assert key.startswith("fl-")
    assert len(key) == 23
    assert int(key[3:], 16) >= 0


@pytest.mark.parametrize(
    "other",
    [
        body(model="n"),
        body("You write poems." + POLICY),
        body(tools=[*TOOLS, tool("upgrade")]),
        body(response_format={"type": "json_object"}),
    ],
    ids=["model", "system message", "tools", "response format"],
)
def test_other_stable_prefix_has_another_key(other: dict[str, Any]) -> None:
    assert stable_key(CHAT, other) != stable_key(CHAT, body())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Now: 2025-03-03T10:04:33Z.", "Now: 2026-11-22T23:59:01.123456+01:00."),
        ("It is Monday, 3 March 2025, 10:04 AM.", "It is Tuesday, 14 October 2025, 9:58 PM."),
        ("Mon, 03 Mar 2025 10:04:33 GMT", "Sat, 22 Nov 2026 09:00:00 UTC"),
        ("Request #999 of 1,200", "Request #1,000 of 20,000"),
        ("id 0b6f4e2a-9d2f-4f4e-8e64-0a1c7c1c2f55", "id FFFFFFFF-0123-4567-89AB-CDEF01234567"),
        ("trace 9f86d081884c7d659a2feaa0c55ad015", "trace 1f3870be274f6c49b3e31a0c6728957f"),
        ("nonce aGVsbG8gd29ybGQx+/==", "nonce Zm9vYmFyIGJheiAy/Q=="),
        ("epoch 1741000000", "epoch 1741000000123"),
    ],
)
def test_key_ignores_volatile_values(first: str, second: str) -> None:
    for place in ("{}\n" + POLICY, POLICY + "{}", "One line. {} And on. " + POLICY.replace("\n", " ")):
        assert stable_key(CHAT, body(place.format(first))) == stable_key(CHAT, body(place.format(second)))


def test_key_ignores_the_order_of_tools_and_keys() -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return value

    shuffled = [turned(deepcopy(each)) for each in TOOLS]
    random.Random(0).shuffle(shuffled)
    shuffled[0]["function"]["parameters"]["required"].reverse()

    assert stable_key(CHAT, body(tools=shuffled)) == stable_key(CHAT, body())


def test_key_ignores_documents_behind_a_long_policy() -> None:
    policy = POLICY + "Words that say what is to be done and what is not. " * 60

    assert len(policy) > 4_096
    assert stable_key(CHAT, body(policy + "\nA document")) == stable_key(CHAT, body(policy + "\nAnother one"))


def test_key_is_of_what_is_declared_stable() -> None:
    manual = POLICY * 3
    messages = [
        {"role": "system", "content": manual + "\nThe end"},
        {"role": "user", "content": "An example"},
        {"role": "system", "content": "The user is Mia"},
    ]
    placements: list[Placement] = ["stable", "stable", "volatile"]
    key = stable_key(CHAT, {"model": "m", "messages": messages}, placements)

    def changed(index: int, content: str) -> str:
        other = deepcopy(messages)
        other[index]["content"] = content
        return stable_key(CHAT, {"model": "m", "messages": other}, placements)

    assert changed(2, "The user is Li") == key
    assert changed(1, "No example") != key
    assert changed(0, manual + "\nThe other end") != key


def test_key_is_the_same_for_text_and_parts() -> None:
    parts = {**body(), "messages": [{"role": "system", "content": [{"type": "text", "text": POLICY}]}]}

    assert stable_key(CHAT, parts) == stable_key(CHAT, body())


def test_key_is_of_instructions() -> None:
    first = {"model": "m", "instructions": POLICY, "input": "Hello"}
    second = {"model": "m", "instructions": POLICY, "input": [{"role": "user", "content": "Bye"}]}

    assert stable_key("/responses", first) == stable_key("/responses", second)
    assert stable_key("/responses", first) != stable_key("/responses", {**first, "instructions": "Be short."})


@pytest.mark.slow
def test_keys_and_sessions_are_equal_in_every_process() -> None:
    printed = "stable_key(CHAT, body('10:04 ' + POLICY)), session_of(CHAT, body())"
    code = f"from tests.plays.prompt_cache.test_key import *; print({printed})"

    def told(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        here = Path(__file__).parents[3]
        return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True).stdout

    assert told("1") == told("2") == f"{stable_key(CHAT, body('9:58 ' + POLICY))} {session_of(CHAT, body())}\n"


def test_session_stays_as_its_conversation_grows() -> None:
    begun = body()
    grown = {**begun, "messages": [*begun["messages"], {"role": "assistant", "content": "Yes?"}]}

    assert session_of(CHAT, grown) == session_of(CHAT, begun)
    assert session_of(CHAT, body(user="Bye")) != session_of(CHAT, begun)


@pytest.mark.parametrize(
    "named",
    [
        {"metadata": {"session_id": "s1", "request": "r1"}},
        {"conversation": "c1"},
        {"conversation": {"id": "c1"}},
    ],
)
def test_session_is_that_of_a_named_conversation(named: dict[str, Any]) -> None:
    first, second = body(user="One", **named), body(user="Two", **named)

    assert session_of(CHAT, first) == session_of(CHAT, second)
    assert session_of(CHAT, first) != session_of(CHAT, body(user="One"))


def test_two_users_have_two_sessions() -> None:
    said = [{"role": "user", "content": "Hi"}]
    sessions = {session_of(CHAT, {"messages": said, "user": user}) for user in ("mia", "li", "")}

    assert len(sessions) == 3


def test_one_document_makes_one_session() -> None:
    document = "The text of a document. " * 100
    sessions = {session_of(CHAT, {**body(user=f"{document}{user} asks"), "user": user}) for user in ("Mia", "Li")}

    assert len(sessions) == 1


def test_session_is_the_same_for_text_and_marked_part() -> None:
    marked = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]
    parts = {**body(), "messages": [body()["messages"][0], {"role": "user", "content": marked}]}

    assert session_of(CHAT, parts) == session_of(CHAT, body())


def test_chained_response_is_known_by_its_user() -> None:
    def turn(said: str) -> dict[str, Any]:
        return {"input": said, "previous_response_id": f"resp_{said}", "safety_identifier": "mia"}

    assert session_of("/responses", turn("One")) == session_of("/responses", turn("Two"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "model", "messages", "input", "prompt", "instructions", "tools", "response_format", "text", "user", "metadata",
    "conversation", "previous_response_id",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.just(object())), st.sampled_from([CHAT, "/responses", "/x"]))
def test_odd_bodies_have_a_key_and_a_session(odd: dict[str, Any], endpoint: str) -> None:
    assert stable_key(endpoint, odd) == stable_key(endpoint, odd)
    assert session_of(endpoint, odd) == session_of(endpoint, odd)


@given(st.text(max_size=200), st.integers(0, 10**12), st.integers(0, 10**12))
def test_number_never_makes_another_key(text: str, one: int, other: int) -> None:
    assert stable_key(CHAT, body(f"{text} {one} {text}")) == stable_key(CHAT, body(f"{text} {other} {text}"))


# Too short


def too_short(endpoint: str, body: dict[str, Any], minimum_tokens: int | None = 1024) -> bool:
    known = facts(minimum_tokens=minimum_tokens, key_field="prompt_cache_key")
    given = call(body, endpoint=endpoint, facts=known)
    session: Any = PromptCache(kept_bytes=0).open(given)
    return "prompt_cache_key" not in session.plan(given).body


@pytest.mark.parametrize(
    ("endpoint", "body", "is_short"),
    [
        (CHAT, {"messages": []}, True),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, True),
        (CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}, True),
        (CHAT, {"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        (CHAT, {"messages": [], "response_format": {"type": "json_object"}}, True),
        ("/responses", {"input": "Hi", "instructions": "Be brief."}, True),
        ("/responses", {"input": [{"type": "message", "role": "user", "content": "Hi"}]}, True),
        ("/responses", {"input": "Hi", "tools": [{"type": "function", "name": "f"}]}, True),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 300}]}, False),
        ("/responses", {"input": "Hi", "previous_response_id": "resp_1"}, False),
        ("/responses", {"input": "Hi", "conversation": {"id": "conv_1"}}, False),
        ("/responses", {"input": "Hi", "prompt": {"id": "pmpt_1"}}, False),
    ],
)
def test_prompt_is_too_short_by_its_size(endpoint: str, body: dict[str, Any], is_short: bool) -> None:
    assert too_short(endpoint, body) == is_short
    assert not too_short(endpoint, body, minimum_tokens=None)


@given(st.lists(st.text(max_size=400), max_size=8), st.integers(1, 2_000))
def test_long_enough_conversation_stays_so(texts: list[str], minimum_tokens: int) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    judged = [too_short(CHAT, {"messages": messages[:count]}, minimum_tokens) for count in range(len(messages) + 1)]

    assert judged == sorted(judged, reverse=True)


# Key spreading


SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def called(
    spreader: KeySpreader, *, per_minute: int, minutes: float, start_ns: int = 0, limit: float = 15, key: str = "k"
) -> list[tuple[str, int]]:
    """Evenly spaced calls, each of a session of its own."""
    return [
        shard(
            spreader,
            random.Random(number).getrandbits(64),
            start_ns + number * MINUTE // per_minute,
            limit=limit,
            key=key,
        )
        for number in range(round(per_minute * minutes))
    ]


def shard(
    spreader: KeySpreader, session: int, now_ns: int, *, limit: float = 15, key: str = "k", origin: str = "o"
) -> tuple[str, int]:
    """The key of a call, and among how many the calls of its family are spread."""
    shards = spreader.shards(origin, key, now_ns, limit)
    return (spreader.key(key, session, shards) if shards > 1 else key), shards


def test_key_below_its_limit_is_not_spread() -> None:
    assert set(called(KeySpreader(), per_minute=15, minutes=10)) == {("k", 1)}


def test_key_above_its_limit_is_spread_below_it() -> None:
    shards = called(KeySpreader(), per_minute=180, minutes=4)
    last_minute = Counter(key for key, _ in shards[-180:])

    assert shards[-1][1] in (24, 25)
    assert max(last_minute.values()) <= 15


def test_burst_is_met_within_seconds() -> None:
    shards = called(KeySpreader(), per_minute=180, minutes=0.2)

    assert shards[14][1] == 1
    assert shards[-1][1] >= 20


def test_session_stays_when_shards_are_added() -> None:
    spreader = KeySpreader()
    called(spreader, per_minute=30, minutes=1)
    first, few = shard(spreader, 7, MINUTE)
    called(spreader, per_minute=300, minutes=1, start_ns=2 * MINUTE)
    again, many = shard(spreader, 7, 4 * MINUTE)

    assert first == again
    assert few < many > 30


def test_shards_are_kept_for_five_minutes_and_given_up_after_ten() -> None:
    spreader = KeySpreader()
    before = called(spreader, per_minute=60, minutes=2)[-1][1]
    kept = called(spreader, per_minute=2, minutes=5, start_ns=2 * MINUTE)[-1][1]
    given_up = called(spreader, per_minute=2, minutes=6, start_ns=7 * MINUTE)[-1]

    assert before == kept == 8
    assert given_up == ("k", 1)
    assert shard(spreader, 0, 60 * MINUTE) == ("k", 1)


def test_rate_around_the_limit_does_not_move_sessions() -> None:
    spreader = KeySpreader()
    seen = []
    for minute in range(0, 10, 2):
        seen += called(spreader, per_minute=20, minutes=1, start_ns=minute * MINUTE)
        seen += called(spreader, per_minute=5, minutes=1, start_ns=(minute + 1) * MINUTE)
    counts = [shards for _, shards in seen]

    assert counts == sorted(counts)


def test_keys_and_providers_are_counted_apart_and_bounded() -> None:
    spreader = KeySpreader()
    called(spreader, per_minute=60, minutes=2)

    assert shard(spreader, 0, 2 * MINUTE, key="other")[1] == 1
    assert shard(spreader, 0, 2 * MINUTE, origin="elsewhere")[1] == 1
    for number in range(20_000):
        shard(spreader, number, 2 * MINUTE)
        shard(spreader, number, 2 * MINUTE, key=f"key {number}")
    assert (len(spreader._rates), len(spreader._places)) == (1_024, 16_384)


def test_threads_may_share_a_spreader() -> None:
    spreader = KeySpreader()

    def work() -> None:
        for number in range(1_000):
            shard(spreader, number, number * SECOND // 1_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(spreader._rates["o", "k"].calls) == 4_000


@given(st.integers(0, 2**64 - 1), st.integers(1, 1_000))
def test_jump_moves_a_session_to_the_new_shard_or_not_at_all(number: int, shards: int) -> None:
    assert 0 <= jump(number, shards) < shards
    assert jump(number, shards + 1) in (jump(number, shards), shards)
