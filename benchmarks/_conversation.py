"""Conversations of an agent with tools, of the shape and sizes of a recorded airline agent's, at any length.

The sizes are those of the recording within a tenth: a system message of 6.2 kB, questions, answers, calls of tools and
their results of 0.13, 0.36, 0.30 and 0.84 kB as JSON, 14 tools of 0.66 kB. The words mean nothing.
"""

from __future__ import annotations

import json
import random
from typing import Any

_WORDS = [
    "flight", "reservation", "passenger", "economy", "baggage", "certificate", "refund", "origin", "destination",
    "membership", "insurance", "confirm", "cancel", "update", "seat", "date", "return", "payment", "balance", "delayed",
    "available", "policy", "agent", "user", "request",
]  # fmt: skip
_TOOLS = 14


def prose(rng: random.Random, size: int) -> str:
    """Return a text of that many characters."""
    text = ""
    while len(text) < size:
        text += " ".join(rng.choices(_WORDS, k=9)).capitalize() + (".\n\n- " if rng.random() < 0.2 else ". ")
    return text[:size]


def _record(rng: random.Random, size: int) -> str:
    """A tool's result: JSON in a string, as agents pass it on."""
    record: dict[str, Any] = {"name": {"first_name": "Mia", "last_name": "Li"}, "reservations": []}
    while len(json.dumps(record)) < size:
        flight = {"origin": "SFO", "destination": "JFK", "flight_number": f"HAT{rng.randrange(100, 999)}", "price": 142}
        record["reservations"].append(flight)
    return json.dumps(record)


def _turn(rng: random.Random, number: int) -> list[dict[str, Any]]:
    call = f"call_{rng.randbytes(12).hex()}"
    name = f"look_up_{number % _TOOLS}"
    arguments = json.dumps({"user_id": "mia_li_3668", "reservation_id": rng.randbytes(3).hex(), "why": prose(rng, 50)})
    calling = {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": prose(rng, 90)},
        {"role": "assistant", "content": None, "tool_calls": [calling]},
        {"role": "tool", "tool_call_id": call, "name": name, "content": _record(rng, 640)},
        {"role": "assistant", "content": prose(rng, 315)},
    ]


def conversation(messages: int) -> list[Any]:
    """A conversation of that many messages, the same each time."""
    rng = random.Random(messages)
    made: list[dict[str, Any]] = [{"role": "system", "content": prose(rng, 6_000)}]
    while len(made) < messages:
        made += _turn(rng, len(made))
    return made[:messages]


def tools() -> list[Any]:
    """The tools that such an agent has, the same each time."""
    rng = random.Random(0)
    return [_tool(rng, number) for number in range(_TOOLS)]


def _tool(rng: random.Random, number: int) -> dict[str, Any]:
    def described(kind: str) -> dict[str, Any]:
        return {"type": kind, "description": prose(rng, 32)}

    properties: dict[str, Any] = {name: described("string") for name in _WORDS[number % 8 : number % 8 + 3]}
    properties["cabin"] = {"type": "string", "enum": ["basic_economy", "economy", "business"]}
    if number % 7 == 0:
        for name in ("flights", "passengers"):
            inner = {one: described("string") for one in _WORDS[:3]}
            items = {"type": "object", "properties": inner, "required": list(inner)}
            properties[name] = {**described("array"), "items": items}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": f"look_up_{number}", "description": prose(rng, 80), "parameters": parameters}
    return {"type": "function", "function": function}
