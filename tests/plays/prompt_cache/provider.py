"""A provider for tests of the history of prompts: it counts a token for each byte of a prompt's JSON."""

from __future__ import annotations

import copy
import json
from datetime import date
from types import SimpleNamespace
from typing import Any

from fastlane import Call, PromptCache
from fastlane.plays.prompt_cache.history import PromptHistory, SentPrompt
from fastlane.providers import Fact, ProviderFacts
from fastlane.records import Usage

CHAT = "/chat/completions"
ORIGIN = "https://api.example.com:443"
SECOND_NS = 10**9


def fact(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://example.com/docs", checked=date(2026, 11, 22), evidence="documented")


def facts(**cache: Any) -> ProviderFacts:
    """Facts of a provider that keeps prompts of 1,024 tokens and more for five minutes; `cache` says otherwise."""
    known = {"automatic": True, "minimum_tokens": 1024, "block_tokens": 128, "lifetime_s": 300.0} | cache
    made: dict[str, Any] = {name: fact(value) for name, value in known.items() if value is not None}
    parameters = {"prompt_cache_key": fact(True)} if "key_field" in cache else {}
    return ProviderFacts.model_validate({"slug": "example", "cache": made, "parameters": parameters})


def call(body: dict[str, Any], **changed: Any) -> Call:
    fields: dict[str, Any] = {"call_id": "1", "endpoint": CHAT, "origin": ORIGIN, "stream": True}
    return Call(body=body, **(fields | changed))


def planned_by(play: PromptCache, given: Call) -> Call:
    """Return a call as the play plans it."""
    session = play.open(given)
    return given if session is None else session.plan(given)


SMALL = facts(minimum_tokens=256, block_tokens=64)


class Provider:
    """Sends prompts to a history, and counts and reads what the test says."""

    def __init__(self, *, kept_bytes: int = 1 << 23, **settings: Any) -> None:
        self.history = PromptHistory(kept_bytes=kept_bytes, **settings)
        self.now_ns = 0

    def sent(
        self,
        messages: Any,
        *,
        known: ProviderFacts | None = SMALL,
        key: str | None = None,
        shards: int = 1,
        origin: str = ORIGIN,
        endpoint: str = CHAT,
        **body: Any,
    ) -> SentPrompt:
        self.now_ns += SECOND_NS
        name = "input" if endpoint == "/responses" else "messages"
        # As from another process: no object is the one that was sent before.
        body = json.loads(json.dumps({"model": "large", name: messages, **body}))
        given = call(body, facts=known, origin=origin, endpoint=endpoint, issued_ns=self.now_ns)
        prompt = self.history.read(given)
        prompt.key, prompt.shards = key, shards
        self.history.expect(prompt)
        return prompt

    def answer(
        self, prompt: SentPrompt, cached: int | None = None, *, answered: bool = True, reason: str | None = None
    ) -> Any:
        usage = Usage(input_tokens=prompt.size, cached_tokens=cached) if answered else Usage()
        self.now_ns += SECOND_NS
        return settled(self.history, prompt, usage, status=200 if answered else None, now_ns=self.now_ns, reason=reason)

    def call(self, messages: Any, cached: int | None = None, **options: Any) -> Any:
        return self.answer(self.sent(messages, **options), cached)


def settled(
    history: PromptHistory,
    prompt: SentPrompt,
    usage: Usage,
    *,
    now_ns: int,
    status: int | None = 200,
    reason: str | None = None,
) -> Any:
    """End a prompt's call, and return the section of its record."""
    outcome: Any = SimpleNamespace(status_code=status, usage=usage, ended_ns=now_ns, cache_reason=reason)
    history.enter(prompt, outcome)
    return history.settle(prompt, outcome)


def text_of(prompt: SentPrompt) -> bytes:
    """Return what is read of a prompt, as JSON."""
    body, start, stop = prompt.kept
    return prompt.head.text + body[start:stop]


def size_of(messages: list[Any], **body: Any) -> int:
    """Return the bytes, and so the tokens, of a prompt."""
    return PromptHistory(kept_bytes=0).read(call({"model": "large", "messages": messages, **body})).size


SYSTEM = {
    "role": "system",
    "content": "It is 2025-03-03T10:04:33Z. "
    + " ".join(
        f"Rule {letter}: help the caller with {letter * 3} as kindly as can be." for letter in "abcdefghijklmnop"
    ),
}


def message_of(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": f"{text}: " + f"all that there is to say about {text}. " * 8}


def turns(count: int, topic: str = "fares") -> list[dict[str, Any]]:
    """A conversation up to the question of a turn, counted from 1."""
    messages: list[dict[str, Any]] = [SYSTEM]
    for turn in range(count):
        messages += [message_of("user", f"{topic} question {turn}"), message_of("assistant", f"{topic} answer {turn}")]
    return messages[:-1]


def edited(messages: list[Any], index: int, old: str, new: str) -> list[Any]:
    messages = copy.deepcopy(messages)
    assert old in messages[index]["content"]
    messages[index]["content"] = messages[index]["content"].replace(old, new, 1)
    return messages
