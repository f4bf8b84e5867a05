from __future__ import annotations

import copy
import json
import threading
from string import ascii_uppercase
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fastlane.plays.prompt_cache.prefixes import CacheRules, Ledger, Sighting
from fastlane.plays.prompt_cache.prefixes._outline import outline
from fastlane.records.prompt import PromptCacheRecord
from fastlane.records.usage import Usage

RULES = CacheRules(automatic=True, minimum_tokens=256, block_tokens=64, lifetime_s=300.0)
NOBODY_KNOWS = CacheRules()
ORIGIN = "https://api.example.com:443"
SECOND = 10**9
SECRET = "the-launch-code-is-plover"

SYSTEM = {
    "role": "system",
    "content": "It is 2025-03-03T10:04:33Z. "
    + " ".join(
        f"Rule {letter}: help the caller with {letter * 3} as kindly as can be." for letter in "abcdefghijklmnop"
    ),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{name}",
            "description": f"Looks up the {name} of a customer, as of today.",
            "parameters": {"type": "object", "properties": {"customer": {"type": "string"}}},
        },
    }
    for name in ("address", "balance", "contract", "discount")
]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": f"{text}: " + f"all that there is to say about {text}. " * 8}


def turns(count: int, topic: str = "fares") -> list[dict[str, Any]]:
    """A conversation up to the question of a turn, counted from 1."""
    messages: list[dict[str, Any]] = [SYSTEM]
    for turn in range(count):
        messages += [said("user", f"{topic} question {turn}"), said("assistant", f"{topic} answer {turn}")]
    return messages[:-1]


class Provider:
    """A ledger's caller, whose provider says what the test makes it say."""

    def __init__(self, **options: Any) -> None:
        self.ledger = Ledger(**options)
        self.now_ns = 0

    def sight(
        self,
        messages: list[Any],
        *,
        rules: CacheRules = RULES,
        model: str = "large",
        key: str | None = None,
        shards: int = 1,
        origin: str = ORIGIN,
        endpoint: str = "/chat/completions",
        **body: Any,
    ) -> Sighting:
        self.now_ns += SECOND
        # As from another process: no object is the one that was sent before.
        body = json.loads(json.dumps({"model": model, "messages": messages, **body}))
        return self.ledger.sight(
            origin=origin,
            model=model,
            endpoint=endpoint,
            body=body,
            rules=rules,
            now_ns=self.now_ns,
            key=key,
            shards=shards,
        )

    def settle(
        self, sighting: Sighting, cached: int | None = None, *, answered: bool = True, reason: str | None = None
    ) -> PromptCacheRecord:
        # A token is a character, so that the tests can count.
        usage = Usage(input_tokens=sum(sighting._outline.sizes), cached_tokens=cached) if answered else Usage()
        self.now_ns += SECOND
        return sighting.settle(usage, answered=answered, now_ns=self.now_ns, provider_reason=reason)

    def call(self, messages: list[Any], cached: int | None = None, **options: Any) -> PromptCacheRecord:
        return self.settle(self.sight(messages, **options), cached)


def size_of(messages: list[Any], **body: Any) -> int:
    return sum(outline("/chat/completions", {"messages": messages, **body})[0].sizes)


def edited(messages: list[Any], index: int, old: str, new: str) -> list[Any]:
    messages = copy.deepcopy(messages)
    assert old in messages[index]["content"]
    messages[index]["content"] = messages[index]["content"].replace(old, new, 1)
    return messages


def test_the_first_call_finds_nothing_and_lost_nothing() -> None:
    record = Provider().call(turns(1), cached=0)

    assert (record.reusable_tokens, record.expected_tokens, record.drift) == (0, 0, None)
    assert record.prompt_tokens == size_of(turns(1))


def test_a_conversation_that_goes_on_finds_all_of_its_last_prompt() -> None:
    provider = Provider()
    for turn in range(1, 6):
        record = provider.call(turns(turn), cached=None)
        assert record.reusable_tokens == (size_of(turns(turn - 1)) if turn > 1 else 0)
        assert record.drift is None
        assert record.expected_tokens == record.reusable_tokens // 64 * 64


