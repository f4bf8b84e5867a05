"""Prompts that begin alike have one cache key, spread over several where its rate needs that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import PromptCache
from tests.plays.prompt_cache.provider import call, facts, planned_by

CHAT, RESPONSES = "/chat/completions", "/responses"
POLICY = "You help customers of an airline.\nNever promise a refund.\n" * 40
MINUTE_NS = 60_000_000_000
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id", "why"]},
        },
    }
    for name in ("book", "cancel", "refund", "search")
]


def body(system: Any = POLICY, *, model: str = "m", user: Any = "Hello", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return {"model": model, "messages": messages, "tools": TOOLS, **more}


def key_of(body: dict[str, Any], play: PromptCache | None = None, *, least: int | None = None, **fields: Any) -> Any:
    """The key that the play adds, or None."""
    known = facts(minimum_tokens=least, key_field="prompt_cache_key")
    fields = {"endpoint": RESPONSES if "input" in body else CHAT, **fields}
    return planned_by(play or PromptCache(), call(body, facts=known, **fields)).body.get("prompt_cache_key")


def test_key_is_short_and_the_same_in_every_process() -> None:
    """Another key after an update of fastlane would make every provider's cache cold once."""
    assert key_of(body("10:04 " + POLICY)) == key_of(body("9:58 " + POLICY)) == "fl-51ecf6403e6dc2deff71"
    assert key_of(body(), busy()) == "fl-682be100e96c799c0ed9-3618"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("It is Monday, 3 March 2025, 10:04 AM.", "It is Tuesday, 14 October 2025, 9:58 PM."),
        ("Request #999 of 1,200", "Request #1,000 of 20,000"),
        ("nonce aGVsbG8gd29ybGQx+/==", "nonce Zm9vYmFyIGJheiAy/Q=="),
    ],
)
def test_key_ignores_volatile_values(first: str, second: str) -> None:
    for place in ("{}\n" + POLICY, POLICY + "{}", "One line. {} And on. " + POLICY.replace("\n", " ")):
        assert key_of(body(place.format(first))) == key_of(body(place.format(second)))


@given(st.text(max_size=200), st.integers(0, 10**12), st.integers(0, 10**12))
def test_number_never_makes_another_key(text: str, one: int, other: int) -> None:
    assert key_of(body(f"{text} {one} {text}")) == key_of(body(f"{text} {other} {text}"))


def turned(value: Any) -> Any:
    return {key: turned(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def test_key_ignores_order_form_and_late_messages() -> None:
    shuffled = [turned(deepcopy(each)) for each in TOOLS]
    random.Random(0).shuffle(shuffled)
    shuffled[0]["function"]["parameters"]["required"].reverse()
    long = POLICY + "Words that say what is to be done and what is not. " * 60

    assert key_of(body(tools=shuffled)) == key_of(body())
    assert key_of(body([{"type": "text", "text": POLICY}])) == key_of(body())
    assert len(long) > 4_096
    assert key_of(body(long + "\nA document")) == key_of(body(long + "\nAnother one"))
    given = {"model": "m", "instructions": POLICY, "input": "Hello"}
    assert key_of(given) == key_of({**given, "input": [{"role": "user", "content": "Bye"}]})
    assert key_of(given) != key_of({**given, "instructions": "Be short."})


def test_key_is_made_from_stable_messages() -> None:
    def key(end: str = "The end", example: str = "An example", user: str = "Mia") -> Any:
        messages = [
            {"role": "system", "content": f"{POLICY * 3}\n{end}"},
            {"role": "user", "content": example},
            {"role": "system", "content": f"The user is {user}"},
        ]
        return key_of({"model": "m", "messages": messages}, placements=("stable", "stable", "volatile"))

    assert key(user="Li") == key()
    assert key() not in (key(example="No example"), key(end="The other end"))


# Too short


@pytest.mark.parametrize(
    ("endpoint", "body", "is_short"),
    [
        (CHAT, {"messages": []}, True),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, True),
        (CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}, True),
        (CHAT, {"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        (RESPONSES, {"input": "Hi", "instructions": "Be brief."}, True),
        (RESPONSES, {"input": "Hi", "tools": [{"type": "function", "name": "f"}]}, True),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 300}]}, False),
        (RESPONSES, {"input": "Hi", "previous_response_id": "resp_1"}, False),
        (RESPONSES, {"input": "Hi", "conversation": {"id": "conv_1"}}, False),
        (RESPONSES, {"input": "Hi", "prompt": {"id": "pmpt_1"}}, False),
    ],
)
def test_prompt_is_too_short_by_its_size(endpoint: str, body: dict[str, Any], is_short: bool) -> None:
    play = PromptCache(kept_bytes=0)
    assert (key_of(body, play, least=1_024, endpoint=endpoint) is None) is is_short
    assert key_of(body, play, endpoint=endpoint) is not None


