"""A provider for tests of the history of prompts: it counts a token for each byte of a prompt's JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from fastlane import Call, PromptCache
from fastlane.providers import ProviderFacts
from fastlane.records import Usage
from tests.plays.facts import fact

CHAT = "/chat/completions"
ORIGIN = "https://api.example.com:443"
SECOND_NS = 10**9


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


class SentPrompt:
    """A prompt that the play has seen sent, and that waits for its answer."""

    def __init__(self, play: PromptCache, given: Call) -> None:
        session = play.open(given)
        assert session is not None
        session.plan(given)
        self.session: Any = session
        self.size = len(prompt_text(given.body))

    def end(self, usage: Usage, now_ns: int, reason: str | None = None) -> Any:
        """End the call with a response, and return the section of its record."""
        outcome: Any = SimpleNamespace(status_code=200, usage=usage, ended_ns=now_ns, cache_reason=reason, refused=())
        return self.session.close(outcome)(outcome)


class Provider:
    """Sends prompts through a play, and counts and reads what the test says."""

    def __init__(self, **settings: Any) -> None:
        self.play = PromptCache(key=False, **settings)
        self.now_ns = 0

    def sent(
        self, messages: Any, *, known: ProviderFacts | None = SMALL, endpoint: str = CHAT, **body: Any
    ) -> SentPrompt:
        self.now_ns += SECOND_NS
        name = "input" if endpoint == "/responses" else "messages"
        # As from another process: no object is the one that was sent before.
        body = json.loads(json.dumps({"model": "large", name: messages, **body}))
        return SentPrompt(self.play, call(body, facts=known, endpoint=endpoint, issued_ns=self.now_ns))

    def answer(self, prompt: SentPrompt, cached: int | None = None, *, reason: str | None = None) -> Any:
        self.now_ns += SECOND_NS
        return prompt.end(Usage(input_tokens=prompt.size, cached_tokens=cached), self.now_ns, reason)

    def call(self, messages: Any, cached: int | None = None, **options: Any) -> Any:
        return self.answer(self.sent(messages, **options), cached)


def prompt_text(body: Mapping[str, Any]) -> bytes:
    """Return what is compared of a prompt, as JSON: what comes before its messages, and these."""
    head = {name: body[name] for name in ("tools", "instructions", "text", "response_format") if body.get(name)}
    messages = body.get("messages", body.get("input"))
    texts = (json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in (head, messages))
    return "".join(texts)[:-1].encode("utf-8", "surrogatepass")


def size_of(messages: list[Any], **body: Any) -> int:
    """Return the bytes, and so the tokens, of a prompt."""
    return len(prompt_text({"messages": messages, **body}))


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