def test_another_conversation_finds_what_all_have_in_common() -> None:
    provider = Provider()
    provider.call(turns(3))

    record = provider.call(turns(1, "refunds"), cached=0)

    assert record.reusable_tokens == size_of([SYSTEM])
    assert record.drift is not None
    assert record.drift.kind == "evicted"


def test_only_an_answered_call_leaves_anything_in_the_cache() -> None:
    provider = Provider()
    failed = provider.settle(provider.sight(turns(2)), answered=False)
    assert (failed.drift, failed.expected_tokens) == (None, None)

    assert provider.call(turns(2)).reusable_tokens == 0
    assert provider.ledger.report().calls == 1


def test_a_call_in_flight_is_not_in_the_cache_yet() -> None:
    provider = Provider()
    first, second = provider.sight(turns(2)), provider.sight(turns(2))

    assert provider.settle(second).reusable_tokens == 0
    assert provider.settle(first).reusable_tokens == 0
    assert provider.call(turns(2)).reusable_tokens == size_of(turns(2))


def test_a_sighting_is_settled_once() -> None:
    provider = Provider()
    sighting = provider.sight(turns(1))

    record = provider.settle(sighting, 0)

    assert provider.settle(sighting, 999) is record
    assert provider.ledger.report().calls == 1


def test_nothing_is_expected_of_a_provider_until_it_is_seen_to_keep_prompts() -> None:
    provider = Provider()
    provider.call(turns(2), rules=NOBODY_KNOWS, cached=0)
    record = provider.call(turns(2), rules=NOBODY_KNOWS, cached=0)
    assert (record.expected_tokens, record.drift) == (None, None)

    assert provider.call(turns(2), rules=NOBODY_KNOWS, cached=100).expected_tokens is not None
    assert provider.call(turns(2), rules=NOBODY_KNOWS, cached=0).drift is not None
    assert provider.call(turns(2), rules=NOBODY_KNOWS, cached=0, origin="https://other:443").expected_tokens is None


def test_a_key_asks_for_the_prompt_to_be_kept_and_keeps_caches_apart() -> None:
    provider = Provider()
    provider.call(turns(2), rules=NOBODY_KNOWS, key="a")
    again = provider.call(turns(2), rules=NOBODY_KNOWS, key="a", shards=2)
    other = provider.call(turns(2), rules=NOBODY_KNOWS, key="b")

    assert again.expected_tokens == again.reusable_tokens == size_of(turns(2))
    assert (again.key, again.shards) == ("a", 2)
    assert other.reusable_tokens == 0
    assert other.drift is not None
    assert (other.drift.kind, other.drift.path) == ("changed_parameter", "prompt_cache_key")


def test_a_key_that_the_provider_refused_keeps_nothing_apart() -> None:
    provider = Provider()
    refused = provider.sight(turns(2), key="a", rules=NOBODY_KNOWS)

    refused.sent_without_key()
    record = provider.settle(refused)
    again = provider.call(turns(3), rules=NOBODY_KNOWS)

    assert (record.key, record.expected_tokens) == (None, None)
    assert (again.drift, again.reusable_tokens) == (None, size_of(turns(2)))


@pytest.mark.parametrize("key", ["fl-0a", "fl-01", "agent-47", "mine"])
def test_shards_of_a_key_are_one_family(key: str) -> None:
    provider = Provider()
    families = {
        provider.call(turns(1, topic), key=one, shards=shards).family
        for topic, one, shards in (("a", key, 1), ("b", f"{key}-7", 8), ("c", key, 8))
    }

    assert len(families) == 1
    assert provider.call(turns(1, "d"), key="fl-0b").family not in families


def test_what_was_not_used_for_longer_than_its_lifetime_has_expired() -> None:
    provider = Provider()
    provider.call(turns(2), cached=0)
    provider.now_ns += 301 * SECOND

    record = provider.call(turns(3), cached=0)

    assert (record.reusable_tokens, record.expected_tokens) == (0, 0)
    assert record.drift is not None
    assert (record.drift.kind, record.drift.path) == ("expired", None)
    assert record.drift.tokens_lost == size_of(turns(2)) // 64 * 64


