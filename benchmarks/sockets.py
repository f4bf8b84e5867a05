"""What Responses over WebSocket cost the client, and what the turns of an agent save on them."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import httpx2
import openai
from websockets.sync.client import ClientConnection

from benchmarks._client import MODES, chunks, client_of, in_mode, ours, run, run_sync, settled, wishes
from benchmarks._conversation import conversation, prose, tools
from benchmarks._paired import cpu_pairs, middle, paired, turns
from benchmarks._provider import MODEL, fact, providers, with_facts
from benchmarks._report import Figure, Report
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, ProviderModel
from fastlane.plays import PromptCache, ResponseSocket
from fastlane.plays.response_socket.section import ResponseSocketSection

_SIDES = ("stock", "fastlane")
_EVENTS, _TURNS = 100, 2


def _items(count: int) -> list[dict[str, Any]]:
    """Return a recorded agent's conversation as items of Responses."""
    items: list[dict[str, Any]] = []
    for message in conversation(count):
        calls = message.get("tool_calls", ())
        items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            items.append(output)
        elif message["content"] is not None:
            items.append({"role": message["role"], "content": message["content"]})
    return items[:count]


def socket_events(quick: bool) -> Report:
    """Measure the CPU of one received event and of one sent turn with 100 earlier items, openai's client and ours.

    Inside: `connection.recv()` of a text delta, with our records and the record of the turn; and `connection.send()` of
    a turn with its whole history and 14 tools. Outside: what `websockets` and TLS do, which is the same for both. Both
    sides' events are compared first, and the JSON that both send.
    """
    pairs = 20 if quick else 100
    listed = [{"type": "function", **one["function"]} for one in tools()]
    turn = {"type": "response.create", "model": MODEL, "input": _items(100), "tools": listed, "store": False}
    delta = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": "the retry", "logprobs": []}
    message = json.dumps({"type": "response.output_text.delta", "sequence_number": 9, **delta}).encode()
    sent: dict[str, str] = {}
    with ExitStack() as stack:
        (emulator,) = stack.enter_context(providers())
        connections = {}
        for side in _SIDES:
            client = stack.enter_context(client_of(side, "sync", emulator.base_url))
            connections[side] = stack.enter_context(client.responses.connect())
        now: list[str] = []
        stack.enter_context(patch.object(ClientConnection, "recv", lambda *_, **__: bytes(message)))
        stack.enter_context(
            patch.object(ClientConnection, "send", lambda _, text, *__: sent.__setitem__(now[0], str(text)))
        )

        def receive(side: str) -> Callable[..., object]:
            recv = connections[side].recv
            return lambda _: [recv() for _ in range(_EVENTS)]

        def send(side: str) -> Callable[..., object]:
            return lambda _: [connections[side].send(turn) for _ in range(_TURNS)]

        def prepare(side: str) -> Callable[[], object]:
            def begin() -> None:
                now[:] = [side]
                if side == "fastlane":
                    connections[side]._connection.watcher.closed(None)
                connections[side].send(turn)

            return begin

        before = [prepare(side) for side in _SIDES]
        events = []
        for side, begin in zip(_SIDES, before, strict=True):
            begin()
            events.append(connections[side].recv())
        if repr(events[0]) != repr(events[1]) or len({json.dumps(json.loads(text)) for text in sent.values()}) != 1:
            raise RuntimeError("both sides do not read or send the same")
        received = [
            [one / _EVENTS / 1e3 for one in arm] for arm in cpu_pairs([*map(receive, _SIDES)], pairs, prepare=before)
        ]
        turns = [[one / _TURNS / 1e3 for one in arm] for arm in cpu_pairs([*map(send, _SIDES)], pairs, prepare=before)]
    figures: dict[str, float] = {}
    for name, (stock, fast) in {"event": received, "turn": turns}.items():
        figures |= paired(name, stock, fast)
        figures |= {f"{name}_stock_us": middle(stock), f"{name}_fastlane_us": middle(fast)}
    return Report(
        figures=figures,
        reach={"event_ratio": ">= 10", "turn_ratio": ">= 20"},
        conditions={"pairs": pairs, "turn_bytes": len(sent["stock"])},
    )


