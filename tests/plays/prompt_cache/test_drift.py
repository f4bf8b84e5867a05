"""What broke a prompt's beginning, and what broke nothing."""

from __future__ import annotations

import copy
import json
import pickle
import random
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from string import ascii_uppercase
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from benchmarks._mutations import MUTATORS
from fastlane import PromptCache
from fastlane.records import Usage
from tests.plays.prompt_cache.provider import (
    SECOND_NS,
    SMALL,
    SYSTEM,
    Provider,
    call,
    edited,
    facts,
    message_of,
    prompt_text,
    size_of,
    turns,
)

UNBOUNDED = facts(minimum_tokens=None, block_tokens=None)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{name}",
            "description": f"Looks up the {name} of a customer, as of today.",
            "parameters": {
                "type": "object",
                "properties": {"customer": {"type": "string"}, "amount": {"type": "number", "description": "Of it."}},
            },
        },
    }
    for name in ("address", "balance", "contract", "discount")
]
POLICY = "\n".join(
    f"- Rule {number}: a passenger who flies in class {number % 5} takes the bags that the class allows, and no more."
    for number in range(60)
)


def agent(turns: int = 6) -> dict[str, Any]:
    """The request of an agent that looks something up in every turn."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": POLICY}]
    for turn in range(turns):
        function = {"name": "tool_address", "arguments": '{"customer": "a"}'}
        result = {"name": "Mia", "seats": ["window", "aisle"] * 5, "paid": f"on day {turn}", "note": "none " * 20}
        messages += [
            {
                "role": "user",
                "content": f"What is the state of order {turn}, and when will it {'finally ' * turn} come?",
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": json.dumps(result)},
            {"role": "assistant", "content": f"It is on its way, and will be with you after {'many ' * turn} hours."},
        ]
    return {"tools": copy.deepcopy(TOOLS), "messages": messages}


def between(*bodies: dict[str, Any]) -> Any:
    """The drift of the last of these requests."""
    provider = Provider()
    for body in bodies:
        items = body.get("messages", body.get("input"))
        endpoint = "/responses" if "input" in body else "/chat/completions"
        rest = {name: value for name, value in body.items() if name not in ("messages", "input", "model")}
        record = provider.call(items, known=UNBOUNDED, endpoint=endpoint, **rest)
    return record.drift


def grown(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "messages": [*body["messages"], {"role": "user", "content": "And what does that cost me?"}]}


# Causes


@pytest.mark.parametrize("kind", MUTATORS)
def test_changed_value_is_named_and_found(kind: str) -> None:
    rng = random.Random(6)
    named = 0
    for _ in range(20):
        mutation = MUTATORS[kind](rng, agent())

        drift = between(mutation.before, grown(mutation.after))

        assert drift is not None, mutation.path
        named += drift.kind == kind
        assert drift.path == mutation.path, mutation.path
        if mutation.character is None:
            assert drift.character is None, mutation.path
        else:
            assert drift.character <= mutation.character < drift.character + 16, mutation.path
    assert named >= 19


def changed(change: Any) -> dict[str, Any]:
    body = agent()
    change(body)
    return grown(body)


def response(instructions: str = POLICY, called: str = "call_1", form: str = "text") -> dict[str, Any]:
    call = {"type": "function_call", "call_id": called, "name": "look_up", "arguments": "{}"}
    items = [{"role": "user", "content": "Where?"}, call, {"role": "user", "content": "Well? " * 30}]
    return {"instructions": instructions, "input": items, "text": {"format": {"type": form}}}


def parts(clock: str) -> dict[str, Any]:
    content = [{"type": "text", "text": "Look at this."}, {"type": "text", "text": f"Seen at {clock} by all of us."}]
    return {"messages": [{"role": "user", "content": content}, {"role": "user", "content": "Well? " * 30}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (agent(), changed(lambda body: body["tools"].pop(2)), ("changed_tool", "tools[2]", None)),
        (agent(), {**agent(), "response_format": {"type": "json_object"}}, ("changed", "response_format", None)),
        (
            agent(),
            changed(lambda body: body["tools"][1]["function"]["parameters"]["properties"].pop("amount")),
            ("changed_tool", "tools[1].function.parameters.properties.amount", None),
        ),
        (
            agent(),
            changed(lambda body: body["messages"][6]["tool_calls"][0]["function"].update(arguments="{}")),
            ("changed", "messages[6].tool_calls[0].function.arguments", 1),
        ),
        (parts("10:04:33"), parts("10:05:01"), ("timestamp", "messages[0].content[1].text", 12)),
        (response(f"Hello. {POLICY}"), response(f"Hi. {POLICY}"), ("changed", "instructions", 1)),
        (response(), response(called="call_2"), ("counter", "input[1].call_id", 5)),
        (response(), response(form="json_object"), ("changed", "text.format.type", 0)),
        (
            {"messages": turns(4)},
            {"messages": edited(turns(5), 3, "about fares", "about air")},
            ("changed", "messages[3].content", None),
        ),
    ],
)  # fmt: skip
def test_change_is_named_with_its_path(before: Any, after: Any, expected: Any) -> None:
    drift = between(before, after)

    assert (drift.kind, drift.path) == expected[:2]
    if expected[2] is not None:
        assert drift.character <= expected[2] < drift.character + 8


@pytest.mark.parametrize(
    ("change", "kind", "path"),
    [
        ({"model": "small"}, "changed_model", "model"),
        ({"verbosity": "low"}, "changed_parameter", "verbosity"),
        ({"service_tier": "flex"}, "changed_parameter", "service_tier"),
    ],
)
def test_other_model_or_parameter_is_named(change: dict[str, Any], kind: str, path: str) -> None:
    provider = Provider()
    provider.call(turns(3))

    drift = provider.call(turns(4), cached=0, **change).drift

    assert (drift.kind, drift.path) == (kind, path)
    assert drift.tokens_lost == pytest.approx(size_of(turns(3)), abs=20)
    assert provider.call(turns(4)).drift is None
    assert provider.call(turns(5), **change).drift is None


def test_changed_clock_loses_all_tokens_after_it() -> None:
    provider = Provider()
    provider.call(turns(3), tools=TOOLS)

    record = provider.call(edited(turns(4), 0, "10:04:33", "10:05:12"), cached=0, tools=TOOLS)

    drift, tools = record.drift, size_of([], tools=TOOLS)
    assert (drift.kind, drift.path) == ("timestamp", "messages[0].content")
    assert tools <= drift.token_offset <= tools + 96
    assert drift.tokens_lost == pytest.approx(size_of(turns(3), tools=TOOLS) - drift.token_offset, abs=200)
    assert record.reusable_tokens >= tools


def test_compacted_prompt_is_compared_with_its_last_turn() -> None:
    """The conversation was sent up to a later turn before, which has more than the prompt that was compacted."""
    provider = Provider()
    provider.call(turns(9))
    provider.call(turns(5))

    drift = provider.call([SYSTEM, *turns(6)[5:]]).drift

    assert (drift.kind, drift.path) == ("compacted", "messages[1]")


def test_expired_prompt_is_not_lost_by_a_difference() -> None:
    drifts = []
    for seconds in (298, 300):
        provider = Provider()
        provider.call(
            [{"role": "system", "content": f"It is 10:04:33. {POLICY}"}, message_of("user", "bags")], cached=0
        )
        provider.now_ns += seconds * SECOND_NS
        drifts.append(
            provider.call([{"role": "system", "content": f"It is 10:05:51. {POLICY}"}, message_of("user", "bags")])
        )

    assert [record.drift and record.drift.kind for record in drifts] == ["timestamp", None]


def test_drift_is_that_of_its_time() -> None:
    """It is found when it is looked at: what was sent meanwhile counts for nothing."""
    provider = Provider()
    provider.call(turns(3))
    record = provider.call(edited(turns(4), 0, "10:04:33", "10:05:12"))
    provider.call(edited(turns(4), 0, "10:04:33", "10:05:12"))
    provider.call(turns(4))
    provider.call(edited(turns(6), 0, "10:04:33", "10:05:12"))

    drift = record.drift
    assert (drift.kind, drift.path) == ("timestamp", "messages[0].content")
    assert record.drift is drift
    copied = pickle.loads(pickle.dumps(record))
    assert copied.drift == copy.deepcopy(record).drift == drift
    assert json.loads(json.dumps(record.to_dict()))["drift"]["kind"] == "timestamp"


# What broke nothing


@pytest.mark.parametrize(
    "branch",
    [
        pytest.param(lambda: turns(1, "refunds"), id="another question"),
        pytest.param(lambda: [*turns(2)[:-1], message_of("user", "seats")], id="another second question"),
        pytest.param(lambda: edited(turns(3), -1, "about fares", "about cheap fares"), id="an edited last message"),
        pytest.param(lambda: turns(3), id="the same once more"),
        pytest.param(lambda: turns(2), id="back to an earlier turn"),
        pytest.param(
            lambda: [*turns(2), message_of("assistant", "something else"), message_of("user", "why")], id="regenerated"
        ),
    ],
)
def test_branch_of_a_conversation_is_no_drift(branch: Any) -> None:
    provider = Provider()
    provider.call(turns(3))

    assert provider.call(branch()).drift is None
    assert provider.call(turns(4)).drift is None


TITLE = {"role": "system", "content": "Name this conversation in three words. Write nothing else, and no full stop."}


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(lambda: [TITLE, turns(1)[1]], id="the first question under another system prompt"),
        pytest.param(
            lambda: [*turns(3), message_of("user", "a title for all this")], id="the conversation and one more"
        ),
        pytest.param(lambda: [TITLE, *turns(3)[1:]], id="the conversation under another system prompt"),
        pytest.param(lambda: edited(turns(3), 0, "10:04:33", "11:11:11"), id="the conversation with another clock"),
        pytest.param(lambda: [message_of("user", "something else altogether")], id="something else"),
    ],
)
def test_unrelated_call_is_no_drift_of_a_conversation(beside: Any) -> None:
    provider = Provider()
    provider.call(turns(2))
    provider.call(turns(3))

    provider.call(beside())
    record = provider.call(turns(4))

    assert record.drift is None
    assert record.reusable_tokens == pytest.approx(size_of(turns(3)), abs=20)
    provider.call(beside())
    provider.call(beside())
    assert provider.call(turns(5)).drift is None


# What the provider has read, and its own word


BROKEN = edited(turns(4), 0, "10:04:33", "10:05:12")


READ, CLOCK = size_of(turns(3), tools=TOOLS) // 64 * 64, "messages[0].content"


@pytest.mark.parametrize(
    ("messages", "cached", "reason", "expected"),
    [
        (BROKEN, READ, None, None),
        (BROKEN, 0, None, ("timestamp", CLOCK)),
        (BROKEN, None, None, ("timestamp", CLOCK)),
        (BROKEN, 0, "tools_changed", ("timestamp", CLOCK)),
        (turns(4), READ - 64, None, None),
        (turns(4), READ - 640, None, ("evicted", None)),
        (turns(4), READ, "service_tier_changed", ("changed", None)),
        (turns(4), size_of(turns(4), tools=TOOLS) // 64 * 64 - 64, "service_tier_changed", None),
    ],
)
def test_drift_follows_cached_tokens_and_provider_reason(
    messages: Any, cached: Any, reason: Any, expected: Any
) -> None:
    provider = Provider()
    provider.call(turns(3), tools=TOOLS)

    drift = provider.answer(provider.sent(messages, tools=TOOLS), cached, reason=reason).drift

    assert (drift and (drift.kind, drift.path)) == expected
    assert drift is None or drift.provider_reason == reason
    assert expected != ("evicted", None) or drift.tokens_lost == 640


# Quotes


def test_drift_shows_both_texts_in_memory_alone() -> None:
    then, now = (
        {"messages": [{"role": "system", "content": f"{POLICY}Request {number}. {POLICY}"}, message_of("user", "bags")]}
        for number in (17, 18)
    )

    drift = between(then, now)

    assert "Request 17" in drift.before
    assert "Request 18" in drift.after
    assert len(drift.before) == len(drift.after) == 160
    assert drift.diff == "- 17.\n+ 18."
    assert "Request" not in repr(drift)


# Laws


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    value=st.text(st.sampled_from("ab1 2.:-\n"), min_size=1, max_size=40),
    other=st.text(st.sampled_from("ab1 2.:-\n"), max_size=40),
    at=st.integers(0, len(POLICY)),
)
def test_named_character_is_the_first_that_differs(value: str, other: str, at: int) -> None:
    before, after = POLICY[:at] + value + POLICY[at:], POLICY[:at] + other + POLICY[at:]
    bodies = (
        {"messages": [{"role": "system", "content": text}, message_of("user", "bags")]} for text in (before, after)
    )

    drift = between(*bodies)

    if before == after:
        assert drift is None
    else:
        true = next((one for one in range(len(after)) if before[one : one + 1] != after[one : one + 1]), len(after))
        assert drift.character == true


# How much of a prompt the provider's cache should hold, as calls come and go


SECRET = "the-launch-code-is-plover"


def test_call_in_flight_is_not_in_the_cache_yet() -> None:
    provider = Provider()
    first, second = provider.sent(turns(2)), provider.sent(turns(2))

    assert provider.answer(second).reusable_tokens == 0
    assert provider.answer(first).reusable_tokens == 0
    assert provider.call(turns(2)).reusable_tokens == size_of(turns(2))
    assert len(provider.play.history.lines) == 1


def test_unused_beginning_expires() -> None:
    provider = Provider()
    provider.call(turns(2), cached=0)
    provider.now_ns += 301 * SECOND_NS

    record = provider.call(turns(3), cached=0)

    assert (record.reusable_tokens, record.expected_tokens) == (0, 0)
    assert (record.drift.kind, record.drift.path) == ("expired", None)
    assert record.drift.tokens_lost == size_of(turns(2)) // 64 * 64


@pytest.mark.parametrize(
    "body",
    [
        {}, {"messages": []}, {"messages": None}, {"messages": 17}, {"messages": ["odd", 3]}, {"messages": "text"},
        {"model": ["odd"], "messages": []},
        {"messages": [{"role": "user", "content": "\ud800"}]}, {"messages": [{"role": "user", "content": 1 << 70}]},
        {"messages": [{"role": "user", "content": object()}], "tools": object(), "text": 3, "reasoning": []},
    ],
)  # fmt: skip
def test_odd_bodies_are_no_error(body: dict[str, Any]) -> None:
    play = PromptCache(key=False)
    for now_ns in (1, 2, 3):
        session: Any = play.open(call({**body, "temperature": now_ns}, facts=SMALL))
        session.plan(call({**body, "temperature": now_ns}, facts=SMALL))
        outcome: Any = SimpleNamespace(status_code=200, usage=Usage(), ended_ns=now_ns, cache_reason=None, refused=())
        assert session.close(outcome)(outcome).drift is None


@pytest.mark.parametrize("kept_bytes", [0, 100_000])
def test_text_is_kept_only_within_its_limit(kept_bytes: int) -> None:
    provider = Provider(kept_bytes=kept_bytes)
    secret = [*turns(2), message_of("assistant", SECRET), message_of("user", "go")]
    provider.call(secret)
    record = provider.call(edited(secret, 0, "10:04:33", "10:09:59"))

    held = [SECRET.encode() in b"".join(line.chunks) for line in provider.play.history.lines]
    assert held == [True] * (2 if kept_bytes else 0)
    assert (record.drift is not None) == (kept_bytes > 0)
    assert SECRET not in repr(record)
    assert SECRET not in str(record.to_dict())


def test_memory_is_bounded() -> None:
    provider = Provider(kept_bytes=50_000)
    calls = 1_300
    for number in range(calls):
        rules = " ".join(ascii_uppercase[(number >> bit) % 26] * 30 for bit in range(9))
        prompt = provider.sent([{"role": "system", "content": rules}, message_of("user", f"question {number}")])
        provider.answer(prompt)

    lines = provider.play.history.lines
    assert sum(len(chunk) for line in lines for chunk in line.chunks) <= 50_000
    assert len(lines) <= 1_000


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

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(converse, range(8)))

    assert problems == []


WORDS = st.sampled_from(["alpha", "beta", "gamma"]).map(lambda word: message_of("user", word))


@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=8))
def test_reusable_tokens_are_the_longest_common_beginning(prompts: list[list[Any]]) -> None:
    provider = Provider()
    sent: list[bytes] = []
    for messages in prompts:
        prompt = provider.sent(messages)
        text = prompt_text({"messages": messages})
        record = provider.answer(prompt)
        longest = 0
        for earlier in sent:
            count = 0
            while count < min(len(earlier), len(text)) and earlier[count] == text[count]:
                count += 1
            longest = max(longest, count)
        assert record.reusable_tokens == longest
        sent.append(text)


def test_calls_of_many_users_share_their_tools() -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "description": "Look up a word. " * 1_000}}]
    provider = Provider()
    provider.call(turns(1), tools=tools, user="user 0")
    tracemalloc.start()
    for number in range(1, 101):
        provider.call([message_of("user", f"question {number}")], tools=tools, user=f"user {number}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(provider.play.history.lines) == 101
    assert held < 20 * len(str(tools))