def test_a_beginning_that_others_use_does_not_expire() -> None:
    provider = Provider()
    provider.call(turns(4), cached=0)
    for _ in range(3):
        provider.now_ns += 200 * SECOND
        provider.call(turns(1, "refunds"), cached=size_of([SYSTEM]))

    record = provider.call(turns(5), cached=size_of([SYSTEM]))

    assert record.reusable_tokens == size_of([SYSTEM])
    assert record.drift is not None
    assert record.drift.kind == "expired"
    assert record.drift.tokens_lost == size_of(turns(4)) // 64 * 64 - size_of([SYSTEM])


@pytest.mark.parametrize(
    ("changed", "kind", "path"),
    [
        ({"model": "small"}, "changed_model", "model"),
        ({"reasoning_effort": "high"}, "changed_parameter", "reasoning_effort"),
        ({"verbosity": "low"}, "changed_parameter", "verbosity"),
        ({"service_tier": "flex"}, "changed_parameter", "service_tier"),
    ],
)
def test_the_same_prompt_under_something_else_says_what_else(changed: dict[str, Any], kind: str, path: str) -> None:
    provider = Provider()
    provider.call(turns(3))

    record = provider.call(turns(4), cached=0, **changed)

    assert record.drift is not None
    assert (record.drift.kind, record.drift.path) == (kind, path)
    assert record.drift.tokens_lost == size_of(turns(3))
    back = provider.call(turns(4))
    assert back.drift is None
    assert provider.call(turns(5), **changed).drift is None


def test_of_earlier_prompts_the_one_that_is_alike_for_longest_is_compared_with() -> None:
    provider = Provider()
    provider.call(turns(4), tools=TOOLS)
    provider.call(turns(4), tools=TOOLS[::-1])

    compacted = provider.call([SYSTEM, *turns(5)[5:]], tools=TOOLS).drift
    parameter = provider.call(turns(4), tools=TOOLS, verbosity="low").drift

    assert compacted is not None
    assert compacted.kind == "compacted"
    assert parameter is not None
    assert (parameter.kind, parameter.path) == ("changed_parameter", "verbosity")


def test_another_conversation_under_another_model_is_no_drift() -> None:
    provider = Provider()
    provider.call(turns(3))

    assert provider.call(turns(1, "refunds"), model="small").drift is None


def test_a_clock_at_the_top_is_named_with_its_place_and_its_price() -> None:
    provider = Provider()
    provider.call(turns(3), tools=TOOLS)

    record = provider.call(edited(turns(4), 0, "10:04:33", "10:05:12"), cached=0, tools=TOOLS)

    drift = record.drift
    assert drift is not None
    assert (drift.kind, drift.path) == ("timestamp", "messages[0].content")
    assert drift.character is not None
    assert 0 <= drift.character <= SYSTEM["content"].index("10:04:33") + 4
    assert size_of([], tools=TOOLS) <= drift.token_offset <= size_of([], tools=TOOLS) + 64
    assert drift.tokens_lost > 0.9 * (size_of(turns(3)) - 40)
    assert record.reusable_tokens >= size_of([], tools=TOOLS)


def test_a_clock_makes_one_family_and_not_one_for_every_call() -> None:
    provider = Provider()
    families = {
        provider.call(edited(turns(1, f"topic {minute}"), 0, "10:04:33", f"10:{minute:02}:07")).family
        for minute in range(10, 40)
    }

    assert len(families) == 1
    report = provider.ledger.report()
    assert [drift.kind for drift in report.drifts] == ["timestamp"]
    assert report.drifts[0].calls == 29


def test_reordered_and_changed_tools_are_told_from_each_other() -> None:
    drifts = []
    for tools in ([TOOLS[1], TOOLS[0], *TOOLS[2:]], [*TOOLS[:2], TOOLS[3]]):
        for turn in (1, 3):  # another conversation, and the same one
            provider = Provider()
            provider.call(turns(2), tools=TOOLS)
            drifts.append(provider.call(turns(turn, "refunds" if turn == 1 else "fares"), tools=tools).drift)

    assert [drift.kind for drift in drifts if drift is not None] == ["reordered_tools"] * 2 + ["changed_tool"] * 2
    assert all(drift is not None and drift.path is not None and drift.path.startswith("tools") for drift in drifts)


