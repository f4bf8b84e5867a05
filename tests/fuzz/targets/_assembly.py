"""Events put together into an answer, and into a record: any events whatever, in any order, and never an error."""

from __future__ import annotations

import copy
import json
from typing import Any

from fastlane.engine.call_state import CallState
from fastlane.engine.pipeline import Pipeline
from fastlane.protocol.answer_texts import answer_texts, verdict_of
from fastlane.protocol.assembly import AnswerCut, assembly_of
from fastlane.protocol.fields import from_json
from fastlane.protocol.first_content import FirstContent, is_empty_answer
from tests.fuzz import corpus, mutation
from tests.fuzz.drawn import Drawn, chance, json_value
from tests.fuzz.targets._target import holds

_ENDPOINTS = {"/chat/completions": corpus.CHUNKS, "/completions": corpus.CHUNKS, "/responses": corpus.EVENTS}
_NAMES = (
    "choices",
    "delta",
    "index",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "type",
    "usage",
    "output_index",
)


def check(data: bytes) -> None:
    """Draw events of an endpoint, changed and in any order, and put them together."""
    draw = Drawn(data)
    endpoint = draw.choice(list(_ENDPOINTS))
    assembly = assembly_of(endpoint, choices=draw.randrange(1, 3))
    assert assembly is not None
    events: list[Any] = []
    while not draw.spent and len(events) < 25:
        document = draw.choice(_ENDPOINTS[endpoint])
        event = mutation.changed(document, draw, _ENDPOINTS[endpoint])
        if draw.randrange(10) == 0:
            event = {name: json_value(draw, _NAMES) for name in draw.sample(_NAMES, 3)}
        if isinstance(event, dict):
            events.append(event)
    before = copy.deepcopy(events)
    texts: dict[Any, str] = {}
    kinds: dict[Any, set[str]] = {}
    for event in events:
        for delta in assembly.take(event):
            texts[delta.channel] = texts.get(delta.channel, "") + delta.text
            kinds.setdefault(delta.channel, set()).add(delta.kind)
    holds(repr(events) == repr(before), "an event was changed")
    holds(assembly.finished in (True, False), "it is neither finished nor not")
    body = assembly.body()
    json.dumps(body)
    holds(body == assembly.body() or "nan" in repr(body), "asked twice, it is another answer", body)
    whole = {one.where: one.text for one in answer_texts(body, endpoint) if one.kind == "content"}
    for channel, text in texts.items():
        if kinds[channel] == {"content"} and endpoint != "/responses":  # whose later events say texts again
            found = whole.get(channel, text)
            holds(found == text, "a text is not what its pieces come to", channel, found, text)
    ends = {channel: draw.randrange(len(text) + 1) for channel, text in texts.items()}
    json.dumps(assembly.body(AnswerCut(ends=ends, usage={})))
    odd = mutation.changed(body, draw, [body])
    holds(all(type(one.text) is str for one in answer_texts(odd, endpoint)), "a text is none", odd)
    holds(verdict_of(odd, endpoint) in (None, "truncated", "refused"), "no such verdict", odd)
    holds(is_empty_answer(odd, endpoint) in (True, False), "it is neither empty nor not", odd)
    events.append(json_value(draw, _NAMES))
    for event in events:
        first = FirstContent(endpoint)
        first.feed(f"data: {json.dumps(event)}\n\n".encode())
        holds(first.ended() in ("content", "empty", "error", "unknown"), "no such beginning", event)
    _record(events, odd, endpoint)


def _call(endpoint: str, *, streaming: bool) -> CallState:
    state = CallState(
        Pipeline((), ()), method="POST", endpoint=endpoint, origin="https://x:443", stream=streaming, transport="fake"
    )
    state.streaming = state.decoded = streaming
    return state


def _record(events: list[Any], answer: Any, endpoint: str) -> None:
    """Have them noted on records, of a stream and of a whole answer."""
    stream, whole = _call(endpoint, streaming=True), _call(endpoint, streaming=False)
    for event in events:
        stream.answer.event(from_json(json.dumps(event)))
    whole.note_raw_answer(json.dumps(answer).encode())
    for state in (stream, whole):
        state.finish()
        json.dumps(state.record().to_dict())
    holds(stream.record().events == len(events), "an event was not counted", events)
    holds(whole.record().outcome == "completed", "a whole answer is none", answer)


def seeds() -> list[bytes]:
    """Bytes that draw events."""
    return chance(40, 260)
