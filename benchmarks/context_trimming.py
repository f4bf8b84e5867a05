"""What `ContextTrimming` is worth to a coding agent of 100 turns: time to first token, and what the cache still holds.

The recorded runs of a coding agent where they are, else runs built from the standard library's source, one behind the
other until the model has been asked 100 times. Every turn sends the whole history over TLS and HTTP/2 to the emulated
provider, whose prompt cache remembers whole blocks, in three ways: unbounded; truncated every turn to the low-water
mark, as a sliding window does; and with `ContextTrimming()`. Only the last turn takes time at the provider. Compared
with: the same last turn behind a history of the low-water mark's size, all of which the provider remembers (warm). And
once more with nothing remembered, as after a pause (cold). Inside: from the application's call to its first token,
planning too. Outside: opening the connections.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import fastlane
from benchmarks._paired import median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from benchmarks._transport import wishes
from fastlane.emulator import Emulator, preset
from fastlane.knowledge.tokens import counter
from fastlane.plays.context_trimming.play import ContextTrimming

_TURNS = 100
_RECORDED = Path(__file__).parent.parent.parent / "shared/data/coding_agent_runs.jsonl"


class _Last(NamedTuple):
    """One arm of one conversation."""

    ttft_ms: float
    cached_tokens: int
    prompt_tokens: int
    last_prompt_tokens: int


def _runs() -> tuple[list[list[dict[str, Any]]], str]:
    if _RECORDED.is_file():
        with _RECORDED.open(encoding="utf-8") as lines:
            return [json.loads(line)["messages"] for line in lines], "recorded"
    return [_built(seed) for seed in range(9)], "built"


def _built(seed: int) -> list[dict[str, Any]]:
    """A run of the shape and sizes of a recorded one: files are looked at in windows, changed, and looked at again."""
    random = Random(seed)
    modules = [path for path in sorted(Path(json.__file__).parent.parent.glob("*.py")) if path.stat().st_size > 20_000]
    made: list[dict[str, Any]] = [{"role": "system", "content": "You are an autonomous programmer. " * 120}]
    made.append({"role": "user", "content": "Solve this issue. " + "It fails where it should not. " * 60})
    path = random.choice(modules)
    for number in range(12):
        lines = path.read_text(encoding="utf-8").splitlines()
        start = random.randrange(0, max(1, len(lines) - 100), 50)
        text = "\n".join(f"{start + at}:{line}" for at, line in enumerate(lines[start : start + 100]))
        looks = random.random() < 0.6
        name, given = ("open", {"path": path.name, "line": start}) if looks else ("edit", {"search": lines[start]})
        function = {"name": name, "arguments": json.dumps(given)}
        call = {"id": f"call_{seed}_{number}", "type": "function", "function": function}
        made.append({"role": "assistant", "content": "I will look at this next.", "tool_calls": [call]})
        made.append(
            {"role": "tool", "tool_call_id": call["id"], "content": text if looks else "Replaced 1 occurrence."}
        )
        if random.random() < 0.2:
            path = random.choice(modules)
    return made


def _grown(runs: Sequence[Sequence[dict[str, Any]]], first: int) -> list[dict[str, Any]]:
    """Runs one behind the other, with ids of their own, up to the question before the answer of the last turn."""
    made: list[dict[str, Any]] = []
    asked = 0
    for number in itertools.count(first):
        run = runs[number % len(runs)]
        for message in run if not made else run[1:]:
            if message["role"] == "assistant":
                asked += 1
                if asked == _TURNS:
                    return made
            made.append(_renamed(message, f"{number}_"))
    raise AssertionError


def _renamed(message: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    renamed = dict(message)
    if "tool_call_id" in renamed:
        renamed["tool_call_id"] = prefix + renamed["tool_call_id"]
    if renamed.get("tool_calls"):
        renamed["tool_calls"] = [{**call, "id": prefix + call["id"]} for call in renamed["tool_calls"]]
    return renamed


def _prompts(conversation: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    ends = [index for index, message in enumerate(conversation) if message["role"] == "assistant"]
    return [list(conversation[:end]) for end in (*ends, len(conversation))]


def _truncated(prompt: Sequence[dict[str, Any]], tokens: int) -> list[dict[str, Any]]:
    """Instructions, and as many of the last messages as fit: what applications do, with an eye for pairs."""
    count = counter(MODEL).message
    left = tokens - count(prompt[0])
    start = len(prompt)
    while start > 1 and count(prompt[start - 1]) <= left:
        start -= 1
        left -= count(prompt[start])
    while start < len(prompt) - 1 and prompt[start]["role"] == "tool":
        start += 1
    return [prompt[0], *prompt[start:]]


def _ask(client: fastlane.OpenAI, prompt: list[Any], **asked: object) -> fastlane.CallRecord:
    headers = wishes(output_tokens=1, **asked)
    options: Any = {"stream_options": {"include_usage": True}}
    with client.chat.completions.create(
        model=MODEL, messages=prompt, stream=True, extra_headers=headers, **options
    ) as stream:
        for _ in stream:
            pass
    record = client.last_call
    assert record is not None
    return record


def _arm(emulator: Emulator, plays: list[Any], prompts: Sequence[list[Any]]) -> _Last:
    emulator.forget_prompts()
    cached = whole = 0
    with fastlane.OpenAI(base_url=emulator.base_url, api_key="none", max_retries=0, only_plays=plays) as client:
        for prompt in prompts:
            last = prompt is prompts[-1]
            record = _ask(client, prompt) if last else _ask(client, prompt, prefill_ms=0)
            cached += record.usage.cached_tokens or 0
            whole += record.usage.input_tokens or 0
    return _Last(1e3 * (record.time_to_first_token_s or 0), cached, whole, record.usage.input_tokens or 0)


def _conversation(emulator: Emulator, conversation: list[dict[str, Any]]) -> dict[str, _Last]:
    prompts = _prompts(conversation)
    low = ContextTrimming().low_water
    connection = fastlane.Connection()
    new = len(prompts[-1]) - len(prompts[-2])
    behind = _truncated(prompts[-1], low)
    play = ContextTrimming()
    arms = {
        "unbounded": _arm(emulator, [connection], prompts),
        "truncating": _arm(emulator, [connection], [_truncated(prompt, low) for prompt in prompts]),
        "ours": _arm(emulator, [connection, play], prompts),
        "low_water": _arm(emulator, [connection], [behind[:-new], behind]),
    }
    # The play still knows the conversation; the provider has forgotten it.
    arms["unbounded_cold"] = _arm(emulator, [connection], prompts[-1:])
    arms["ours_cold"] = _arm(emulator, [connection, play], prompts[-1:])
    arms["low_water_cold"] = _arm(emulator, [connection], [behind])
    return arms


def _share(lasts: Sequence[_Last]) -> float:
    return sum(last.cached_tokens for last in lasts) / sum(last.prompt_tokens for last in lasts)


def measure(quick: bool) -> Report:
    """Run every conversation in every way."""
    runs, source = _runs()
    conversations = [_grown(runs, first) for first in range(2 if quick else len(runs))]
    with providers(1, model=preset("bench")) as (emulator,):
        done = [_conversation(emulator, conversation) for conversation in conversations]
    arms = {name: [conversation[name] for conversation in done] for name in done[0]}

    def ratio(one: str, other: str) -> list[float]:
        return [first.ttft_ms / second.ttft_ms for first, second in zip(arms[one], arms[other], strict=True)]

    shares = {name: _share(arms[name]) for name in ("unbounded", "truncating", "ours")}
    figures: dict[str, Figure] = {
        f"{name}_last_ttft_ms": median([last.ttft_ms for last in lasts]).value for name, lasts in arms.items()
    }
    figures |= {f"{name}_last_prompt_tokens": arms[name][0].last_prompt_tokens for name in ("unbounded", "ours")}
    figures |= {f"{name}_cached_share": share for name, share in shares.items()}
    figures |= {
        "last_ttft_to_low_water_ratio": median(ratio("ours", "low_water")).value,
        "worst_last_ttft_to_low_water_ratio": max(ratio("ours", "low_water")),
        "last_ttft_to_truncating_ratio": median(ratio("ours", "truncating")).value,
        "cold_last_ttft_to_low_water_ratio": median(ratio("ours_cold", "low_water_cold")).value,
        "cold_unbounded_to_ours_ttft_ratio": median(ratio("unbounded_cold", "ours_cold")).value,
        "cached_share_to_unbounded_ratio": shares["ours"] / shares["unbounded"],
    }
    return Report(
        figures=figures,
        reach={"last_ttft_to_low_water_ratio": "<= 1.2", "cached_share_to_unbounded_ratio": ">= 0.85"},
        conditions={"conversations": f"{len(conversations)} of {_TURNS} turns, {source}"},
    )