def test_a_message_edited_in_the_middle_is_named() -> None:
    provider = Provider()
    provider.call(turns(4))

    drift = provider.call(edited(turns(5), 3, "about fares question 1", "about fancy question 1")).drift

    assert drift is not None
    assert (drift.kind, drift.path) == ("changed", "messages[3].content")
    assert drift.token_offset >= size_of(turns(1))


def test_a_conversation_without_its_oldest_turns_is_compacted() -> None:
    provider = Provider()
    provider.call(turns(6))

    messages = turns(7)
    drift = provider.call([messages[0], *messages[5:]]).drift

    assert drift is not None
    assert drift.kind == "compacted"


@pytest.mark.parametrize(
    "branch",
    [
        pytest.param(lambda: turns(1, "refunds"), id="another question"),
        pytest.param(lambda: [*turns(2)[:-1], said("user", "seats")], id="another second question"),
        pytest.param(lambda: edited(turns(3), -1, "about fares", "about cheap fares"), id="an edited last message"),
        pytest.param(lambda: turns(3), id="the same once more"),
        pytest.param(lambda: turns(2), id="back to an earlier turn"),
        pytest.param(lambda: [*turns(2), said("assistant", "something else"), said("user", "why")], id="regenerated"),
    ],
)
def test_a_conversation_that_branches_is_no_drift(branch: Any) -> None:
    provider = Provider()
    provider.call(turns(3))

    assert provider.call(branch()).drift is None
    assert provider.call(turns(4)).drift is None


def test_another_document_before_the_same_question_is_no_drift() -> None:
    provider = Provider()
    question = {"role": "user", "content": "Say in three sentences what the text above is about."}
    for letter in "abcdef":
        document = {"role": "user", "content": " ".join(letter * length for length in range(1, 60))}
        assert provider.call([SYSTEM, document, question]).drift is None


def test_a_clock_in_a_tools_output_is_named_though_little_was_said_after_it() -> None:
    provider = Provider()
    lookup = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    calling = {"role": "assistant", "content": None, "tool_calls": [lookup]}

    def asked(clock: str) -> list[Any]:
        output = "All flights of the day, " + clock + ": " + ", ".join(f"flight {number}" for number in range(200))
        return [*turns(1), calling, {"role": "tool", "tool_call_id": "call_1", "content": output}, said("user", "so")]

    provider.call(asked("10:04:33"))
    drift = provider.call([*asked("10:07:15"), said("assistant", "yes"), said("user", "really")]).drift

    assert drift is not None
    assert (drift.kind, drift.path) == ("timestamp", "messages[3].content")


TITLE = {"role": "system", "content": "Name this conversation in three words. Write nothing else, and no full stop."}


@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(lambda: [TITLE, turns(1)[1]], id="the first question under another system prompt"),
        pytest.param(
            lambda: [*turns(3), said("user", "a title for all this")], id="the whole conversation and one more"
        ),
        pytest.param(lambda: [TITLE, *turns(3)[1:]], id="the whole conversation under another system prompt"),
        pytest.param(lambda: edited(turns(3), 0, "10:04:33", "11:11:11"), id="the conversation with another clock"),
        pytest.param(lambda: [said("user", "something else altogether")], id="something else"),
    ],
)
def test_a_call_beside_the_line_does_not_poison_it(beside: Any) -> None:
    provider = Provider()
    provider.call(turns(2))
    provider.call(turns(3))

    provider.call(beside())
    record = provider.call(turns(4))

    assert record.drift is None
    assert record.reusable_tokens == size_of(turns(3))
    provider.call(beside())
    provider.call(beside())
    assert provider.call(turns(5)).drift is None


def test_a_title_under_its_own_system_prompt_is_another_prompt_and_no_drift() -> None:
    provider = Provider()
    provider.call(turns(1))

    record = provider.call([TITLE, turns(1)[1]])

    assert record.drift is None
    assert len({family.family for family in provider.ledger.report().families}) == 2


def test_agents_that_take_turns_are_told_from_each_other() -> None:
    provider = Provider()
    other = {"role": "system", "content": "You write SQL. " + "Prefer joins to subqueries, and name each column. " * 12}
    for turn in range(1, 6):
        assert provider.call(turns(turn), tools=TOOLS).drift is None
        assert provider.call([other, *turns(turn, "tables")[1:]], tools=TOOLS).drift is None