# `ResponseSocket`: the turns of a coding agent

_LOOP_TURNS = 30
_OUTPUT_TOKENS = 60
_THINKS_S = 0.2
PROVIDER_SAVES_S = 0.0
"""How much sooner the first token of a turn comes on a WebSocket. OpenAI's guide claims much, so none is assumed."""
_TOOL_S = 0.4
"""Between turns: the sender's window falls back, as it does while a tool runs."""
_ARMS = ("http", "socket")


@functools.cache
def _history(turns: int) -> tuple[list[Any], list[Any]]:
    """Return the first items of a coding agent's run, and a tool's result for each turn: sizes of recorded runs."""
    draw = random.Random(3)
    begun = [{"role": "system", "content": prose(draw, 5_000)}, {"role": "user", "content": prose(draw, 3_800)}]
    return begun, [
        {"role": "user", "content": prose(draw, min(9_000, int(draw.expovariate(1 / 2_500)) + 100))}
        for _ in range(turns)
    ]


_FACTS: dict[str, Any] = {"response_sockets": fact(True)}


def _agent(arm: str, mode: str, base_url: str, **asked: object) -> Any:
    """Make a client with default plays, or with `ResponseSocket()` too."""
    plays = (PromptCache(), ResponseSocket()) if arm == "socket" else (PromptCache(),)
    headers = wishes(output_tokens=_OUTPUT_TOKENS, **asked)
    return ours(mode, base_url, *plays, default_headers=headers, raise_play_errors=True)


async def _turns(client: Any, turns: int, *, pause_s: float = 0.0, **fields: Any) -> list[float]:
    """Run an agent; return the milliseconds of each turn, from the call to the end of its stream."""
    begun_with, results = _history(turns)
    history, taken = list(begun_with), []
    for result in results:
        begun = now_ns()
        last: Any = None
        async for event in chunks(
            await settled(client.responses.create(model=MODEL, input=history, stream=True, **fields))
        ):
            last = event
        taken.append((now_ns() - begun) / 1e6)
        history += [*(item.to_dict() for item in last.response.output), result]
        if pause_s:
            await asyncio.sleep(pause_s)
    return taken


async def _loop_ms(arm: str, base_url: str) -> float:
    """Return the milliseconds of all turns of one agent with a fresh client, connecting included."""
    thinks_s = _THINKS_S - (PROVIDER_SAVES_S if arm == "socket" else 0.0)
    async with _agent(arm, "async", base_url, prefill_ms=thinks_s * 1e3) as client:
        taken = sum(await _turns(client, _LOOP_TURNS, pause_s=_TOOL_S))
        if arm == "socket" and client.last_call.get(ResponseSocketSection).sent != "delta":
            raise RuntimeError("the last turn was not sent as a delta")
    return taken


async def _loops(started: Sequence[Emulator], rounds: int) -> list[dict[str, list[float]]]:
    """Run agents against all providers at once, the arms of each in turns."""

    async def at(emulator: Emulator, start_s: float) -> dict[str, list[float]]:
        await asyncio.sleep(start_s)
        found: dict[str, list[float]] = {arm: [] for arm in _ARMS}
        for _, arm in turns(_ARMS, rounds):
            found[arm].append(await _loop_ms(arm, emulator.base_url))
        return found

    return await asyncio.gather(*(at(emulator, number * 0.17) for number, emulator in enumerate(started)))


def _sent_bytes(emulator: Emulator, **fields: Any) -> dict[str, int]:
    """Run one agent of each arm; return the bytes of the bodies, and of the messages, that it sent."""
    sent = {}
    for arm, method in zip(_ARMS, ("POST", "WS"), strict=True):
        emulator.reset()
        with _agent(arm, "sync", emulator.base_url) as client:
            run_sync(_turns(client, _LOOP_TURNS, **fields))
        requests = [one for one in emulator.log() if one.path.endswith("/responses") and one.method != "GET"]
        if {one.method for one in requests} != {method} or len(requests) != _LOOP_TURNS:
            raise RuntimeError(f"{arm} sent {Counter(one.method for one in requests)}")
        sent[arm] = sum(one.bytes_in for one in requests)
    return sent


