"""Estimate what a call has taken where its provider does not say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from fastlane.knowledge.tokens import Counter
from fastlane.protocol.answer_texts import answer_texts
from fastlane.protocol.content import REASONING_FIELDS
from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import wanted_of


def prompt_tokens(body: Mapping[str, Any], counting: Counter) -> int:
    """Tokens of all that the model is shown."""
    prompt = body.get("messages", body.get("input", body.get("prompt", "")))
    beside = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    listed: Any = [*beside, *(prompt if isinstance(prompt, list) else [str(prompt)])]
    return counting.messages(listed, body.get("tools") or ()) + _of_the_form(body, counting)


def answer_tokens(answer: Mapping[str, Any], endpoint: str, counting: Counter) -> int:
    """Tokens of a whole answer's texts, and of what can be seen of its reasoning."""
    texts = [one.text for one in answer_texts(answer, endpoint)]
    return sum(map(counting.text, (*texts, *_reasoning(answer))))


def _of_the_form(body: Mapping[str, Any], counting: Counter) -> int:
    """Tokens of the schema, which the model is shown beside the prompt."""
    wanted = wanted_of(body, CHAT if "response_format" in body else RESPONSES)
    return 0 if wanted.schema is None else counting.text(orjson.dumps(wanted.schema).decode())


def _reasoning(answer: Mapping[str, Any]) -> Iterator[str]:
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if isinstance(message, Mapping):
            thought = next((message[name] for name in REASONING_FIELDS if message.get(name)), None)
            if isinstance(thought, str):
                yield thought