def test_conversations_at_once_keep_to_their_lines() -> None:
    provider = Provider()
    topics = [f"topic {number}" for number in range(8)]
    for turn in range(1, 5):
        sightings = [provider.sight(turns(turn, topic)) for topic in topics]
        for sighting in reversed(sightings):
            record = provider.settle(sighting)
            assert record.drift is None
            if turn > 1:
                assert record.reusable_tokens == size_of(turns(turn - 1, topics[0]))


def test_what_a_provider_keeps_itself_is_not_judged() -> None:
    provider = Provider()
    provider.call(turns(2), previous_response_id="resp_1", endpoint="/responses")

    record = provider.call(turns(2), cached=5_000, previous_response_id="resp_2", endpoint="/responses")

    assert (record.reusable_tokens, record.expected_tokens, record.drift) == (0, None, None)
    assert record.cached_tokens == 5_000


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": None}, {"messages": 17}, {"messages": ["odd", 3]}])
def test_odd_bodies_are_no_error(body: dict[str, Any]) -> None:
    ledger = Ledger()
    for now_ns in (1, 2, 3):
        sighting = ledger.sight(
            origin=ORIGIN, model=None, endpoint="/chat/completions", body=body, rules=RULES, now_ns=now_ns
        )
        record = sighting.settle(Usage(), answered=True, now_ns=now_ns)
    assert record.drift is None
    assert ledger.report().calls == 3


