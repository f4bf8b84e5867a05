"""Ask the model to continue the text of a broken chat completion."""

from __future__ import annotations

from typing import Any

from fastlane.engine.call import Call
from fastlane.protocol.endpoints import CHAT
from fastlane.protocol.fields import field
from fastlane.providers.facts import value_of

_LIMITS = ("max_tokens", "max_completion_tokens")


def why_not_continued(call: Call, *, only_text: bool, text: str) -> str | None:
    """Return why the answer to a call cannot be continued after `text`; None if it can.

    `only_text`: all that has been received is text.
    """
    body = call.body
    messages = body.get("messages")
    if call.endpoint != CHAT:
        return "only chat completions can be continued, and responses with background=True resumed"
    if not only_text or not text.strip():
        return "the answer is not text alone"
    if body.get("n") not in (None, 1):
        return "the call asks for several answers"
    if body.get("logprobs"):
        return "the call asks for log probabilities"
    form = body.get("response_format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        return "the answer is structured"
    if not isinstance(messages, list | tuple) or not messages or field(messages[-1], "role") == "assistant":
        return "the request ends with an answer itself"
    if value_of(None if call.facts is None else call.facts.continued_by) is None:
        return "the provider is not known to continue an answer"
    return None


def continued(call: Call, text: str, tokens: int) -> Call:
    """Return the call that continues its answer after `text`, which has at least `tokens` tokens."""
    assert call.facts is not None
    by = value_of(call.facts.continued_by)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    fields: dict[str, Any] = {"messages": [*call.body["messages"], message]}
    if by == "prefix":
        message["prefix"] = True
    elif by == "continue_final_message":
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
    for name in _LIMITS:
        limit = call.body.get(name)
        if isinstance(limit, int):
            fields[name] = max(1, limit - tokens)
    return call.with_body(f"asked to continue the answer after {len(text):,} characters", **fields)
