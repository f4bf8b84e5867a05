"""What becomes of streams that are cut or stall: `Unbroken` over an emulated provider.

The provider has a process of its own, on loopback, over TLS, and sends a token every 50 ms, give or take 30 %.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._client import MESSAGES, run, wishes
from benchmarks._paired import percentile
from benchmarks._provider import MODEL, fact, providers, with_facts
from benchmarks._report import Report
from fastlane.emulator import ProviderModel
from fastlane.plays.unbroken.section import UnbrokenSection
from fastlane.plays.unbroken.session import note_gap, usual_gap_s

_TOKENS, _GAP_S = 24, 0.05
_AT_ONCE, _LEARNED, _THINKING_S = 50, 40, 1.0
_KINDS = ("background", "chat before output", "chat continued")
_FAULTS = {"never": ("drop", "truncate", "stall"), "require": ("reset", "truncate", "stall")}
"""By the setting `http2`: a TCP reset ends all streams of a connection over HTTP/2."""


class _Stream(NamedTuple):
    whole: str
    text: str
    section: UnbrokenSection | None

    @property
    def common(self) -> int:
        """How many characters are right, from the beginning on."""
        pairs = enumerate(zip(self.whole, self.text, strict=False))
        return next((at for at, (one, other) in pairs if one != other), min(len(self.whole), len(self.text)))


async def _read(client: openai.AsyncOpenAI, kind: str, whole: str = "", **wanted: str) -> _Stream:
    create: Any = client.responses.create if kind == "background" else client.chat.completions.create
    asked = {"input": "Is water wet?", "background": True} if kind == "background" else {"messages": MESSAGES}
    headers, texts = wishes(output_tokens=_TOKENS, **wanted), []
    stream = await create(model=MODEL, stream=True, extra_headers=headers, **asked)
    with suppress(openai.APIError):
        async for event in stream:
            if kind != "background":
                texts += [choice.delta.content or "" for choice in event.choices]
            elif event.type == "response.output_text.delta":
                texts.append(event.delta)
    record = fastlane.record_of(stream)
    return _Stream(whole, "".join(texts), None if record is None else record.get(UnbrokenSection))


async def _measure(base_url: str, count: int) -> dict[str, Any]:
    play = fastlane.Unbroken(min_stall_s=0.01, max_stall_s=0.9, max_thinking_s=_THINKING_S, on_break="continue")
    options: dict[str, Any] = {"base_url": base_url, "api_key": "none"}
    clients: dict[str, openai.AsyncOpenAI] = {
        http2: fastlane.AsyncOpenAI(**options, only_plays=[fastlane.Connection(http2=http2), play])  # type: ignore[arg-type]
        for http2 in _FAULTS
    }
    clients["stock"] = openai.AsyncOpenAI(**options)
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, client: str | None = None) -> _Stream:
        # Each kind with each version of HTTP, with each fault, at each position.
        kind, version, rest = _KINDS[number % 3], list(_FAULTS)[number // 3 % 2], number // 6
        fault, position = _FAULTS[version][rest % 3], rest // 3 % _TOKENS
        after = 0 if kind == "chat before output" else position if kind == "background" else max(1, position)
        fault = f"{fault};after={after};times=1" + (",keepalive=0.02" if fault == "stall" else "")
        if client == "stock":  # it would wait for ten minutes
            fault = fault.replace("stall", "truncate").partition(",")[0]
        async with free:
            tag = f"{client} stream {number}"
            return await _read(clients[client or version], kind, whole[kind], fault=fault, tag=tag)

    sound = await asyncio.gather(*[_read(clients["never"], kind) for kind in _KINDS for _ in range(_LEARNED)])
    whole = {kind: sound[_LEARNED * at].text for at, kind in enumerate(_KINDS)}
    streams = await asyncio.gather(*map(one, range(count)))
    stock = await asyncio.gather(*[one(number, "stock") for number in range(count // 5)])
    for client in clients.values():
        await client.close()
    sections = [one.section for one in streams if one.section is not None]
    stalled = [(part.stalled_s, section.usual_gap_s) for section in sections for part in section.parts]
    # Before the first text `max_thinking_s` is the limit.
    noticed = [after_s / usual_s for after_s, usual_s in stalled if after_s and usual_s and after_s < _THINKING_S]
    return {
        "streams": count,
        "broken_ratio": sum(section.breaks > 0 for section in sections) / count,
        "lost_characters": sum(len(one.whole) - one.common for one in streams),
        "doubled_characters": sum(len(one.text) - one.common for one in streams),
        "raised": sum(section.why_not is not None for section in sections),
        "whole_ratio": sum(one.text == one.whole for one in streams) / count,
        "stock_whole_ratio": sum(one.text == one.whole for one in stock) / len(stock),
        "stalls": len(noticed),
        "noticed_gaps_p50": percentile(noticed, 0.5),
        "noticed_gaps_p95": percentile(noticed, 0.95),
    }


def _false_alarms(play: fastlane.Unbroken) -> float:
    """Return the share of recorded gaps that end a stream; each recording is judged by what the others have taught."""
    recorded = json.loads(Path(__file__).with_name("recorded_gaps.json").read_text())
    draw, late = random.Random(7), list[bool]()
    for engine, recordings in recorded.items():
        for name, judged in recordings.items():
            others = [gap for other, gaps in recordings.items() if other != name for gap in gaps]
            key = engine, name, repr(play).encode()
            for _ in range(64):
                note_gap(key, max(draw.choices(others, k=16)) / 1e3)
            limit_s = min(play.max_stall_s, max(play.min_stall_s, play.stall_factor * (usual_gap_s(key) or 0.0)))
            late += [gap / 1e3 > limit_s for gap in judged]
    return sum(late) / len(late)


def unbroken(quick: bool) -> Report:
    """Streams that are cut or stall at every token: text lost or doubled, and how soon a stall is noticed.

    A third are responses in the background, a third chat completions before their first output, a third chat
    completions that are continued; the emulated model continues exactly, which a real one does not. Faults: TCP reset,
    RST_STREAM, an end without a finish reason, a stall with keep-alive comments. Inside noticed_gaps: from the arrival
    of the last text to the error, over the usual gap. The recorded gaps are 187 between pieces of text that
    llama-cpp-python and transformers sent on loopback: judged with the default settings, and with a floor of 50 ms.
    """
    model = ProviderModel(inter_token_s=_GAP_S, inter_token_jitter=0.3)
    with providers(model=model) as (emulator,), with_facts(emulator, continued_by=fact("prefix")):
        figures = run(_measure(emulator.base_url, 300 if quick else 1_000))
    figures["false_alarms_ratio"] = _false_alarms(fastlane.Unbroken())
    figures["false_alarms_low_floor_ratio"] = _false_alarms(fastlane.Unbroken(min_stall_s=0.05))
    reach = {
        "lost_characters": "== 0",
        "doubled_characters": "== 0",
        "whole_ratio": ">= 0.99",
        "noticed_gaps_p95": "<= 3",
        "false_alarms_ratio": "<= 0.001",
    }
    return Report(figures=figures, reach=reach, conditions={"tokens": _TOKENS, "token_ms": _GAP_S * 1e3})