def _loop_cpu_ms(base_url: str, mode: str, pairs: int) -> dict[str, float]:
    with asyncio.Runner() as runner:
        drive: Callable[[Any], Any] = run_sync if mode == "sync" else runner.run
        clients = [_agent(arm, mode, base_url) for arm in _ARMS]
        arms = [lambda client=client: drive(_turns(client, _LOOP_TURNS)) for client in clients]
        http, socket = cpu_pairs(arms, pairs, warm_ups=1)
        for client in clients:
            drive(settled(client.close()))
    return {
        **paired(f"{mode}_cpu_http_to_socket", http, socket),
        **{
            f"{mode}_{arm}_turn_cpu_ms": middle(each) / _LOOP_TURNS / 1e6
            for arm, each in zip(_ARMS, (http, socket), strict=True)
        },
    }


def socket_loop(quick: bool) -> Report:
    """Compare 30 turns of a coding agent, each with the whole history, over HTTP and with `ResponseSocket()`.

    Both are fastlane with default plays. Sizes are those of recorded runs: a system message and a task of 9 kB in the
    history, answers of 60 tokens, results of tools of 0.1 to 9 kB. Inside: the streams of all turns, connecting
    included. Outside: 0.4 s between turns. The model takes 0.2 s to its first token on both sides (`PROVIDER_SAVES_S`
    is 0). `with_tools`: 14 tools of 9 kB are sent with each turn, which the API does not keep. CPU: on loopback.
    """
    rounds, lanes, pairs = (1, 3, 4) if quick else (3, 4, 16)
    trips = {f"rtt{milliseconds}": milliseconds / 1e3 for milliseconds in (40, 100)}
    listed = [{"type": "function", **one["function"]} for one in tools()]
    figures: dict[str, Figure] = {}
    model = ProviderModel(inter_token_s=0.0)
    for name, round_trip_s in trips.items():
        with providers(lanes, round_trip_time_s=round_trip_s, model=model) as started, with_facts(*started, **_FACTS):
            found = asyncio.run(_loops(started, rounds))
        http, socket = ([one for lane in found for one in lane[arm]] for arm in _ARMS)
        figures |= paired(f"{name}_http_to_socket", http, socket)
        figures |= {f"{name}_http_turn_ms": middle(http) / _LOOP_TURNS}
        figures |= {f"{name}_socket_turn_ms": middle(socket) / _LOOP_TURNS}
    with providers() as started, with_facts(*started, **_FACTS):
        for name, fields in {"": {}, "with_tools_": {"tools": listed}}.items():
            sent = _sent_bytes(started[0], **fields)
            figures |= {f"{name}{arm}_kb": count / 1e3 for arm, count in sent.items()}
            figures[f"{name}bytes_ratio"] = sent["socket"] / sent["http"]
        for mode in MODES:
            figures |= _loop_cpu_ms(started[0].base_url, mode, pairs)
    return Report(
        figures=figures,
        reach={"bytes_ratio": "<= 0.1", **{f"{name}_http_to_socket_ratio": ">= 1" for name in trips}},
        conditions={"runs": rounds * lanes, "turns": _LOOP_TURNS, "provider_saves_ms": PROVIDER_SAVES_S * 1e3},
    )


# Kills

_EVENTS = 13
"""Of an answer of five tokens, at the least."""


def _kill(draw: random.Random) -> str:
    """Draw a fault that ends a connection before, amid or after an answer."""
    return draw.choice((
        f"drop;after_events={draw.randrange(_EVENTS + 1)}",
        f"drop;after_bytes={draw.randrange(1, 4_000)}",
        f"truncate;after={draw.randrange(5)}",
        "disconnect",
    ))  # fmt: skip


