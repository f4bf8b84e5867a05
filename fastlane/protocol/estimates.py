"""Estimate the tokens of a prompt and of an answer that their provider did not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ..knowledge.tokens import Counter
from .answer_texts import answer_texts
from .content import REASONING_FIELDS
from .endpoints import CHAT, RESPONSES
from .fields import listed
from .request_fields import wanted_of


def prompt_tokens(body: Mapping[str, Any], counting: Counter) -> int:
    """Return the tokens of everything that the model is shown."""
    prompt = body.get("messages", body.get("input", body.get("prompt", "")))
    beside = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    messages: Any = [*beside, *(prompt if isinstance(prompt, list) else [str(prompt)])]
    return counting.messages(messages, body.get("tools") or ()) + _schema_tokens(body, counting)


def answer_tokens(answer: Mapping[str, Any], endpoint: str, counting: Counter) -> int:
    """Return the tokens of a whole answer's texts, and of its visible reasoning."""
    texts = [one.text for one in answer_texts(answer, endpoint)]
    return sum(map(counting.text, (*texts, *_reasoning(answer))))


def _schema_tokens(body: Mapping[str, Any], counting: Counter) -> int:
    """Return the tokens of the schema, which the model is shown beside the prompt."""
    wanted = wanted_of(body, CHAT if "response_format" in body else RESPONSES)
    return 0 if wanted.schema is None else counting.text(orjson.dumps(wanted.schema).decode())


def _reasoning(answer: Mapping[str, Any]) -> Iterator[str]:
    for choice in listed(answer.get("choices")):
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if isinstance(message, Mapping):
            thought = next(filter(None, map(message.get, REASONING_FIELDS)), None)
            if isinstance(thought, str):
                yield thought
