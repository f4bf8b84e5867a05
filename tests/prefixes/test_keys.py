"""Prompts that begin alike have one cache key, in every process, and calls of one conversation have one number."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes._keys import session_of, stable_key
from fastlane.protocol.prompt_marks import Placement

CHAT = "/chat/completions"
POLICY = "You help customers of an airline.\nNever promise a refund.\n" * 40


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id", "why"]}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


TOOLS = [tool(name) for name in ("book", "cancel", "refund", "search")]


def body(system: str = POLICY, *, model: str = "m", user: str = "Hello", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages, "tools": TOOLS, **more}


def test_a_key_is_short_and_says_nothing_of_the_prompt() -> None:
    key = stable_key(CHAT, body())

    assert key.startswith("fl-")
    assert len(key) == 23
    assert int(key[3:], 16) >= 0


def test_what_follows_the_stable_prefix_makes_no_other_key() -> None:
    longer = body(user="Something else")
    longer["messages"] += [{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "No."}]

    assert stable_key(CHAT, longer) == stable_key(CHAT, body())


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
def test_another_stable_prefix_has_another_key(other: dict[str, Any]) -> None:
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
def test_a_volatile_value_makes_no_other_key_wherever_it_stands(first: str, second: str) -> None:
    for place in ("{}\n" + POLICY, POLICY + "{}", "One line. {} And on. " + POLICY.replace("\n", " ")):
        assert stable_key(CHAT, body(place.format(first))) == stable_key(CHAT, body(place.format(second)))


def test_tools_in_another_order_with_their_keys_in_another_order_have_the_same_key() -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return value

    shuffled = [turned(deepcopy(each)) for each in TOOLS]
    random.Random(0).shuffle(shuffled)
    shuffled[0]["function"]["parameters"]["required"].reverse()

    assert stable_key(CHAT, body(tools=shuffled)) == stable_key(CHAT, body())


def test_documents_at_the_end_of_a_long_system_message_make_no_other_key() -> None:
    policy = POLICY + "Words that say what is to be done and what is not. " * 60

    assert len(policy) > 4_096
    assert stable_key(CHAT, body(policy + "\nA document")) == stable_key(CHAT, body(policy + "\nAnother one"))


def test_what_is_declared_stable_counts_whole_and_nothing_else_does() -> None:
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


def test_the_same_prompt_has_the_same_key_as_text_and_as_parts() -> None:
    parts = {**body(), "messages": [{"role": "system", "content": [{"type": "text", "text": POLICY}]}]}

    assert stable_key(CHAT, parts) == stable_key(CHAT, body())


def test_instructions_are_the_system_message_of_a_response() -> None:
    first = {"model": "m", "instructions": POLICY, "input": "Hello"}
    second = {"model": "m", "instructions": POLICY, "input": [{"role": "user", "content": "Bye"}]}

    assert stable_key("/responses", first) == stable_key("/responses", second)
    assert stable_key("/responses", first) != stable_key("/responses", {**first, "instructions": "Be short."})


def test_keys_and_sessions_are_equal_in_every_process() -> None:
    code = "from test_keys import *; print(stable_key(CHAT, body('10:04 ' + POLICY)), session_of(CHAT, body()))"

    def told(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        here = Path(__file__).parent
        return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True).stdout

    assert told("1") == told("2") == f"{stable_key(CHAT, body('9:58 ' + POLICY))} {session_of(CHAT, body())}\n"


def test_a_conversation_keeps_its_session_as_it_grows_and_others_have_their_own() -> None:
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
def test_a_conversation_that_is_named_is_known_by_its_name_alone(named: dict[str, Any]) -> None:
    first, second = body(user="One", **named), body(user="Two", **named)

    assert session_of(CHAT, first) == session_of(CHAT, second)
    assert session_of(CHAT, first) != session_of(CHAT, body(user="One"))


def test_two_users_who_say_the_same_have_two_sessions() -> None:
    said = [{"role": "user", "content": "Hi"}]
    sessions = {session_of(CHAT, {"messages": said, "user": user}) for user in ("mia", "li", "")}

    assert len(sessions) == 3


def test_conversations_about_one_document_have_one_session() -> None:
    document = "The text of a document. " * 100
    sessions = {session_of(CHAT, {**body(user=f"{document}{user} asks"), "user": user}) for user in ("Mia", "Li")}

    assert len(sessions) == 1


def test_a_message_is_the_same_as_a_text_and_as_a_marked_part() -> None:
    marked = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]
    parts = {**body(), "messages": [body()["messages"][0], {"role": "user", "content": marked}]}

    assert session_of(CHAT, parts) == session_of(CHAT, body())


def test_conversations_about_two_images_are_two() -> None:
    def about(image: str) -> int:
        content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}]
        return session_of(CHAT, {"messages": [{"role": "user", "content": content}]})

    assert about("iVBORw0KGgo" * 9) == about("iVBORw0KGgo" * 9)
    assert about("iVBORw0KGgo" * 9) != about("R0lGODlhAQABAIAAAAUEBA" * 9)


def test_a_response_that_goes_on_from_another_is_known_by_its_user() -> None:
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
def test_odd_bodies_have_a_key_and_a_session_too(odd: dict[str, Any], endpoint: str) -> None:
    assert stable_key(endpoint, odd) == stable_key(endpoint, odd)
    assert session_of(endpoint, odd) == session_of(endpoint, odd)


@given(st.text(max_size=200), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_number_never_makes_another_key(text: str, one: int, other: int) -> None:
    assert stable_key(CHAT, body(f"{text} {one} {text}")) == stable_key(CHAT, body(f"{text} {other} {text}"))