def everything_in(value: Any, seen: set[int]) -> Any:
    """All that hangs on an object."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    if isinstance(value, dict):
        inner: list[Any] = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    else:
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        inner = [getattr(value, name, None) for name in names] + list(getattr(value, "__dict__", {}).values())
    for one in inner:
        yield from everything_in(one, seen)


@pytest.mark.parametrize("kept_bytes", [0, 100_000])
def test_no_text_is_quoted_unasked_and_none_kept_with_0_bytes(kept_bytes: int) -> None:
    provider = Provider(kept_bytes=kept_bytes)
    secret = [*turns(2), said("assistant", SECRET), said("user", "go")]
    provider.call(secret)
    sighting = provider.sight(edited(secret, 0, "10:04:33", "10:09:59"))
    record = provider.settle(sighting)

    texts = [one for one in everything_in([provider.ledger, sighting], set()) if isinstance(one, str | bytes)]

    assert not any(SECRET in one for one in texts if isinstance(one, str))
    assert any(SECRET.encode() in one for one in texts if isinstance(one, bytes)) == (kept_bytes > 0)
    assert record.drift is not None
    assert SECRET not in repr(record)
    assert (record.drift.before, record.drift.after) == (None, None)


def test_the_body_is_left_as_it_is() -> None:
    ledger = Ledger()
    body = {"model": "m", "messages": turns(2), "tools": TOOLS}
    before = copy.deepcopy(body)

    for now_ns in range(3):
        sighting = ledger.sight(
            origin=ORIGIN, model="m", endpoint="/chat/completions", body=body, rules=RULES, now_ns=now_ns
        )
        sighting.settle(Usage(), answered=True, now_ns=now_ns)

    assert body == before


def test_memory_is_bounded_in_lines_and_families() -> None:
    provider = Provider(most_lines=40, most_segments=100)
    calls = 400
    for number in range(calls):
        provider.call(
            [
                {"role": "system", "content": " ".join(ascii_uppercase[(number >> bit) % 26] * 30 for bit in range(9))},
                said("user", f"question {number}"),
            ]
        )

    ledger = provider.ledger
    assert len(ledger._lines) <= 40
    assert len(ledger._lines._index) <= 100
    report = ledger.report()
    assert report.calls == calls
    assert len(report.families) <= 257
    assert sum(metric.value for metric in report.metrics() if metric.name.endswith("read_tokens")) == 0


def test_clearing_forgets_all() -> None:
    provider = Provider()
    provider.call(turns(2))
    in_flight = provider.sight(turns(3))

    provider.ledger.clear()

    assert provider.ledger.report().families == ()
    provider.settle(in_flight)
    assert provider.ledger.report().calls == 1
    assert provider.call(turns(4)).reusable_tokens == size_of(turns(3))


def test_threads_may_use_one_ledger_at_once() -> None:
    provider = Provider()
    ledger = provider.ledger
    problems: list[str] = []
    start = threading.Barrier(8)

    def converse(number: int) -> None:
        start.wait()
        for turn in range(1, 12):
            for _ in range(2):
                body = {"messages": turns(turn, f"thread {number}")}
                now_ns = turn * SECOND
                sighting = ledger.sight(
                    origin=ORIGIN, model="m", endpoint="/chat/completions", body=body, rules=RULES, now_ns=now_ns
                )
                usage = Usage(input_tokens=size_of(body["messages"]))
                record = sighting.settle(usage, answered=True, now_ns=now_ns)
                if record.drift is not None:
                    problems.append(str(record))
            if record.reusable_tokens != size_of(body["messages"]):
                problems.append(str(record))

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert problems == []
    assert ledger.report().calls == 8 * 11 * 2


WORDS = st.sampled_from(["alpha", "beta", "gamma"]).map(lambda word: said("user", word))


@settings(max_examples=60)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=8))
def test_no_less_is_reusable_than_what_an_earlier_prompt_begins_with(prompts: list[list[Any]]) -> None:
    provider = Provider()
    sent: list[list[Any]] = []
    for messages in prompts:
        common = 0
        for earlier in sent:
            count = 0
            while count < min(len(earlier), len(messages)) and earlier[count] == messages[count]:
                count += 1
            common = max(common, size_of(messages[:count]))
        record = provider.call(messages)
        assert common <= record.reusable_tokens <= record.prompt_tokens
        if record.drift is None:
            assert record.reusable_tokens == common
        sent.append(messages)


def test_a_conversation_that_was_sent_in_part_before_is_compared_with_what_it_was_last() -> None:
    provider = Provider()
    provider.call(turns(6))
    provider.call(turns(4))  # once more from an earlier point: what follows goes on from all of this
    provider.call(turns(6))

    edited = turns(7)
    edited[9] = {**edited[9], "content": edited[9]["content"] + "  "}
    drift = provider.call(edited).drift

    assert drift is not None
    assert (drift.kind, drift.path) == ("whitespace", "messages[9].content")


def test_a_call_beside_the_line_that_quotes_its_longest_message_is_not_what_the_next_turn_departs_from() -> None:
    provider, asked = Provider(), said("user", "The whole story of the lost bag, from the beginning. " * 40)
    provider.call([SYSTEM, asked, *turns(3)[1:]], tools=TOOLS)
    provider.call([said("system", "Name this conversation in five words."), asked])

    drift = provider.call([SYSTEM, asked, *turns(4)[1:]], tools=TOOLS[::-1]).drift

    assert drift is not None
    assert drift.kind == "reordered_tools"


def test_a_long_history_of_which_the_last_turn_is_left_was_compacted() -> None:
    provider, long = Provider(), turns(12)
    provider.call(long)
    said_since = [said("assistant", "A long answer to that. " * 60), said("user", "And now?")]

    drift = provider.call([SYSTEM, said("user", "A summary."), *long[-3:], *said_since]).drift

    assert drift is not None
    assert (drift.kind, drift.path) == ("compacted", "messages[1]")


def test_where_the_keys_of_all_tools_are_in_another_order_all_of_them_are_lost() -> None:
    def tool(name: str, *, backwards: bool) -> dict[str, Any]:
        properties = {f"{name} {number}": {"description": "What it is. " * 20} for number in range(4)}
        if backwards:
            properties = dict(reversed(properties.items()))
        parameters = {"type": "object", "properties": properties}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    names = ["find", "book", "cancel"]
    provider = Provider()
    provider.call(turns(3), tools=[tool(name, backwards=False) for name in names])

    record = provider.call(turns(3), cached=0, tools=[tool(name, backwards=True) for name in names])

    assert record.drift is not None
    assert record.drift.kind == "reordered_keys"
    assert record.drift.tokens_lost > 0.9 * record.prompt_tokens


def test_a_key_that_is_added_once_the_provider_is_known_is_no_drift() -> None:
    provider = Provider()
    provider.call(turns(3))

    assert provider.call(turns(4), key="fl-1").drift is None
    assert provider.call(turns(4), cached=0, key="fl-2").drift is not None
