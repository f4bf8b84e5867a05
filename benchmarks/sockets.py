"""What Responses over WebSocket cost the client: openai's connections against ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from websockets.sync.client import ClientConnection

from benchmarks._client import client_of
from benchmarks._conversation import conversation, tools
from benchmarks._paired import cpu_pairs, middle, paired
from benchmarks._provider import MODEL, providers
from benchmarks._report import Report

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
    for name, (stock, ours) in {"event": received, "turn": turns}.items():
        figures |= paired(name, stock, ours)
        figures |= {f"{name}_stock_us": middle(stock), f"{name}_fastlane_us": middle(ours)}
    return Report(
        figures=figures,
        reach={"event_ratio": ">= 10", "turn_ratio": ">= 20"},
        conditions={"pairs": pairs, "turn_bytes": len(sent["stock"])},
    )
