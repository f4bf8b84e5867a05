"""What an agent's loop saves: tools that start while the answer still streams."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from openai.types.chat import ChatCompletionChunk

from benchmarks._client import ours, wishes
from benchmarks._paired import in_turns, middle, paired
from benchmarks._provider import MODEL, ROUND_TRIP_TIME_S, providers
from benchmarks._report import Report
from fastlane import ToolRunner, tool_calls
from fastlane._clock import now_ns

_NAMES = ("weather", "traffic", "calendar")
_TOOL_S = 0.3
_WISHES = wishes(tool_call=",".join(_NAMES), token_ms=10, prefill_ms=200)
# About 10 tokens for each call, and 32: 0.1 s and 0.32 s of an answer.
_CITIES = {
    "short": "Oslo, by the road along fjord",
    "long": "Oslo, by the road along the fjord, with a stop where the ferry lands, not before nine, and back by train",
}


def _tools(city: str) -> Any:
    schema = {"type": "object", "properties": {"city": {"enum": [city]}}, "required": ["city"]}
    return [{"type": "function", "function": {"name": name, "parameters": schema}} for name in _NAMES]


def _tool(city: str) -> str:
    time.sleep(_TOOL_S)
    return city


_FUNCTIONS = dict.fromkeys(_NAMES, _tool)
_ARMS: dict[str, Callable[[Any], list[Any]]] = {
    "one_by_one": lambda stream: [_tool(**call.arguments) for call in list(tool_calls(stream))],
    "at_once": lambda stream: [one.output for one in ToolRunner(_FUNCTIONS).run(stream).results],
    "early": lambda stream: [one.output for one in ToolRunner(_FUNCTIONS, early=_NAMES).run(stream).results],
}


def _interleaving(draw: random.Random) -> tuple[list[ChatCompletionChunk], list[str]]:
    """Draw the chunks of an answer whose calls' arguments interleave in pieces of any size, and the arguments."""
    texts = [json.dumps({"value": "".join(draw.choices('ab{}"\\ ', k=draw.randrange(12)))}) for _ in range(3)]
    left: list[list[dict[str, Any]]] = []
    for index, text in enumerate(texts):
        cuts = sorted(draw.sample(range(1, len(text)), draw.randrange(5)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        first = {"index": index, "id": f"call_{index}", "function": {"name": "tool", "arguments": ""}}
        left.append([first, *({"index": index, "function": {"arguments": piece}} for piece in pieces)])
    deltas = []
    while any(left):
        deltas.append({"tool_calls": [draw.choice([one for one in left if one]).pop(0)]})
    frame: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    return [ChatCompletionChunk.model_validate({**frame, "choices": [choice]}) for choice in choices], texts


def _wrong_starts(count: int) -> int:
    """Return how many calls were given out with other arguments than they had in the end, or not at all."""
    draw, wrong = random.Random(30), 0
    for _ in range(count):
        chunks, texts = _interleaving(draw)
        found = {call.index: call.text for call in tool_calls(iter(chunks))}
        wrong += sum(found.get(index) != text for index, text in enumerate(texts))
    return wrong


def early_tools(quick: bool) -> Report:
    """Compare three tools of 0.3 s that start early with those that start when the answer has ended.

    The answer calls all three, with short or long arguments, at 100 tokens/s. Tools at the end run one by one, as in a
    plain loop, or at once. Inside: from the call to the last result, over 40 ms. Then answers whose calls' arguments
    interleave, drawn at random: a wrong start has arguments that still changed.
    """
    rounds, drawn = (6, 5_000) if quick else (30, 20_000)
    with (
        providers(round_trip_time_s=ROUND_TRIP_TIME_S) as (emulator,),
        ours("sync", emulator.base_url, default_headers=_WISHES) as client,
    ):

        def measure(arm: tuple[str, str]) -> float:
            city = _CITIES[arm[0]]
            begun = now_ns()
            messages: Any = [{"role": "user", "content": "Which way to Oslo?"}]
            stream = client.chat.completions.create(model=MODEL, messages=messages, tools=_tools(city), stream=True)
            if _ARMS[arm[1]](stream) != [city] * len(_NAMES):
                raise RuntimeError("not every tool has run")
            return (now_ns() - begun) / 1e6

        turns_ms = in_turns(measure, [(size, arm) for size in _CITIES for arm in _ARMS], rounds, warm_ups=1)
    figures: dict[str, Any] = {}
    for size in _CITIES:
        early, one_by_one, at_once = (turns_ms[size, arm] for arm in ("early", "one_by_one", "at_once"))
        figures |= paired(f"{size}_early_to_one_by_one", early, one_by_one)
        figures |= paired(f"{size}_early_to_at_once", early, at_once)
        figures |= {f"{size}_{arm}_turn_ms": middle(turns_ms[size, arm]) for arm in _ARMS}
    return Report(
        figures={**figures, "wrong_starts": _wrong_starts(drawn), "interleavings": drawn},
        reach={**{f"{size}_early_to_one_by_one_ratio": "<= 0.7" for size in _CITIES}, "wrong_starts": "== 0"},
        conditions={"rounds": rounds},
    )
