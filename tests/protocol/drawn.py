"""Answers drawn at random, each as a provider sends it unstreamed and in one possible stream."""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

from hypothesis import strategies as st

TEXTS = st.text('ab{}": ,\n\\é漢😀', max_size=24)
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m", "service_tier": "default", "system_fingerprint": "fp"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}


class Drawn(NamedTuple):
    """One answer in both forms."""

    whole: dict[str, Any]
    events: list[dict[str, Any]]


def split(draw: st.DrawFn, text: str) -> list[str]:
    """A text in pieces; "" is one piece."""
    cuts = sorted(draw(st.sets(st.integers(1, len(text) - 1), max_size=5))) if len(text) > 1 else []
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _logprob(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}


def merged(draw: st.DrawFn, sequences: list[list[Any]]) -> list[Any]:
    """All elements, those of one sequence in their order."""
    order = draw(st.permutations([number for number, one in enumerate(sequences) for _ in one]))
    left = [list(one) for one in sequences]
    return [left[number].pop(0) for number in order]


class _Choice(NamedTuple):
    whole: dict[str, Any]
    pieces: list[dict[str, Any]]


def _tool_pieces(draw: st.DrawFn, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The deltas of all calls, which may come mixed and several in a chunk; a call begins with its id and name."""
    sequences = []
    for index, call in enumerate(calls):
        arguments = split(draw, call["function"]["arguments"])
        first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        if draw(st.booleans()):
            first["function"]["arguments"] = arguments.pop(0)
        more = [{"index": index, "function": {"arguments": piece}} for piece in arguments]
        sequences.append([first, *more])
    begun: list[Any] = [sequence.pop(0) for sequence in sequences] if draw(st.booleans()) else []
    mixed = merged(draw, sequences) if begun else [piece for sequence in sequences for piece in sequence]
    deltas = [{"tool_calls": [piece]} for piece in begun + mixed]
    if len(deltas) > 1 and draw(st.booleans()):
        deltas[:2] = [{"tool_calls": deltas[0]["tool_calls"] + deltas[1]["tool_calls"]}]
    return deltas


def _choice(draw: st.DrawFn, index: int) -> _Choice:
    kind = draw(st.sampled_from(("content", "content", "refusal", "tools")))
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    pieces: list[dict[str, Any]] = []
    logprobs: dict[str, Any] | None = None
    reasoning = draw(st.none() | TEXTS.filter(bool))
    if reasoning:
        field = draw(st.sampled_from(("reasoning_content", "reasoning")))
        message[field] = reasoning
        pieces += [{"delta": {field: piece}} for piece in split(draw, reasoning)]
    if kind == "tools":
        calls = [
            {"id": f"call_{index}_{n}", "type": "function", "function": {"name": f"f{n}", "arguments": draw(TEXTS)}}
            for n in range(draw(st.integers(1, 3)))
        ]
        message["tool_calls"] = calls
        pieces += [{"delta": delta} for delta in _tool_pieces(draw, copy.deepcopy(calls))]
    else:
        text = draw(TEXTS if kind == "content" else TEXTS.filter(bool))
        message[kind] = text
        has_logprobs = kind == "content" and draw(st.booleans())
        texts = split(draw, text)
        pieces += [
            {
                "delta": {kind: piece},
                **({"logprobs": {"content": [_logprob(piece)], "refusal": None}} if has_logprobs else {}),
            }
            for piece in texts
        ]
        logprobs = {"content": [_logprob(piece) for piece in texts], "refusal": None} if has_logprobs else None
    reason = draw(st.sampled_from(("tool_calls" if kind == "tools" else "stop", "length")))
    opening = {"role": "assistant", "content": "" if kind == "content" else None, "refusal": None}
    pieces.insert(0, {"delta": opening})
    if draw(st.booleans()):
        pieces[-1] = {**pieces[-1], "finish_reason": reason}
    else:
        pieces.append({"delta": {}, "finish_reason": reason})
    if draw(st.booleans()):
        pieces = [{"logprobs": None, "finish_reason": None, **piece} for piece in pieces]
    whole = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}
    return _Choice(whole, [{"index": index, **piece} for piece in pieces])


@st.composite
def chat_answers(draw: st.DrawFn) -> Drawn:
    """A chat completion and its chunks, as many providers would send them."""
    choices = [_choice(draw, index) for index in range(draw(st.integers(1, 3)))]
    head: dict[str, Any] = {**HEAD, "object": "chat.completion.chunk"}
    # Every choice begins before any goes on.
    first = [[choice.pieces.pop(0)] for choice in choices]
    rest = [[piece] for piece in merged(draw, [choice.pieces for choice in choices])]
    events: list[dict[str, Any]] = [{**head, "choices": pieces} for pieces in [*first, *rest]]
    extra: dict[str, Any] = draw(
        st.sampled_from(({}, {"time_info": {"queue_time": 0.1}}, {"x_extra": {"id": "req_1"}}))
    )
    manner = draw(st.sampled_from(("own", "every", "last", "nested")))
    if manner == "own":
        events = [{**event, "usage": None} for event in events]
        events.append({**head, "choices": [], "usage": USAGE, **extra})
    elif manner == "every":
        events = [{**event, "usage": {**USAGE, "completion_tokens": n}, **extra} for n, event in enumerate(events)]
        events[-1]["usage"] = USAGE
    elif manner == "last":
        events[-1] |= {"usage": USAGE, **extra}
    else:
        events[0] |= {"x_told": {"id": "req_2"}}
        events[-1] |= {"x_told": {"id": "req_2", "usage": USAGE}, **extra}
        extra = {**extra, "x_told": {"id": "req_2"}}
    if draw(st.booleans()):
        about_the_prompt = {**head, "id": "", "model": "", "created": 0, "choices": [], "prompt_notes": [{"index": 0}]}
        events.insert(0, about_the_prompt)
        extra = {**extra, "prompt_notes": [{"index": 0}]}
    if draw(st.booleans()):
        events = [{**event, "obfuscation": "xyz"} for event in events]
    answer = {**HEAD, "object": "chat.completion", "choices": [choice.whole for choice in choices], "usage": USAGE}
    return Drawn({**answer, **extra}, events)


@st.composite
def completions(draw: st.DrawFn) -> Drawn:
    """A legacy completion and its events."""
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    whole, streams = [], []
    for index in range(draw(st.integers(1, 3))):
        text, has_logprobs = draw(TEXTS), draw(st.booleans())
        pieces = split(draw, text)
        starts = [sum(map(len, pieces[:at])) for at in range(len(pieces))]
        logprobs = [
            {"tokens": [piece], "token_logprobs": [-0.5], "top_logprobs": None, "text_offset": [start]}
            for piece, start in zip(pieces, starts, strict=True)
        ]
        all_of_them = {"tokens": pieces, "token_logprobs": [-0.5 for _ in pieces], "text_offset": starts}
        reason = draw(st.sampled_from(("stop", "length")))
        whole.append({"index": index, "text": text, "finish_reason": reason})
        whole[-1]["logprobs"] = {**all_of_them, "top_logprobs": None} if has_logprobs else None
        stream = [
            {"index": index, "text": piece, "logprobs": one if has_logprobs else None, "finish_reason": None}
            for piece, one in zip(pieces, logprobs, strict=True)
        ]
        streams.append([*stream, {"index": index, "text": "", "logprobs": None, "finish_reason": reason}])
    events = [{**head, "choices": [piece]} for piece in merged(draw, streams)]
    if draw(st.booleans()):
        events.append({**head, "choices": [], "usage": USAGE})
    else:
        events[-1]["usage"] = USAGE
    return Drawn({**head, "choices": whole, "usage": USAGE}, events)


def _item(draw: st.DrawFn, index: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An item of a response's output, and its events."""
    kind = draw(st.sampled_from(("message", "message", "function_call", "custom_tool_call", "reasoning", "search")))
    id_ = f"{kind}_{index}"
    where: dict[str, Any] = {"item_id": id_, "output_index": index}
    events: list[dict[str, Any]] = []
    item: dict[str, Any] = {"id": id_, "type": kind, "status": "completed"}
    begun: dict[str, Any] = {**item, "status": "in_progress"}
    if kind == "message":
        item |= {"role": "assistant", "content": []}
        for at in range(draw(st.integers(1, 2))):
            part, part_events = _part(draw, {**where, "content_index": at})
            item["content"].append(part)
            events += part_events
        begun |= {"role": "assistant", "content": []}
    elif kind in ("function_call", "custom_tool_call"):
        field, name = (
            ("arguments", "function_call_arguments") if kind == "function_call" else ("input", f"{kind}_input")
        )
        item |= {"call_id": f"call_{index}", "name": "f", field: draw(TEXTS)}
        begun |= {**item, "status": "in_progress", field: ""}
        events += [{"type": f"response.{name}.delta", "delta": piece, **where} for piece in split(draw, item[field])]
        events.append({"type": f"response.{name}.done", field: item[field], "name": "f", **where})
    elif kind == "reasoning":
        item |= {"summary": [{"type": "summary_text", "text": draw(TEXTS)}], "content": []}
        begun |= {"summary": [], "content": []}
        indexes: dict[str, Any] = {**where, "summary_index": 0}
        empty, text = {"type": "summary_text", "text": ""}, item["summary"][0]["text"]
        summary = "response.reasoning_summary"
        events.append({"type": f"{summary}_part.added", "part": empty, **indexes})
        events += [{"type": f"{summary}_text.delta", "delta": piece, **indexes} for piece in split(draw, text)]
        events.append({"type": f"{summary}_text.done", "text": text, **indexes})
        events.append({"type": f"{summary}_part.done", "part": item["summary"][0], **indexes})
    else:
        item["type"] = begun["type"] = "web_search_call"
        item["action"] = {"type": "search", "query": "rivers"}
        events.append({"type": "response.web_search_call.searching", **where})
    added = {"type": "response.output_item.added", "output_index": index, "item": begun}
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    return item, [added, *events, done]


def _part(draw: st.DrawFn, at: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = draw(TEXTS)
    if draw(st.integers(0, 4)) == 0:
        part: dict[str, Any] = {"type": "refusal", "refusal": text}
        name, field, more, events = "refusal", "refusal", {}, []
    else:
        has_logprobs = draw(st.booleans())
        texts = split(draw, text)
        logprobs = [_logprob(piece) for piece in texts] if has_logprobs else []
        notes = [{"type": "url_citation", "url": "https://example.com", "start_index": 0, "end_index": 1, "title": "t"}]
        notes = notes if draw(st.booleans()) else []
        part = {"type": "output_text", "text": text, "annotations": notes, "logprobs": logprobs}
        name, field, more = "output_text", "text", {"logprobs": logprobs}
        events = [
            {"type": "response.output_text.annotation.added", "annotation": note, "annotation_index": n, **at}
            for n, note in enumerate(notes)
        ]
        events = [
            {
                "type": "response.output_text.delta",
                "delta": piece,
                "logprobs": [_logprob(piece)] if has_logprobs else [],
                **at,
            }
            for piece in texts
        ] + events
    if name == "refusal":
        events = [{"type": "response.refusal.delta", "delta": piece, **at} for piece in split(draw, text)]
    empty = {name: ([] if isinstance(value, list) else value) for name, value in part.items()} | {field: ""}
    return part, [
        {"type": "response.content_part.added", "part": empty, **at},
        *events,
        {"type": f"response.{name}.done", field: text, **more, **at},
        {"type": "response.content_part.done", "part": part, **at},
    ]


@st.composite
def responses(draw: st.DrawFn) -> Drawn:
    """A response and its events."""
    items = [_item(draw, index) for index in range(draw(st.integers(1, 4)))]
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None, "tools": []}
    begun = {**base, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    status = draw(st.sampled_from(("completed", "incomplete")))
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    usage: dict[str, Any] = {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    output = [item for item, _ in items]
    whole = {**begun, "status": status, "incomplete_details": details, "output": output, "usage": usage}
    mixed = merged(draw, [events for _, events in items]) if draw(st.booleans()) else [e for _, es in items for e in es]
    # Items begin in their order, whatever happens then.
    mixed.sort(key=lambda event: event["type"] != "response.output_item.added")
    mixed[: len(items)] = sorted(mixed[: len(items)], key=lambda event: event["output_index"])
    opening: list[dict[str, Any]] = [
        {"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")
    ]
    events = [*opening, *mixed, {"type": f"response.{status}", "response": whole}]
    return Drawn(whole, [{**json.loads(json.dumps(e)), "sequence_number": n} for n, e in enumerate(events)])
