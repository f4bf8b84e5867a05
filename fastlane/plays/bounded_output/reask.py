"""Make the request that asks a model again for an answer that was not valid, and says what was wrong with it.

It only appends, so that the provider's prompt cache holds the first request. The sentences
around what was wrong are always the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastlane.protocol.answer_texts import AnswerText
from fastlane.protocol.endpoints import CHAT, RESPONSES

from .validation import Problem, encodable

_WRONG = "Your last answer is not valid. What is wrong with it:\n"
_AGAIN = "\nGive the whole answer again, corrected: only the answer itself, in the form that was asked for."
_WRONG_CALL = "The tool was not called, because the arguments of this call are not valid. What is wrong with them:\n"
_CALL_AGAIN = "\nMake the call again, corrected."
_UNCALLED = "The tool was not called, because the answer around this call is not valid. Make this call again as it was."

_EMPTY = "(no text)"

# Engines read the arguments of an earlier call as a JSON object for their templates, and several answer with an error
# if they are none (vllm-project/vllm#43995, sgl-project/sglang#28035; looked up on 2026-11-22).
_UNREADABLE = "arguments_that_are_not_valid_json"

Judged = tuple[AnswerText, Problem | None]
"""A text of an answer, and what is wrong with it."""


def ask_again(
    body: Mapping[str, Any], endpoint: str, answer: Sequence[Judged], problem: Problem
) -> dict[str, Any] | None:
    """Return the request that asks again; None where it cannot be asked again. `body` is never changed.

    `answer` is all texts of the answer, and `problem` what to say of its content where none of them has one. None is
    returned for a body whose messages or input cannot be appended to, for one of a `conversation`, which holds question
    and answer already, and for an answer that calls other tools than functions.
    """
    field = {CHAT: "messages", RESPONSES: "input"}.get(endpoint, "")
    given = body.get(field)
    if isinstance(given, str) and endpoint == RESPONSES:
        given = [{"role": "user", "content": given}]
    is_answerable = all(text.kind != "tool_call" or text.form == "function" for text, _ in answer)
    if not isinstance(given, list | tuple) or body.get("conversation") is not None or not is_answerable:
        return None
    texts = list(answer)
    if not any(wrong is not None for _, wrong in texts):
        texts = [(text, problem if text.kind != "tool_call" else None) for text, _ in texts]
    contents = [text.text for text, _ in texts if text.kind != "tool_call" and text.text.strip()]
    wrong = next((wrong for text, wrong in texts if text.kind != "tool_call" and wrong is not None), None)
    if wrong is None and not any(wrong is not None for _, wrong in texts):
        wrong = problem
    calls = [judged for judged in texts if judged[0].kind == "tool_call"]
    turns = _chat_turns(contents, calls) if endpoint == CHAT else _response_items(contents, calls)
    if wrong is not None:
        turns.append({"role": "user", "content": encodable(f"{_WRONG}{wrong.advice}{_AGAIN}")})
    return {**body, field: [*given, *turns]}


def _chat_turns(contents: Sequence[str], calls: Sequence[Judged]) -> list[dict[str, Any]]:
    answer: dict[str, Any] = {"role": "assistant", "content": _content(contents) if contents or not calls else None}
    turns = [answer]
    for position, (text, wrong) in enumerate(calls):
        call_id = text.call_id or f"call_{position}"
        function = {"name": text.name or "tool", "arguments": _arguments(text)}
        answer.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})
        turns.append({"role": "tool", "tool_call_id": call_id, "content": _call_result(wrong)})
    return turns


def _response_items(contents: Sequence[str], calls: Sequence[Judged]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (
        [{"role": "assistant", "content": _content(contents)}] if contents or not calls else []
    )
    results: list[dict[str, Any]] = []
    for position, (text, wrong) in enumerate(calls):
        call_id = text.call_id or f"call_{position}"
        # Without ids of their own: one that has its id is refused without the reasoning that it came with.
        call = {"type": "function_call", "call_id": call_id, "name": text.name or "tool", "arguments": _arguments(text)}
        items.append(call)
        results.append({"type": "function_call_output", "call_id": call_id, "output": _call_result(wrong)})
    return [*items, *results]


def _content(contents: Sequence[str]) -> str:
    # White space at its end is what an answer ran on in, and is paid for again.
    return encodable("\n".join(contents).rstrip()) or _EMPTY


def _call_result(wrong: Problem | None) -> str:
    return _UNCALLED if wrong is None else encodable(f"{_WRONG_CALL}{wrong.advice}{_CALL_AGAIN}")


def _arguments(text: AnswerText) -> str:
    """Return the arguments as an engine's template can read them."""
    try:
        if isinstance(json.loads(text.text), dict):
            return encodable(text.text)
    except (ValueError, RecursionError):
        pass
    return json.dumps({_UNREADABLE: encodable(text.text)}, ensure_ascii=False)