# Key spreading


def calls(
    play: PromptCache, *, per_minute: int, minutes: float, start: float = 0, of: dict[str, Any] | None = None
) -> Iterator[Any]:
    """Yield the keys of evenly spaced calls, each of a session of its own, or of one request again and again."""
    for number in range(round(per_minute * minutes)):
        at_ns = round(start * MINUTE_NS) + number * MINUTE_NS // per_minute
        yield key_of(of or body(user=f"I am user {number}."), play, issued_ns=at_ns)


def limited() -> PromptCache:
    return PromptCache(requests_per_key_per_minute=15)


def busy() -> PromptCache:
    """A play whose calls are spread over thousands of keys, so that each session has a key of its own."""
    return PromptCache(requests_per_key_per_minute=1e-4)


def test_key_is_spread_above_its_limit_only() -> None:
    assert len({*calls(limited(), per_minute=15, minutes=10)}) == 1
    keys = list(calls(limited(), per_minute=180, minutes=4))

    assert max(Counter(keys[-180:]).values()) <= 15
    assert 20 <= len({*keys[-180:]}) <= 25
    # And within seconds: twenty calls were enough to see the rate.
    assert len({*keys[:15]}) == 1
    assert len({*keys[15:45]}) >= 12


def test_session_keeps_its_key_when_others_are_added() -> None:
    play, mine = limited(), body(user="Me")
    list(calls(play, per_minute=30, minutes=1))
    first = key_of(mine, play, issued_ns=MINUTE_NS)
    list(calls(play, per_minute=300, minutes=1, start=2))

    assert key_of(mine, play, issued_ns=3 * MINUTE_NS) == first


def test_session_moves_to_an_added_key_or_not_at_all() -> None:
    """Of twice as many keys, half are new."""
    plays = [PromptCache(requests_per_key_per_minute=limit) for limit in (10, 5)]
    few, many = (list(calls(play, per_minute=100, minutes=1)) for play in plays)

    assert all(after == before or after not in few for before, after in list(zip(few, many, strict=True))[-20:])


def test_keys_are_kept_for_ten_minutes() -> None:
    play = limited()
    spread = {*calls(play, per_minute=60, minutes=2)}
    kept = {*calls(play, per_minute=20, minutes=4, start=2)} | {*calls(play, per_minute=10, minutes=5, start=6)}

    assert len(spread) >= 7
    assert len(kept) >= 7
    assert len({*calls(play, per_minute=2, minutes=2, start=17)}) == 1


def test_other_prompts_and_providers_are_counted_apart() -> None:
    play, known = limited(), {"issued_ns": 2 * MINUTE_NS}
    spread = {*calls(play, per_minute=60, minutes=2)}

    assert key_of(body("Another. " * 300), play, **known).count("-") == 1
    assert {key_of(body(user=f"{number}"), play, origin="o", **known) for number in range(15)} == {key_of(body())}
    assert len(spread) > 1


NAMED: list[dict[str, Any]] = [
    {"metadata": {"session_id": "s1", "request": "r1"}}, {"conversation": "c1"}, {"conversation": {"id": "c1"}},
]  # fmt: skip
ANSWERED = {"role": "assistant", "content": "Yes?"}
MARKED = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]
DOCUMENT = "The text of a document. " * 100


def chained(question: str) -> dict[str, Any]:
    more = {"previous_response_id": f"resp_{question}", "safety_identifier": "mia"}
    return {"model": "m", "instructions": POLICY, "input": question, **more}


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        (chained("One"), chained("Two"), True),
        (body(), {**body(), "messages": [*body()["messages"], ANSWERED]}, True),
        (body(), body(user=MARKED), True),
        *((body(user="One", **named), body(user="Two", **named), True) for named in NAMED),
        (body(user=f"{DOCUMENT} Mia asks") | {"user": "Mia"}, body(user=f"{DOCUMENT} Li asks") | {"user": "Li"}, True),
        (body(), body(user="Bye"), False),
        (body() | {"user": "mia"}, body() | {"user": "li"}, False),
        (body() | {"user": "mia"}, body(), False),
        (body(user="One", conversation="c1"), body(user="One"), False),
        (body(model="n"), body(), False),
        (body("You write poems." + POLICY), body(), False),
        (body(tools=TOOLS[1:]), body(), False),
        (body(response_format={"type": "json_object"}), body(), False),
    ],
)
def test_each_conversation_has_one_key_of_its_own(first: Any, second: Any, is_one: bool) -> None:
    play = busy()
    assert (key_of(first, play) == key_of(second, play)) is is_one