async def _call(client: Any, history: list[Any], tag: str, *, stream: bool) -> tuple[Any, list[int]]:
    """Return the response of a call, and the numbers of its events. Raises what the application gets."""
    answer = await settled(
        client.responses.create(model=MODEL, input=history, stream=stream, metadata={"x-emulator-tag": tag})
    )
    if not stream:
        return answer, []
    numbers, last = list[int](), None
    async for event in chunks(answer):
        numbers.append(event.sequence_number)
        last = event
    return getattr(last, "response", None), numbers


async def _killed(client: Any, plain: Any, emulator: Emulator, mode: str, kills: int) -> Counter[str]:
    """Talk in turns, each of which is killed once; say what came of it."""
    draw, found = random.Random(mode), Counter[str]()
    history: list[Any] = [{"role": "user", "content": "Begin."}]
    for number in range(kills):
        stream, whole = draw.random() < 0.5, None
        for step in ("killed", "after"):
            emulator.set_faults(*([f"{_kill(draw)};times=1;on=WS responses"] if step == "killed" else []))
            try:
                answer, numbers = await _call(client, history, f"{mode}-{number}-{step}", stream=stream)
            except (openai.APIConnectionError, httpx2.TransportError):
                found[f"{step}_raised"] += 1
                continue
            finally:
                found[client.last_call.get(ResponseSocketSection).sent] += 1
            found["wrong"] += numbers != list(range(len(numbers)))
            if answer is not None and answer.status == "completed":
                whole = answer
            break
        if whole is None:
            found["lost"] += 1
            continue
        # The same history over HTTP: as many tokens.
        same, _ = await _call(plain, history, f"{mode}-{number}-http", stream=False)
        found["wrong"] += whole.usage.input_tokens != same.usage.input_tokens
        history += [*(item.to_dict() for item in whole.output), {"role": "user", "content": f"And {number}?"}]
        history = history if len(history) < 40 else history[:1]
    return found


def socket_kills(quick: bool) -> Report:
    """Kill the socket of a turn at a random event, byte, or before it, in 1,000 turns of sync and async clients.

    Inside: calls, streamed or not; the application sends those that raised once more. not_noticed: the answer was
    whole, or openai's rules sent again what had not begun. lost: a turn without an answer, or a stream that ends early
    without an error. billed_twice: calls for which the provider has generated tokens twice, by its log. wrong: answers
    to another history than the call's, by the tokens that this history has over HTTP, and streams with missing or
    doubled events.
    """
    kills = 200 if quick else 1_000
    found: Counter[str] = Counter()
    with providers() as started, with_facts(*started, **_FACTS):
        (emulator,) = started
        for mode in MODES:
            options = {"default_headers": wishes(output_tokens=5), "max_retries": 2, "timeout": 20.0}
            client = ours(mode, emulator.base_url, ResponseSocket(), raise_play_errors=True, **options)
            plain = ours(mode, emulator.base_url, **options)
            found += run(_closing(client, plain, emulator, mode, kills // len(MODES)))
        log = [one for one in emulator.log() if one.method == "WS"]
    billed = Counter(one.tag for one in log if one.output_tokens)
    struck = sum(one.fault is not None for one in log)
    return Report(
        figures={
            "kills": struck,
            "lost": found["lost"],
            "billed_twice": sum(count > 1 for count in billed.values()),
            "wrong": found["wrong"],
            "raised": found["killed_raised"],
            "not_noticed": struck - found["killed_raised"],
            "sent_as_delta": found["delta"],
            "sent_whole": found["full"],
        },
        reach={"lost": "== 0", "billed_twice": "== 0", "wrong": "== 0", "kills": f">= {kills}"},
    )


async def _closing(client: Any, plain: Any, emulator: Emulator, mode: str, kills: int) -> Counter[str]:
    try:
        return await in_mode(client, _killed, plain, emulator, mode, kills)
    finally:
        await settled(client.close())
        await settled(plain.close())
