"""Make the request that asks a model again for an answer that was not valid, and says what was wrong with it.

It only appends: what the first request said stays as it was, so that a cache of prompts holds it. The sentences
around what was wrong are always the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastlane.protocol.answer_texts import AnswerText
from fastlane.protocol.endpoints import CHAT, RESPONSES

from .validation import Problem, sayable

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


def asking_again(
    body: Mapping[str, Any], endpoint: str, answer: str | Sequence[Judged], problem: Problem, *, cut: bool = False
) -> dict[str, Any] | None:
    """Return the request that asks again; None where it cannot be asked again. `body` is never changed.

    `answer` is the content that was not valid, or all texts of an answer that calls tools or has several choices, each
    with what is wrong with it: of these the first choice that is not valid is shown, and `n` becomes 1, because one
    answer is asked for, to be put in that choice's place. `problem` is what to say where none of the texts has one.
    `cut`: the answer's stream was closed before its end.

    None is returned for a body whose messages, input or prompt cannot be appended to, such as a prompt of token ids,
    and for a `conversation` whose answer was cut: nobody knows whether the question stands in it already.
    """
    texts = _judged(answer, problem, endpoint)
    changed: dict[str, Any] | None
    if endpoint == CHAT:
        given = body.get("messages")
        changed = {"messages": [*given, *_chat_turn(texts)]} if isinstance(given, list | tuple) else None
    elif endpoint == RESPONSES:
        changed = _responses_input(body, texts, cut=cut)
    else:
        prompt = _longer_prompt(body.get("prompt"), texts)
        changed = None if prompt is None else {"prompt": prompt}
    if changed is None:
        return None
    again = {**body, **changed}
    if isinstance(again.get("n"), int) and again["n"] > 1:
        again["n"] = 1
    return again


def with_choice(answer: Mapping[str, Any], other: Mapping[str, Any], choice: int) -> dict[str, Any]:
    """Return a chat or completions answer in which the choice of this index is the first one of another answer.

    Everything else is the first answer's, `usage` too. An answer without such a choice comes back as it was.
    """
    given, others = answer.get("choices"), other.get("choices")
    if not isinstance(given, list) or not isinstance(others, list) or not others or not isinstance(others[0], Mapping):
        return dict(answer)
    choices = [
        {**others[0], "index": choice} if isinstance(each, Mapping) and each.get("index", position) == choice else each
        for position, each in enumerate(given)
    ]
    return {**answer, "choices": choices}


def _judged(answer: str | Sequence[Judged], problem: Problem, endpoint: str) -> list[Judged]:
    """The texts of one choice, of which at least one has something wrong with it."""
    if isinstance(answer, str):
        return [(AnswerText("content", answer, (0,)), problem)]
    texts = sorted(answer, key=lambda judged: judged[0].where)
    if endpoint != RESPONSES and texts:
        choice = next((text.where[0] for text, wrong in texts if wrong is not None), texts[0][0].where[0])
        texts = [judged for judged in texts if judged[0].where[0] == choice]
    if any(wrong is not None for _, wrong in texts):
        return texts
    if not any(text.kind == "content" for text, _ in texts):
        return [*texts, (AnswerText("content", "", (0,)), problem)]
    return [(text, problem if text.kind == "content" else None) for text, _ in texts]


def _said(text: str) -> str:
    # White space at its end is what an answer ran on in, and is paid for again.
    return sayable(text.rstrip()) or _EMPTY


def _correction(problem: Problem) -> str:
    return sayable(f"{_WRONG}{problem.advice}{_AGAIN}")


def _call_result(problem: Problem | None) -> str:
    return _UNCALLED if problem is None else sayable(f"{_WRONG_CALL}{problem.advice}{_CALL_AGAIN}")


def _arguments(text: AnswerText) -> str:
    """The arguments as an engine's template can read them."""
    if text.form == "custom":
        return sayable(text.text)
    try:
        if isinstance(json.loads(text.text), dict):
            return sayable(text.text)
    except (ValueError, RecursionError):
        pass
    return json.dumps({_UNREADABLE: sayable(text.text)}, ensure_ascii=False)


def _contents(texts: Sequence[Judged]) -> tuple[str, Problem | None]:
    """The content of an answer, and what is wrong with it."""
    said = [text.text for text, _ in texts if text.kind != "tool_call" and text.text.strip()]
    wrong = [problem for text, problem in texts if text.kind != "tool_call" and problem is not None]
    return "\n".join(said), wrong[0] if wrong else None


def _calls(texts: Sequence[Judged]) -> list[tuple[AnswerText, Problem | None, str]]:
    calls = [judged for judged in texts if judged[0].kind == "tool_call"]
    return [(text, wrong, text.call_id or f"call_{position}") for position, (text, wrong) in enumerate(calls)]


def _chat_turn(texts: Sequence[Judged]) -> list[dict[str, Any]]:
    content, wrong = _contents(texts)
    calls = _calls(texts)
    said: dict[str, Any] = {"role": "assistant", "content": _said(content) if content or not calls else None}
    results: list[dict[str, Any]] = []
    for text, problem, call_id in calls:
        name = text.name or "tool"
        if text.form == "older":
            said["function_call"] = {"name": name, "arguments": _arguments(text)}
            results.append({"role": "function", "name": name, "content": _call_result(problem)})
            continue
        inner = {"name": name, "input" if text.form == "custom" else "arguments": _arguments(text)}
        said.setdefault("tool_calls", []).append({"id": call_id, "type": text.form, text.form: inner})
        results.append({"role": "tool", "tool_call_id": call_id, "content": _call_result(problem)})
    asks = [] if wrong is None else [{"role": "user", "content": _correction(wrong)}]
    return [said, *results, *asks]


def _longer_prompt(prompt: Any, texts: Sequence[Judged]) -> str | None:
    if isinstance(prompt, list | tuple) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        return None
    content, wrong = _contents(texts)
    return None if wrong is None else f"{prompt}{_said(content)}\n\n{_correction(wrong)}\n\n"


def _responses_input(body: Mapping[str, Any], texts: Sequence[Judged], *, cut: bool) -> dict[str, Any] | None:
    """The input of a request that asks again.

    With `previous_response_id` the answer that was not valid is appended, and the chain goes on from where it stood:
    that needs no stored answer, and one whose stream was closed may not be. A `conversation` holds question and answer
    by now, so that only the correction is sent; it stays in there, as the answer does.
    """
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if given is None:
        given = []
    if not isinstance(given, list | tuple):
        return None
    content, wrong = _contents(texts)
    calls = _calls(texts)
    said: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    if content or not calls:
        said.append({"role": "assistant", "content": _said(content)})
    for text, problem, call_id in calls:
        custom = text.form == "custom"
        kind = "custom_tool_call" if custom else "function_call"
        # Without ids of their own: one that has its id is refused without the reasoning that it came with.
        inner = {"name": text.name or "tool", "input" if custom else "arguments": _arguments(text)}
        said.append({"type": kind, "call_id": call_id, **inner})
        results.append({"type": f"{kind}_output", "call_id": call_id, "output": _call_result(problem)})
    if wrong is not None:
        results.append({"role": "user", "content": _correction(wrong)})
    if body.get("conversation") is not None:
        return None if cut else {"input": results}
    return {"input": [*given, *said, *results]}
